from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slimexp.dataset import Dataset, class_counts, describe, fingerprint, load_tfrecord, tfrecord
from slimexp.dataset.record_split import LabelFormat
from slimexp.errors import UserError
from tests.records import example, write_shards


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))


def load(folder: Path, **options: Any) -> Dataset:
    return load_tfrecord(**{"root": str(folder), "file_pattern": "train-*", "num_classes": 5, **options})


def test_finds_and_counts_both_splits(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "data", [2, 0, 3])
    write_shards(tmp_path / "data", [1], name="validation")
    data = load(tmp_path / "data", file_pattern="%s-*")
    assert (data.task, data.num_classes, len(data.train), len(data.eval)) == ("single", 5, 5, 1)
    assert data.train.shards == tuple(os.fsencode(shard) for shard in shards)
    assert data.train.counts.tolist() == [2, 0, 3]
    assert [data.train.path(index) for index in (1, 2)] == [f"{shards[0]}#1", f"{shards[2]}#0"]
    assert data.train.origin(4) == "record 2"
    text = describe(data)
    assert "5 train images, 1 eval images, 5 classes" in text
    assert "The records of 3 shards of" in text
    assert "labels are checked as they are read" in text


def test_eval_pattern_and_none(tmp_path: Path) -> None:
    write_shards(tmp_path, [2])
    write_shards(tmp_path, [1], name="held-out")
    assert load(tmp_path).eval is None
    assert load(tmp_path, file_pattern="%s-*").eval is None
    assert len(load(tmp_path, eval_pattern="held-*").eval) == 1
    with pytest.raises(UserError, match=r"eval_pattern=no-\*: no file matches .*'held-out-00000-of-00001', 'train"):
        load(tmp_path, eval_pattern="no-*")
    with pytest.raises(UserError, match=r"train-00000-of-00001 is in .* and in .*judged by what it"):
        load(tmp_path, eval_pattern="*")


def test_counts_are_remembered_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def count(path: bytes) -> int:
        counted.append(os.path.basename(path))
        return original(path)

    original = tfrecord.count_records
    monkeypatch.setattr(tfrecord, "count_records", count)
    write_shards(tmp_path / "data", [1, 2])
    first = fingerprint(load(tmp_path / "data").train)
    assert len(counted) == 2
    assert fingerprint(load(tmp_path / "data").train) == first
    assert len(counted) == 2
    (path,) = write_shards(tmp_path / "other", [4])
    path.rename(tmp_path / "data" / "train-00001-of-00002")
    data = load(tmp_path / "data")
    assert data.train.counts.tolist() == [1, 4]
    assert len(counted) == 3
    assert fingerprint(data.train) != first
    # Where nothing can be written down, they are counted each time.
    (tmp_path / "file").touch()
    assert len(load(tmp_path / "data", cache_dir=str(tmp_path / "file")).train) == 5


def test_class_names(tmp_path: Path) -> None:
    write_shards(tmp_path, [1])
    with pytest.raises(UserError, match=r"num_classes is not set, and nothing else tells it: .*put labels\.txt"):
        load(tmp_path, num_classes=None)
    (tmp_path / "labels.txt").write_text("0:background\n1:daisy\n2:tulip\n")
    assert load(tmp_path, num_classes=None, labels_offset=1).class_names == ("daisy", "tulip")
    assert load(tmp_path, num_classes=None, class_names=["a", "b"]).class_names == ("a", "b")
    assert load(tmp_path, num_classes=2).class_names == ("0", "1")
    with pytest.raises(UserError, match=r"num_classes=3, but dataset\.class_names has 2 names"):
        load(tmp_path, num_classes=3, class_names=["a", "b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "both"}, r"dataset\.task='both' must be single"),
        ({"label_form": "x"}, r"dataset\.label_form='x' must be one of indices, binary, signed"),
        ({"file_pattern": "x*"}, r"dataset\.file_pattern=x\*: no file matches .*; .* has 'train-00000-of-00001'"),
        ({"num_classes": 0}, r"num_classes=0 must be 1 or more"),
        ({"root": "/nowhere"}, r"dataset\.root=/nowhere: there is no such folder"),
        (
            {"label_key": "label"},
            (
                r"(?s)train-00000-of-00001: record 0 has not the features.*dataset\.label_key=label should be int64: "
                r"it is not there.*  image/class/label: int64\n  image/encoded: bytes.*Set dataset\.label_key to"
            ),
        ),
        (
            {"image_key": "image/class/label"},
            r"dataset\.image_key=image/class/label should be bytes: it is int64",
        ),
        (
            {"task": "multi", "label_key": "image/format", "label_form": "binary"},
            r"dataset\.label_key=image/format should be int64 or float: it is bytes",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write_shards(tmp_path, [1])
    with pytest.raises(UserError, match=message):
        load(tmp_path, **options)


def test_damaged_and_empty_shards(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [3, 2, 2])
    shards[1].write_bytes(shards[1].read_bytes()[:-10])
    message = r"(?s)1 of the 3 shards of .*train-\* cannot be read:\n  .*train-00001-of-00003: the file is cut short"
    with pytest.raises(UserError, match=message):
        load(tmp_path)
    for shard in shards:
        shard.write_bytes(b"")
    with pytest.raises(UserError, match=r"train-\*: 3 shards without a record"):
        load(tmp_path)


def test_records_that_are_no_examples(tmp_path: Path) -> None:
    write_shards(tmp_path, [1], replace={0: b"\xff\xff\xff"})
    with pytest.raises(UserError, match=r"record 0 is no tf\.train\.Example"):
        load(tmp_path)


def test_labels_cannot_be_counted(tmp_path: Path) -> None:
    write_shards(tmp_path, [1])
    with pytest.raises(UserError, match="the labels of records are known only as they are read"):
        class_counts(load(tmp_path).train)


def test_kinds_of_features() -> None:
    record = example(a=1, b=0.5, c=b"x", d=[])
    assert tfrecord.kinds_of(record) == {"a": "int64", "b": "float", "c": "bytes", "d": "int64"}


@pytest.mark.parametrize(
    ("form", "good", "bad", "rule"),
    [
        ("class", [[1], [3]], [[0], [4], [], [1, 2]], "one whole number in 1..3"),
        ("indices", [[], [1, 3], [2, 2]], [[0], [1, 4]], "whole numbers in 1..3"),
        ("binary", [[0, 1, 1]], [[0, 1], [0, 1, 2], [0, -1, 1], [0, 0.5, 1]], "3 numbers out of 0 and 1"),
        ("signed", [[0, -1, 1]], [[], [0, 1, 2]], "3 numbers out of -1, 0 and 1"),
    ],
)
def test_which_labels_are_allowed(form: str, good: list[Any], bad: list[Any], rule: str) -> None:
    label = LabelFormat("key", form, 3, offset=1)
    assert label.rule == rule
    assert all(label.fits(values) for values in good)
    assert not any(label.fits(values) for values in bad)
