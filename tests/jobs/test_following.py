"""Waiting for checkpoints: each once, until the run that writes them has ended."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from slimexp.errors import Interrupted, UserError
from slimexp.jobs.following import follow, run_has_ended
from slimexp.jobs.lock import exclusive


def record(run_dir: Path, status: str) -> None:
    (run_dir / "run.json").write_text(json.dumps({"status": status}))


def checkpoint(folder: Path, step: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"model.ckpt-{step}.index").touch()


def test_each_checkpoint_once_and_those_of_the_end_too(tmp_path):
    folder = tmp_path / "checkpoints"
    record(tmp_path, "RUNNING")
    with exclusive(tmp_path):
        events = iter(
            [
                lambda: None,
                lambda: (checkpoint(folder, 2), checkpoint(folder, 10)),
                lambda: checkpoint(folder, 11),
                lambda: (checkpoint(folder, 12), record(tmp_path, "FINISHED")),
            ]
        )
        found = follow(folder, tmp_path, timeout_secs=None, check_stop=lambda: next(events)(), poll_secs=0)
        assert [step for step, _ in found] == [2, 10, 11, 12]


def test_how_the_run_ended_is_said(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    checkpoint(tmp_path / "checkpoints", 1)
    for status, said in (("KILLED", "has ended: KILLED"), ("RUNNING", "was killed: no process holds it")):
        record(tmp_path, status)
        (tmp_path / ".lock").touch()
        for path in tmp_path.iterdir():
            os.utime(path, (0, 0))
        found = follow(tmp_path / "checkpoints", tmp_path, timeout_secs=None, check_stop=lambda: None, poll_secs=0)
        assert len(list(found)) == 1
        assert said in caplog.text


def test_a_stop_ends_the_wait(tmp_path):
    record(tmp_path, "RUNNING")

    def stop():
        raise Interrupted("stopped by SIGINT", 2)

    with exclusive(tmp_path), pytest.raises(Interrupted):
        next(follow(tmp_path / "checkpoints", tmp_path, timeout_secs=None, check_stop=stop, poll_secs=0))


def test_it_gives_up_after_a_while(tmp_path, caplog):
    with pytest.raises(UserError, match=r"no new checkpoint in .* for 0\.01 s .*, and none before"):
        next(follow(tmp_path / "none", None, timeout_secs=0.01, check_stop=lambda: None, poll_secs=0))
    checkpoint(tmp_path / "some", 1)
    caplog.set_level(logging.INFO)
    found = follow(tmp_path / "some", None, timeout_secs=0.01, check_stop=lambda: None, poll_secs=0)
    assert [step for step, _ in found] == [1]
    assert "Waiting for the next checkpoint in" in caplog.text
    assert "Not waiting any longer: no new checkpoint" in caplog.text


def test_a_run_has_ended_when_it_says_so_or_its_process_is_gone(tmp_path):
    assert run_has_ended(tmp_path)  # There is nothing.
    for status in ("FINISHED", "FAILED", "KILLED"):
        record(tmp_path, status)
        assert run_has_ended(tmp_path)
    record(tmp_path, "RUNNING")
    with exclusive(tmp_path):
        assert not run_has_ended(tmp_path, silent_secs=-1)
    assert not run_has_ended(tmp_path)  # It may be starting.
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    assert run_has_ended(tmp_path)  # Killed by force.
