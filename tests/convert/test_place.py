from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from slimexp.convert.place import MANIFEST, new_folder, read_manifest
from slimexp.errors import UserError

SPAWN = multiprocessing.get_context("spawn")
MADE = {"to": "records", "task": "single", "splits": {}}


def fill(target: Path, content: str, *, overwrite: bool = False, made: bool = True) -> None:
    with new_folder(str(target), overwrite=overwrite) as folder:
        Path(folder, "a").write_text(content)
        if made:
            Path(folder, MANIFEST).write_text(json.dumps(MADE))
        assert not (target / "a").exists() or (target / "a").read_text() != content


def test_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    with contextlib.suppress(ZeroDivisionError), new_folder(str(target), overwrite=False) as folder:
        Path(folder, "a").write_text("half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path / "deep") == []
    target.mkdir()
    fill(target, "whole")
    assert (target / "a").read_text() == "whole"
    assert os.listdir(tmp_path / "deep") == ["target"]
    assert os.stat(target).st_mode == os.stat(tmp_path / "deep").st_mode
    assert read_manifest(str(target)) == MADE


def test_replaces_only_what_it_may(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = tmp_path / "target"
    fill(target, "first")
    with pytest.raises(
        UserError, match=r"TARGET=.*/target is not empty; name another folder, or replace it with --over"
    ):
        fill(target, "second")
    fill(target, "second", overwrite=True)
    assert (target / "a").read_text() == "second"
    assert os.listdir(tmp_path) == ["target"]
    # What something else has put there is kept.
    (target / MANIFEST).write_text("[]")
    with caplog.at_level(logging.WARNING):
        fill(target, "third", overwrite=True)
    assert "was not made by a conversion; it is kept as" in caplog.text
    kept, _ = sorted(os.listdir(tmp_path), key=len, reverse=True)
    assert (tmp_path / kept / "a").read_text() == "second"
    assert (target / "a").read_text() == "third"
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"TARGET=.*/file is there and is no folder"):
        fill(tmp_path / "file", "x", overwrite=True)
    with pytest.raises(UserError, match=r"TARGET=.*/file/x: cannot be written \(File exists\)"):
        fill(tmp_path / "file" / "x", "x")


def test_a_target_that_was_filled_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(UserError, match="is not empty"), new_folder(str(target), overwrite=False):
        fill(target, "the other's")
    assert (target / "a").read_text() == "the other's"
    assert os.listdir(tmp_path) == ["target"]


def _write_for_ever(target: str, begun) -> None:
    with new_folder(target, overwrite=False) as folder:
        Path(folder, "a").write_text("half")
        begun.put(folder)
        signal.pause()


def test_what_a_killed_writer_left_behind_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    target = tmp_path / "target"
    begun = SPAWN.Queue()
    writers = [SPAWN.Process(target=_write_for_ever, args=(str(target), begun)) for _ in range(2)]
    for writer in writers:
        writer.start()
    left = [begun.get(timeout=60) for _ in writers]
    fill(target, "whole")
    assert all(Path(folder).exists() for folder in left)
    for writer in writers:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    assert not any(name.startswith("target") and name != "target" for name in os.listdir(tmp_path))
    fill(target, "again", overwrite=True)
    assert os.listdir(tmp_path) == ["target"]
