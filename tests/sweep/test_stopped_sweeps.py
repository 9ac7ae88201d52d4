"""Sweeps that are stopped, killed, or out of disk space, as real processes, with quick jobs of the tests' own."""

from __future__ import annotations

import re
import signal
import sqlite3

import pytest

from tests.sweep.launching import launch, launch_and_signal, put_gpus, starts, wait_for


@pytest.mark.parametrize(
    ("number", "group", "code"),
    [pytest.param(signal.SIGINT, True, 130, marks=pytest.mark.slow), (signal.SIGTERM, False, 143)],
)
def test_a_signal_lets_the_running_job_save_and_leaves_the_rest(tmp_path, number, group, code):
    stopped = launch_and_signal(tmp_path, "seed=8,2", number=number, group=group)
    assert stopped.returncode == code
    assert stopped.statuses == ["KILLED", "NOT_RUN"]
    assert stopped.record["jobs"][0]["reason"] == f"stopped by {signal.Signals(number).name}"
    assert stopped.record["status"] == "KILLED"
    assert (stopped.dir / "0" / "saved").exists()
    assert not (stopped.dir / "1").exists()
    assert "slimexp: stopping:" in stopped.stderr


def test_a_killed_sweep_takes_its_job_along_and_goes_on_later(tmp_path):
    killed = launch_and_signal(tmp_path, "seed=8,1", number=signal.SIGKILL, group=False)
    assert killed.returncode == -signal.SIGKILL
    assert killed.statuses == ["RUNNING", "NOT_RUN"]
    wait_for((killed.dir / "0" / "saved").exists)
    assert launch(tmp_path, "seed=8,1").statuses == ["FINISHED", "FINISHED"]
    assert [starts(tmp_path, number) for number in range(2)] == [2, 1]


def test_side_by_side_each_job_has_a_gpu_and_its_number_on_each_line_and_ctrl_c_stops_all(tmp_path, monkeypatch):
    put_gpus(tmp_path, 2, monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # Where the locks are.
    joblib = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    stopped = launch_and_signal(tmp_path, "seed=8,8,1", *joblib, jobs=2, number=signal.SIGINT, group=True)
    assert stopped.returncode == 130
    assert stopped.statuses == ["KILLED", "KILLED", "NOT_RUN"]
    assert "[1] seed 8 at work" in stopped.stdout
    texts = [(stopped.dir / str(number) / "starts.txt").read_text() for number in range(2)]
    assert sorted(text.split(" GPU ")[1] for text in texts) == ["0\n", "1\n"]


@pytest.mark.parametrize("tracking", ["none", pytest.param("mlflow", marks=pytest.mark.slow)])
def test_a_disk_that_takes_nothing_more_ends_neither_the_sweep_nor_its_run(tmp_path, tracking):
    done = launch(tmp_path, "seed=9,1,10,2", tracking=tracking)
    assert done.returncode == 1
    assert re.findall(r"(?m)^(\d)  +\d+  (FINISHED|FAILED)", done.stdout) == [
        *(("0", "FINISHED"), ("1", "FAILED"), ("2", "FAILED"), ("3", "FINISHED")),
    ]
    assert "sweep.json: cannot be written (Is a directory). Make room" in done.stderr
    assert "/2: cannot be written or read (No space left on device). Make room" in done.stderr
    assert "fault of slimexp" not in done.stderr
    if tracking == "mlflow":
        with sqlite3.connect(tmp_path / "mlflow.db") as database:
            statuses = sorted(status for (status,) in database.execute("SELECT status FROM runs"))
        assert statuses == [*["FAILED"] * 2, *["FINISHED"] * 2]
