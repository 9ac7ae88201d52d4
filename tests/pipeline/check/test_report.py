"""What is added up of findings, and duplicates. No image is decoded here."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from slimexp.dataset.split import Dataset, Split
from slimexp.pipeline.check.duplicates import find_duplicates, label_text
from slimexp.pipeline.check.examine import Finding
from slimexp.pipeline.check.kinds import Kind, expected_format
from slimexp.pipeline.check.report import SplitReport, class_rows, class_warnings, write_table
from slimexp.pipeline.diagnose import Fault

NAMES = ("cat", "dog", "bird")


def report_of(name: str, pictures: list[bytes], labels: np.ndarray, faults: tuple[int, ...] = ()) -> SplitReport:
    paths = [f"/{name}/{number}.jpg".encode() for number in range(len(pictures))]
    report = SplitReport(Split(name, paths, labels, f"{name}.txt", np.arange(1, len(paths) + 1)), len(NAMES))
    for index, picture in enumerate(pictures):
        fault = Fault("bad") if index in faults else None
        digest = picture.ljust(16, b"\0")
        report.add(Finding(index, fault, len(picture), digest, Kind("JPEG", "colour", 30, 40)))
    return report


def test_duplicates_within_and_across_splits() -> None:
    train = report_of("train", [b"a", b"b", b"a", b"c", b"d"], np.array([0, 1, 0, 2, 0], np.int32), faults=(3,))
    held_out = report_of("eval", [b"b", b"e", b"c", b"b"], np.array([2, 1, 2, 1], np.int32))
    found = find_duplicates([train, held_out], NAMES)
    assert (found.num_repeats, found.num_leaks, found.num_conflicts) == (4, 3, 1)
    rows = [
        (row["group"], row["origin"], row["label"], row["across_splits"], row["labels_differ"]) for row in found.rows
    ]
    assert rows == [
        (1, "train.txt:1", "cat", 0, 0),
        (1, "train.txt:3", "cat", 0, 0),
        (2, "train.txt:2", "dog", 1, 1),
        (2, "eval.txt:1", "bird", 1, 1),
        (2, "eval.txt:4", "dog", 1, 1),
        (3, "train.txt:4", "bird", 1, 0),
        (3, "eval.txt:3", "bird", 1, 0),
    ]
    assert find_duplicates([report_of("train", [b"a", b"b"], np.zeros(2, np.int32))], NAMES).rows == []


def test_labels_in_words() -> None:
    report = report_of("train", [b"a", b"b"], np.array([[1, 0, -1], [-1, -1, -1]], np.int8))
    assert label_text(report, 0, NAMES) == "cat;dog?"
    assert label_text(report, 1, NAMES) == ""


def test_class_counts_and_what_they_lack() -> None:
    train = report_of("train", [b"a", b"b", b"c"], np.array([0, 1, 1], np.int32), faults=(2,))
    held_out = report_of("eval", [b"d"], np.array([0], np.int32))
    data = Dataset("pets", "single", NAMES, train.split, held_out.split)
    rows = class_rows(data, [train, held_out])
    assert rows == [
        {"class": "cat", "train": 1, "train_faults": 0, "eval": 1, "eval_faults": 0},
        {"class": "dog", "train": 2, "train_faults": 1, "eval": 0, "eval_faults": 0},
        {"class": "bird", "train": 0, "train_faults": 0, "eval": 0, "eval_faults": 0},
    ]
    assert class_warnings(data, rows) == [
        "1 class is without an example in train: 'bird'.",
        "2 classes are without an example in eval: 'dog', 'bird'.",
    ]


def test_label_counts_and_what_they_lack() -> None:
    train = report_of("train", [b"a", b"b"], np.array([[1, 0, -1], [1, 0, 1]], np.int8))
    data = Dataset("pets", "multi", NAMES, train.split)
    rows = class_rows(data, [train])
    assert rows[0] == {"class": "cat", "train_positive": 2, "train_negative": 0, "train_dont_care": 0}
    assert rows[1] == {"class": "dog", "train_positive": 0, "train_negative": 0, "train_dont_care": 2}
    assert class_warnings(data, rows) == [
        "1 label is never positive in train: 'dog'.",
        "2 labels are never negative in train: 'cat', 'dog'.",
    ]


def test_remarks() -> None:
    kinds = [
        Kind("PNG", "colour", 30, 40),
        Kind("JPEG", "colour", 7, 7),
        Kind("JPEG", "colour", 5000, 5000),
        Kind("JPEG", "colour", 20, 200, orientation=6),
        Kind("JPEG", "colour", 30, 40),
    ]
    split = Split("train", [b"/%d.jpg" % n for n in range(5)], np.zeros(5, np.int32), "list", None)
    report = SplitReport(split, 3)
    for index in (4, 2, 0, 1, 3):
        report.add(Finding(index, None, 9, bytes(16), kinds[index], is_damaged=index == 4))
    assert [(row.path, row.kind, row.remark) for row in report.remarks] == [
        ("/0.jpg", "extension", "it is a PNG, and its name ends in .jpg"),
        ("/1.jpg", "tiny", "7 x 7 pixels"),
        ("/2.jpg", "large", "5000 x 5000 pixels"),
        ("/3.jpg", "narrow", "200 x 20 pixels"),
        ("/4.jpg", "damaged", "its pixel data are damaged, so that a part may look wrong"),
    ]
    assert report.num_turned == 1
    assert [expected_format(name) for name in ("a.JPG", "a.b.tif", "a", "a.txt")] == ["JPEG", "TIFF", None, None]


def test_tables_take_any_name(tmp_path: Path) -> None:
    rows = [
        {"path": 'a,b\n"c" é中.jpg', "reason": "x"},
        {"path": b"\xff.jpg".decode("utf-8", "surrogateescape"), "reason": ""},
    ]
    write_table(tmp_path / "a" / "table.csv", ("path", "reason"), rows)
    with open(tmp_path / "a" / "table.csv", encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert read == [rows[0], {"path": "\\udcff.jpg", "reason": ""}]
    write_table(tmp_path / "none.csv", ("path", "reason"), [])
    assert (tmp_path / "none.csv").read_text() == "path,reason\n"
