"""Sweeps of real training jobs against a real database."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweep.launching import Launched, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = ["trainer=debug", "trainer.max_steps=4", "trainer.eval_every_steps=0", "pipeline.batch_size=8"]


def launch(folder: Path, *overrides: str) -> Launched:
    command = [sys.executable, "-m", "slimexp", "-m", *SMALL, *overrides]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=800)
    return Launched(folder, done.returncode, done.stdout, done.stderr)


def statuses(folder: Path) -> dict[str, str]:
    """Returns the last status of each name in the store."""
    with sqlite3.connect(folder / "mlflow.db") as store:
        found = dict(store.execute("SELECT name, status FROM runs ORDER BY start_time"))
    store.close()
    return found


def test_three_of_six_finish_and_the_same_command_runs_the_other_three(tmp_path):
    shutil.copy(Path(__file__).with_name("wild_optimizer.py"), tmp_path)
    overrides = ["optimizer=sgd", "optimizer._target_=wild_optimizer.make"]
    overrides += ["+optimizer.how=a,blow_up,exit,b,kill,c"]
    first = launch(tmp_path, *overrides)
    assert first.statuses == ["FINISHED", "FAILED", "FAILED", "FINISHED", "KILLED", "FINISHED"]
    assert first.returncode == 1
    reasons = [job["reason"] for job in first.record["jobs"]]
    assert "is not a number" in reasons[1] or "nan" in reasons[1].lower()
    assert "sys.exit(0)" in reasons[2]
    assert "signal 9" in reasons[4]
    assert statuses(tmp_path) == {
        "sweep lenet how": "FAILED",
        **{f"lenet how={how}": "FINISHED" for how in "abc"},
        "lenet how=blow_up": "FAILED",
        "lenet how=exit": "FAILED",
        "lenet how=kill": "KILLED",
    }
    rows = (first.dir / "sweep.csv").read_text().splitlines()
    assert len(rows) == 7
    assert "Traceback" in (first.dir / "2" / "slimexp.log").read_text()

    (tmp_path / "mended").touch()
    before = {number: (first.dir / str(number) / "run.json").stat().st_mtime_ns for number in (0, 3, 5)}
    second = launch(tmp_path, *overrides)
    assert second.dir == first.dir
    assert second.statuses == ["FINISHED"] * 6
    assert second.returncode == 0
    assert {number: (first.dir / str(number) / "run.json").stat().st_mtime_ns for number in before} == before
    assert set(statuses(tmp_path).values()) == {"FINISHED"}


def test_six_at_once_on_a_database_that_was_not_there(tmp_path):
    done = launch(tmp_path, "seed=range(6)", "hydra/launcher=joblib", "hydra.launcher.n_jobs=6")
    assert done.returncode == 0, done.stderr
    assert done.statuses == ["FINISHED"] * 6
    assert list(statuses(tmp_path).values()) == ["FINISHED"] * 7
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        values = store.execute("SELECT value FROM latest_metrics WHERE key = 'seed' ORDER BY value").fetchall()
    store.close()
    assert values == [(float(seed),) for seed in range(6)]
    assert os.path.exists(done.dir / "sweep_groups.csv")
