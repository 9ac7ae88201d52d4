from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from slimexp.evaluation.metrics import Accumulator
from slimexp.evaluation.tables import replace_file, write_confusion_csv, write_csv, write_predictions_csv


def read(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "per class.csv"
    write_csv(path, [{"class": 'é中, "x"\ny', "f1": 1 / 3, "n": 7}, {"class": "b", "f1": None, "n": 0}])
    assert read(path) == [["class", "f1", "n"], ['é中, "x"\ny', "0.333333", "7"], ["b", "", "0"]]
    write_csv(path, [])
    assert read(path) == [[]]


def test_confusion(tmp_path: Path) -> None:
    write_confusion_csv(tmp_path / "c.csv", np.array([[5, 1], [0, 2]]), ["a", "b"])
    assert read(tmp_path / "c.csv") == [["class \\ predicted", "a", "b"], ["a", "5", "1"], ["b", "0", "2"]]


def test_predictions(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    single = Accumulator("single", ("a", "b"), top_k=5)
    single.update(np.log([[0.25, 0.75], [0.5, 0.5]]), np.array([0, 0]), np.ones(2, bool), np.array([1, 0]))
    write_predictions_csv(path, single.predictions(), lambda index: f"é {index}.jpg")
    assert read(path) == [
        ["path", "truth", "correct", "class_1", "score_1", "class_2", "score_2"],
        ["é 0.jpg", "a", "1", "a", "0.5", "b", "0.5"],
        ["é 1.jpg", "a", "0", "b", "0.75", "a", "0.25"],
    ]
    multi = Accumulator("multi", ("a", "b", "c"), top_k=1)
    multi.update(np.array([[0.0, -1.0, -2.0]]), np.array([[1, 1, 0]], np.int8), np.ones(1, bool), np.array([3]))
    write_predictions_csv(path, multi.predictions(), str)
    assert read(path) == [["path", "truth", "dont_care", "class_1", "score_1"], ["3", "a;b", "c", "a", "0.5"]]
    write_predictions_csv(path, [], str)
    assert read(path) == [["path", "truth", "correct"]]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old", encoding="utf-8")

    def fail(temporary: Path) -> None:
        temporary.write_text("half", encoding="utf-8")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_file(path, fail)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
