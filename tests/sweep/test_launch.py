"""What the sweep's own process makes of jobs that a launcher has lost. No launcher's jobs run here."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.plugins.launcher import Launcher

from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, NOT_RUN, RUNNING, Sweep, SweepJob, note_job, read_sweep
from slimexp.sweep.launch import launch
from slimexp.sweep.plan import PlannedJob
from slimexp.sweep.process import JOB_FILE, RESULT_FILE


class Playing(Launcher):
    """Does what the test says instead of running jobs."""

    def __init__(self, play: Callable[[], Any]) -> None:
        self.play = play
        self.jobs: list[list[str]] = []

    def setup(self, **kwargs: Any) -> None:
        pass

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        self.jobs = [list(overrides) for overrides in job_overrides]
        self.play()
        return []


class Parent:
    """Remembers what the store would be told."""

    run_id = "parent"

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def settle(self, job: SweepJob, job_dir: Path) -> None:
        self.told.append((job.number, job.status, job_dir.name))

    def supersede(self, earlier: str, later: str) -> None:
        self.told.append((earlier, later))


def run(sweep_dir: Path, play: Callable[[], Any], *, is_stopping: bool = False) -> tuple[list[SweepJob], Parent, Any]:
    record = Sweep(jobs=[SweepJob(0, "0", "a", run_id="old"), SweepJob(1, "1", "b")])
    record.write(sweep_dir)
    planned = [PlannedJob(number, ["seed=1"], {"seed": "1", "model": "x"}, str(number), "a") for number in (0, 1)]
    parent: Any = Parent()
    launcher = Playing(play)
    launch(planned, launcher, sweep_dir=sweep_dir, parent=parent, start_dir=sweep_dir, is_stopping=lambda: is_stopping)
    return read_sweep(sweep_dir).jobs, parent, launcher


def test_jobs_get_their_folders_and_the_store_their_ends(tmp_path):
    def play() -> None:
        note_job(tmp_path, 0, status=FINISHED, exit_code=0, run_id="new")
        note_job(tmp_path, 1, status=FAILED, exit_code=1, reason="a fault")

    jobs, parent, launcher = run(tmp_path, play)
    assert [job.status for job in jobs] == [FINISHED, FAILED]
    assert parent.told == [(0, FINISHED, "0"), ("old", "new"), (1, FAILED, "1")]
    place = f"hydra.sweep.dir='{tmp_path}'"
    assert launcher.jobs == [["seed=1", place, f"hydra.sweep.subdir='{number}'"] for number in (0, 1)]
    job = json.loads((tmp_path / "0" / JOB_FILE).read_text())["job"]
    assert job == {
        "sweep": str(tmp_path),
        "number": 0,
        "name": "a",
        "parent_run_id": "parent",
        "numbers": {"seed": 1.0},  # What is no number is none.
    }


def test_a_job_whose_waiting_process_was_ended_is_taken_at_its_own_word(tmp_path):
    def play() -> None:
        note_job(tmp_path, 0, status=RUNNING)
        note_job(tmp_path, 1, status=RUNNING)
        (tmp_path / "1" / RESULT_FILE).write_text('{"exit_code": 0, "reason": ""}')
        raise RuntimeError("a worker has vanished")

    jobs, parent, _ = run(tmp_path, play, is_stopping=True)
    assert [(job.status, job.exit_code) for job in jobs] == [(KILLED, 137), (FINISHED, 0)]
    assert jobs[0].reason == "the process that waited for it was ended"
    assert parent.told == [(0, KILLED, "0"), (1, FINISHED, "1")]


def test_a_launchers_failure_is_an_error_unless_the_sweep_is_stopping(tmp_path):
    def play() -> None:
        raise RuntimeError("no such cluster")

    with pytest.raises(RuntimeError, match="no such cluster"):
        run(tmp_path, play)
    assert [job.status for job in run(tmp_path, play, is_stopping=True)[0]] == [NOT_RUN, NOT_RUN]


def test_a_full_disk_costs_the_jobs_that_meet_it(tmp_path, capsys):
    def play() -> None:
        note_job(tmp_path, 0, status=FINISHED, exit_code=0)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "1"))

    jobs, _, _ = run(tmp_path, play)
    assert [(job.status, job.exit_code) for job in jobs] == [(FINISHED, 0), (FAILED, 1)]
    assert jobs[1].reason.startswith(f"{tmp_path}/1: cannot be written or read (No space left on device).")
    assert "Job 1: FAILED: " in capsys.readouterr().err


def test_a_job_whose_folder_cannot_be_made_fails_before_it_is_launched(tmp_path, capsys):
    (tmp_path / "0").touch()
    jobs, _, launcher = run(tmp_path, lambda: note_job(tmp_path, 1, status=FINISHED, exit_code=0))
    assert [job.status for job in jobs] == [FAILED, FINISHED]
    assert len(launcher.jobs) == 1
    assert "Job 0: FAILED: " in capsys.readouterr().err
