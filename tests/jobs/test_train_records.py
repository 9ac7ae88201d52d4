"""Training on TFRecord files: it goes on as if it had not been stopped, and says what is wrong with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slimexp.errors import UserError
from tests.jobs.processes import checkpoint_bytes
from tests.records import write_shards


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """22 records to train on and 5 to evaluate on; returns the overrides that name them."""
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))
    write_shards(tmp_path / "data", [9, 7, 6])
    write_shards(tmp_path / "data", [2, 3], name="validation")
    return [
        "dataset=tfrecord",
        "dataset.root=data",
        "dataset.file_pattern='%s-*'",
        "dataset.num_classes=5",
        "pipeline.batch_size=4",
        "trainer.log_every_steps=1",
    ]


@pytest.mark.slow
def test_a_stopped_run_on_records_goes_on_to_the_bytes_of_an_uninterrupted_one(job, records, tmp_path, capsys):
    # Stopped in the first, the second and the third epoch.
    job.train(*records, "trainer.max_steps=16", f"run_dir={tmp_path}/whole", "pipeline.queues.read.min_after_dequeue=5")
    assert "Evaluated 5 of 5 at step 16" in capsys.readouterr().out
    job.run_dir = tmp_path / "parts"
    job.uri = f"sqlite:///{tmp_path}/parts.db"
    for steps, readers in ((3, 1), (8, 8), (13, 2), (16, 3)):
        counts = [f"pipeline.readers={readers}", "pipeline.queues.read.min_after_dequeue=5"]
        job.train(*records, f"trainer.max_steps={steps}", *counts)
    assert checkpoint_bytes(tmp_path / "parts", 16) == checkpoint_bytes(tmp_path / "whole", 16)
    (run,) = job.runs()
    assert run.data.tags["dataset.train.fingerprint"]
    predictions = (tmp_path / "parts" / "predictions.csv").read_text()
    assert "validation-00001-of-00002#2" in predictions


def test_what_does_not_go_with_records(job, records):
    with pytest.raises(UserError, match=r"loss\.class_weights=balanced: the labels of records are known only as they"):
        job.train(*records, "trainer.max_steps=1", "loss.class_weights=balanced")
    with pytest.raises(UserError, match=r"file_pattern: '%s%s': must not be empty and have at most one %s|at most one"):
        job.config(*records, "dataset.file_pattern='%s%s'")


def test_a_list_has_no_minimum(job):
    with pytest.raises(UserError, match=r"min_after_dequeue=5 is refused: this dataset is a list"):
        job.train("trainer.max_steps=1", "pipeline.queues.read.min_after_dequeue=5")


def test_ctrl_c_ends_a_run_that_waits_for_a_file(photos, tmp_path):
    train_list = photos(12)
    os.mkfifo(tmp_path / "images" / "gone.jpg")
    with train_list.open("a") as file:
        file.write("images/gone.jpg 0\n")
    command = [
        *(sys.executable, "-m", "slimexp", "dataset=listfile", f"dataset.train_list={train_list}"),
        *("dataset.num_classes=3", "dataset.check_files=false", "tracking=none", "pipeline.batch_size=4"),
        *("pipeline.shuffle=false", "trainer.max_steps=50", f"run_dir={tmp_path}/run"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        # The first three batches are good, the fourth never comes.
        for line in process.stdout:
            if "step 1/" in line:
                break
        time.sleep(1)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert time.monotonic() - started < 30
    assert "Saved the checkpoint of step 3." in rest
    assert "stopped by SIGINT. To go on: the same command with run_dir=" in rest
