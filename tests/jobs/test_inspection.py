"""`job=inspect`: a checkpoint, two of them, or the model; printed, as files of the run, and with the tracker."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from slimexp.errors import UserError
from slimexp.jobs import inspection
from slimexp.training.checkpoints import Checkpoints

VALUES = {
    "LeNet/conv1/weights": np.zeros([5, 5, 3, 32], np.float32),
    "LeNet/conv1/weights/Momentum": np.zeros([5, 5, 3, 32], np.float32),
    "LeNet/conv1/biases": np.ones([32], np.float32),
    "global_step": np.int64(7),
}


def inspected(job, capsys, *overrides, tracking="tracking=none"):
    config = job.config("job=inspect", tracking, *overrides)
    Path(config.run_dir).mkdir(parents=True, exist_ok=True)
    inspection.run(config, list(overrides))
    said = capsys.readouterr().out
    run_dir = Path(config.run_dir)
    assert said.startswith((run_dir / "inspect.txt").read_text())
    with open(run_dir / "inspect.csv", newline="") as file:
        return said, {row["variable"]: row for row in csv.DictReader(file)}


def test_a_checkpoint_is_listed_and_recorded(job, capsys):
    Checkpoints(job.folder / "saved").save(7, VALUES)
    said, rows = inspected(job, capsys, "inspect.checkpoint=saved", tracking="tracking=mlflow")
    assert "LeNet/conv1/weights  [5, 5, 3, 32]  float32   2,400\n" in said
    assert "2 variables, 2,432 values\nand 2 of its training, 2,401 values (Momentum, global_step)" in said
    assert rows["global_step"]["dtype"] == "int64"
    assert rows["LeNet/conv1/weights/Momentum"]["training_state"] == "1"
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    assert run.info.run_name.startswith("inspect ")
    assert {path.name for path in Path(run.info.artifact_uri).iterdir()} >= {"inspect.csv", "inspect.txt"}


def test_two_checkpoints_are_compared(job, capsys):
    Checkpoints(job.folder / "a").save(7, VALUES)
    changed = {**VALUES, "LeNet/conv1/biases": np.full([32], 1.5, np.float32), "extra": np.float32(1)}
    changed["LeNet/conv1/weights"] = np.zeros([3, 3, 3, 32], np.float32)
    Checkpoints(job.folder / "b").save(7, changed)
    said, rows = inspected(job, capsys, "inspect.checkpoint=a", "inspect.other=b")
    assert "only in the first: 0\nonly in the second: 1\n  extra  [] float32\nshape or type differs: 1\n" in said
    assert "  LeNet/conv1/weights  [5, 5, 3, 32] float32  [3, 3, 3, 32] float32\n" in said
    assert "value differs: 1\n  LeNet/conv1/biases  [32] float32  by up to 0.5\nequal: 2\n" in said
    assert rows["LeNet/conv1/biases"]["max_abs_difference"] == "0.5"
    assert rows["global_step"]["status"] == "equal"


def test_checkpoints_that_differ_by_their_names_get_a_map(job, capsys):
    Checkpoints(job.folder / "a").save(7, VALUES)
    Checkpoints(job.folder / "b").save(7, {f"model/{name}": value for name, value in VALUES.items()})
    said, _ = inspected(job, capsys, "inspect.checkpoint=a", "inspect.other=b")
    assert """would find one in the second with\n  'restore.name_map=[{pattern: "^", replace: "model/"}]'""" in said


def test_the_model_is_shown_layer_by_layer(job, capsys):
    said, rows = inspected(job, capsys, "restore.trainable_scopes=heads")
    assert "lenet, images of 28 x 28, 10 classes\n" in said
    assert "LeNet/conv1  5 x 5 x 3 x 32       2,432    3.76  frozen\n" in said
    assert "3,276,234 values, 12.5 MiB: 3,265,984 frozen, 10,250 trained\n" in said
    assert "0.030 GFLOPs an image" in said
    assert "heads: LeNet/fc4\n" in said
    assert rows["LeNet/fc4/weights"]["role"] == "trained"
    assert int(rows["LeNet/conv1/weights"]["flops"]) == 2 * 28 * 28 * 32 * 5 * 5 * 3


def test_with_a_checkpoint_to_restore_it_says_what_training_would_do(job, capsys):
    Checkpoints(job.folder / "a").save(7, VALUES)
    said, _ = inspected(job, capsys, "restore=finetune", "restore.checkpoint=a")
    assert "2 of 6 variables restored (33 %)" in said
    assert "Training would stop with:\nrestore.checkpoint=" in said
    assert (job.run_dir / "restore.csv").is_file()
    said, _ = inspected(job, capsys, "restore=finetune", "restore.checkpoint=a", "restore.ignore_missing=true")
    assert "Training would stop" not in said


def test_what_cannot_be_read_is_named_by_its_key(job, capsys):
    Checkpoints(job.folder / "a").save(7, VALUES)
    with pytest.raises(UserError, match=r"inspect\.other=.*/b: there is no such checkpoint"):
        inspected(job, capsys, "inspect.checkpoint=a", "inspect.other=b")
    with pytest.raises(UserError, match=r"inspect\.other=b: is compared with inspect\.checkpoint; set that as well"):
        job.config("inspect.other=b")


def test_the_record_of_a_training_is_not_replaced(job, capsys):
    job.run_dir.mkdir()
    (job.run_dir / "run.json").write_text('{"params": {"job.name": "train"}}')
    with pytest.raises(UserError, match=r"holds a run of job=train, whose record this one would replace"):
        inspected(job, capsys)
