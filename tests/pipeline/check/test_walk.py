"""Records and repeated files; the list of odd files is in test_fault_list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slimexp.dataset.split import Split
from slimexp.pipeline.check import walk as walk_module
from slimexp.pipeline.check.examine import Examiner, Finding
from slimexp.pipeline.check.report import SplitReport
from slimexp.pipeline.check.walk import ShardFinding, walk
from slimexp.pipeline.native import ops
from tests.pipeline.test_damaged_shards import record_start
from tests.pipeline.test_records import COUNTS, load
from tests.records import damage, example, picture, write_shards

EXAMINER = Examiner(decoder="tensorflow", threads=2)


def report_of(split: Any, num_classes: int = 5) -> SplitReport:
    report = SplitReport(split, num_classes)
    for finding in walk(split, EXAMINER, threads=2, readers=2):
        report.add(finding)
    return report


def test_each_record_is_examined_once_and_its_label_read(tmp_path: Path) -> None:
    write_shards(tmp_path, COUNTS)
    report = report_of(load(tmp_path))
    assert (report.num_done, report.num_faults, report.is_sound.all()) == (21, 0, True)
    assert report.labels.tolist() == [number % 5 for number in range(21)]
    assert report.num_bytes.tolist() == [len(picture(number)) for number in range(21)]
    assert report.formats == {"JPEG": 21}
    assert report.known_sides[:5].tolist() == [[40, 48], [50, 30], [47, 33], [64, 64], [24, 20]]


def test_all_faults_of_records_are_listed(tmp_path: Path) -> None:
    replace = {
        2: example(image__encoded=b"hello", image__class__label=1),
        5: example(image__encoded=picture(5), image__class__label=5),
        9: example(image__encoded=picture(9)),
    }
    paths = write_shards(tmp_path, COUNTS, replace=replace)
    split = load(tmp_path)
    damage(paths[1], record_start(paths[1], 6) + 200)
    report = report_of(split)
    assert report.num_done == 21
    assert np.flatnonzero(~report.is_sound).tolist() == [2, 5, 9, 13, 14, 15]
    rows = [(row.path, row.origin, row.num_examples) for row in report.faults]
    assert rows == [
        (f"{paths[0]}#2", "record 2", 1),
        (f"{paths[0]}#5", "record 5", 1),
        (f"{paths[1]}#2", "record 2", 1),
        (str(paths[1]), f"record 6, byte {record_start(paths[1], 6)}", 3),
    ]
    reasons = [row.reason for row in report.faults]
    assert "begins with b'hello'" in reasons[0]
    assert reasons[1] == "the label is 5; one whole number in 0..4 is allowed (5 classes)"
    assert reasons[2].startswith("dataset.label_key=image/class/label is not there; its keys and types are image/")
    assert reasons[3].endswith("(6 records could be read before it, 3 are lost)")
    assert report.num_damaged_shards == 1
    assert report.has_label.tolist() == [n not in (5, 9, 13, 14, 15) for n in range(21)]


@pytest.mark.parametrize(
    ("form", "stored", "expected"),
    [("indices", [1, 2], [-1, 1, 1]), ("binary", [0, 1, 0], [-1, 1, -1]), ("signed", [0.0, 1.0, -1.0], [0, 1, -1])],
    ids=["indices", "binary", "signed"],
)
def test_several_labels(tmp_path: Path, form: str, stored: list[Any], expected: list[int]) -> None:
    write_shards(tmp_path, [2], label=lambda number: stored)
    report = report_of(load(tmp_path, num_classes=3, task="multi", label_form=form), 3)
    assert report.labels.tolist() == [expected] * 2


def test_a_shard_that_is_gone_or_shorter(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, COUNTS)
    split = load(tmp_path)
    paths[0].unlink()
    paths[2].write_bytes(paths[2].read_bytes()[: record_start(paths[2], 3)])
    found = [finding for finding in walk(split, EXAMINER, threads=1, readers=3) if isinstance(finding, ShardFinding)]
    found.sort(key=lambda finding: finding.shard)
    assert [(f.shard, f.num_read, f.offset) for f in found] == [(0, 0, None), (2, 3, None)]
    assert "the file cannot be opened: No such file or directory" in found[0].reason
    assert found[1].reason == f"{paths[2]} has 3 records, where 5 were counted."


def test_a_file_that_is_named_twice_is_read_once(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    read = walk_module.read_image_file
    monkeypatch.setattr(walk_module, "read_image_file", lambda path: calls.append(path) or read(path))
    paths = [split.paths[n] for n in (0, 1, 0, 2, 1, 0)] + [b"/none.jpg"] * 2
    found = list(walk(Split("train", paths, np.zeros(8, np.int32), "list"), EXAMINER, threads=2, readers=1))
    assert len(calls) == 4
    assert sorted(f.index for f in found if isinstance(f, Finding)) == list(range(8))
    assert sorted(f.index for f in found if isinstance(f, Finding) and f.fault) == [6, 7]


class _StopNowError(Exception):
    pass


def test_it_ends_at_once_when_told_to_and_leaves_no_thread(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "read_image_file", lambda path: time.sleep(0.3) or b"")
    started = time.monotonic()

    def check_stop() -> None:
        if time.monotonic() - started > 0.5:
            raise _StopNowError

    with pytest.raises(_StopNowError):
        list(walk(split, EXAMINER, threads=2, readers=1, check_stop=check_stop))
    assert time.monotonic() - started < 3
    for thread in threading.enumerate():
        if thread.name == "slimexp check":
            thread.join(5)
            assert not thread.is_alive()


def test_a_fault_of_ours_surfaces(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(walk_module, "read_image_file", fail)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        list(walk(split, EXAMINER, threads=2, readers=1))


@pytest.mark.skipif(not ops.available(), reason="The native op is not built.")
def test_damage_within_the_pixel_data_is_remarked_on(photo: np.ndarray, encode: Callable) -> None:
    examiner = Examiner(decoder="native", threads=1)
    contents = encode(photo, quality=90)
    assert not examiner.examine(0, contents).is_damaged
    # An end of a segment in the middle of the pixels: the decoder goes on behind it.
    for at in (20_000, len(contents) - 400):
        changed = contents[:at] + b"\xff\xd3" + contents[at + 2 :]
        finding = examiner.examine(0, changed)
        assert (finding.fault, finding.is_damaged) == (None, True)
        assert not EXAMINER.examine(0, changed).is_damaged
    assert not EXAMINER.finds_damage
