"""A run says what its network's outputs are called, and is not taken for a network of other classes."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from slimexp.dataset.split import Dataset, Split
from slimexp.errors import UserError
from slimexp.jobs.classes import CLASSES_FILE, Classes, read_classes, record_classes, refuse_other_classes
from slimexp.jobs.of_run import RESOLVED_FILE


def dataset(*names: str, task: str = "single") -> Dataset:
    return Dataset("photos", task, names, Split("train", [], np.zeros([0], np.int32), "train.txt"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was trained for three classes."""
    record_classes(tmp_path, dataset("ant", "0:bee", "猫"), mock.Mock())
    (tmp_path / RESOLVED_FILE).parent.mkdir()
    (tmp_path / RESOLVED_FILE).write_text("task: single\n")
    return tmp_path


def test_a_run_keeps_names_and_task(run: Path) -> None:
    tracker = mock.Mock()
    record_classes(run, dataset("ant", "0:bee", "猫"), tracker)
    tracker.log_artifact.assert_called_once_with(run / CLASSES_FILE)
    assert (run / CLASSES_FILE).read_text(encoding="utf-8") == "0:ant\n1:0:bee\n2:猫\n"
    assert read_classes(run) == Classes(("ant", "0:bee", "猫"), "single")
    assert sorted(path.name for path in run.iterdir()) == [".hydra", CLASSES_FILE]


def test_names_that_cannot_be_kept_are_not(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        record_classes(run, dataset("a\nb"), mock.Mock())
    assert "labels.txt is not written, so that job=predict and job=export will need the dataset" in caplog.text
    assert read_classes(run) is None  # Nor are those of an earlier start.


def test_runs_of_earlier_versions_have_no_record(run: Path, tmp_path: Path) -> None:
    (run / RESOLVED_FILE).write_text("seed: 1\n")
    assert read_classes(run) is None
    refuse_other_classes(dataset("x"), run, asked="run_dir=r")
    refuse_other_classes(dataset("x"), None, asked="run_dir=r")


@pytest.mark.parametrize(
    ("names", "task", "difference"),
    [
        (["ant", "bee", "猫"], "single", "class 1 is '0:bee' to it, and 'bee' there"),
        (["ant", "0:bee", "猫"], "multi", "it is a single-label network, and the examples are multi-label"),
        (["ant", "0:bee", "猫", "dog"], "single", "it knows 3 classes, and there are 4"),
    ],
    ids=["name", "task", "number"],
)
def test_another_dataset_is_refused(run: Path, names: list[str], task: str, difference: str) -> None:
    refuse_other_classes(dataset("ant", "0:bee", "猫"), run, asked="run_dir=r")
    message = (
        rf"^run_dir=r: this network was trained for other classes than dataset photos has: {difference}\. Take the"
    )
    with pytest.raises(UserError, match=message):
        refuse_other_classes(dataset(*names, task=task), run, asked="run_dir=r")
