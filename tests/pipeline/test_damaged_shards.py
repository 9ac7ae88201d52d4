"""Shards that are damaged or cut short while bad images are skipped: what lies behind the damage is left out."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset.record_file import RecordDamage, locate_damage
from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.errors import UserError
from slimexp.pipeline import Feed, records
from slimexp.pipeline.record_faults import DamagedShard, explain_shards, find_damaged_shards
from slimexp.pipeline.skipping import SkippedImages
from tests.pipeline.test_records import COUNTS, arguments, load
from tests.records import damage, write_shards


def record_start(path: Path, number: int) -> int:
    """Returns the byte at which a record begins."""
    at = 0
    content = path.read_bytes()
    for _ in range(number):
        at += 16 + int.from_bytes(content[at : at + 8], "little")
    return at


def taken(split: RecordSplit, skipped: SkippedImages | None, count: int, start: int = 0, **values: Any) -> list[Any]:
    with Feed(split, **arguments(**values), skipped=skipped, start_position=4 * start) as feed:
        return [{key: value.numpy() for key, value in next(feed).items()} for _ in range(count)]


def skipping(split: RecordSplit, folder: Path, max_fraction: float = 0.5) -> SkippedImages:
    return SkippedImages(split, path=folder / "skipped.csv", max_fraction=max_fraction)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The stream's batches without damage."""
    folder = tmp_path_factory.mktemp("sound")
    write_shards(folder, COUNTS)
    return taken(load(folder), None, 9, read_min_after_dequeue=3)


@pytest.mark.parametrize(
    "where", ["data", *(pytest.param(where, marks=pytest.mark.slow) for where in ("length", "end"))]
)
def test_the_rest_of_a_shard_is_left_out_of_every_epoch(
    tmp_path: Path, sound: list[Any], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    paths = write_shards(tmp_path, COUNTS)
    split = load(tmp_path)
    shard = paths[1]
    if where == "end":
        shard.write_bytes(shard.read_bytes()[:-10])
        lost = [15]
    else:
        damage(shard, record_start(shard, 4) + (200 if where == "data" else 9))
        lost = [11, 12, 13, 14, 15]
    found = taken(split, skipping(split, tmp_path), 9, read_min_after_dequeue=3)
    for expected, batch in zip(sound, found, strict=True):
        is_lost = np.isin(expected["index"], lost)
        assert (batch["valid"] == ~is_lost).all()
        for key in ("index", "image", "label"):
            assert (batch[key][~is_lost] == expected[key][~is_lost]).all(), key
    with open(tmp_path / "skipped.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [f"{shard}#{number - 7}" for number in lost]
    assert all(row["reason"].startswith("it lies behind damage in its shard: ") for row in rows)
    count = "1 record" if len(lost) == 1 else f"{len(lost)} records"
    assert caplog.text.count("Skipped") == 1
    assert f"Skipped the rest of a damaged shard, {count}: {shard}: " in caplog.text
    # Gone on with in the first or in the second epoch, with another number of readers.
    start, readers = (2, 1) if where == "data" else (7, 3)
    rest = taken(split, skipping(split, tmp_path), 9 - start, start, read_min_after_dequeue=3, readers=readers)
    for expected, batch in zip(found[start:], rest, strict=True):
        assert all((batch[key] == expected[key]).all() for key in expected)


def test_a_shard_that_was_cut_short_before_is_let_through_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = write_shards(tmp_path, COUNTS)
    paths[0].write_bytes(b"junk" * 20)
    paths[2].write_bytes(paths[2].read_bytes()[: record_start(paths[2], 3) + 50])
    for _ in range(2):  # What is guessed is not remembered.
        with pytest.raises(UserError, match=r"2 of the 3 shards of .* cannot be read:"):
            load(tmp_path)
        with caplog.at_level(logging.WARNING):
            split = load(tmp_path, allow_damaged_shards=True)
    assert split.counts.tolist() == [1, 9, 4]
    assert "About 1 record from there on cannot be read." in caplog.text
    skipped = skipping(split, tmp_path)
    found = taken(split, skipped, 4, is_training=False, shuffle=False)
    valid = np.concatenate([batch["index"][batch["valid"]] for batch in found])
    assert sorted(valid) == [*range(1, 10), 10, 11, 12]
    assert np.flatnonzero(skipped.mask).tolist() == [0, 13]


def test_the_lost_records_are_guessed_by_their_size(tmp_path: Path) -> None:
    (path,) = write_shards(tmp_path, [30])
    damage(path, record_start(path, 10) + 3)
    split = load(tmp_path, allow_damaged_shards=True)
    assert 25 <= len(split) <= 35
    found = locate_damage(str(path).encode())
    assert isinstance(found, RecordDamage)
    assert (found.record, found.offset) == (10, record_start(path, 10))


def test_too_many_stop_it(tmp_path: Path) -> None:
    write_shards(tmp_path, COUNTS)
    split = load(tmp_path)
    skipped = skipping(split, tmp_path, 0.4)
    assert skipped.add_damaged_shards([DamagedShard(1, 7, "b: damaged")])
    assert not skipped.add_damaged_shards([DamagedShard(1, 7, "b: damaged")])
    assert [skipped.num_to_read(shard) for shard in range(3)] == [7, 7, 5]
    message = (
        r"^9 of the 21 images of .* cannot be read, and dataset\.max_bad_fraction=0\.4 lets 8 be skipped:\n"
        r"  2 records, the first of them damaged: b: damaged\n  7 records, the first of them damaged: a: damaged\n"
    )
    with pytest.raises(UserError, match=message):
        skipped.add_damaged_shards([DamagedShard(0, 0, "a: damaged")])
    assert [skipped.num_to_read(shard) for shard in range(3)] == [0, 7, 5]


def test_a_shard_that_cannot_be_opened_is_never_skipped(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, COUNTS)
    split = load(tmp_path)
    damage(paths[2], 9)
    paths[1].unlink()
    damaged = find_damaged_shards(split, ValueError("corrupted record at 0"))
    assert [(shard.shard, shard.record) for shard in damaged] == [(1, None), (2, 0)]
    assert not skipping(split, tmp_path).add_damaged_shards(damaged)
    message = explain_shards(split, damaged)
    assert message.startswith("2 shards of ")
    assert "the file cannot be opened: No such file or directory" in message
    assert "on_bad_image" not in message
    assert explain_shards(split, damaged[1:]).endswith(
        "\ndataset.on_bad_image=skip leaves out what lies behind the damage, up to a limit."
    )


def test_a_batch_of_lost_records_has_labels_that_are_allowed(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [4, 8], label=lambda number: [0, -1])
    split = load(tmp_path, num_classes=2, task="multi", label_form="signed")
    damage(paths[0], record_start(paths[0], 0) + 200)
    skipped = skipping(split, tmp_path, 0.9)
    skipped.leave_out([4, 5, 6, 7], "for this test")
    first, *_, last = taken(split, skipped, 3, shuffle=False)
    assert not first["valid"].any()
    assert first["label"].shape == (4, 2)
    assert last["valid"].all()


@pytest.mark.parametrize("form", ["class", "indices", "binary", "signed"])
@pytest.mark.parametrize("is_float", [False, True])
def test_the_record_in_the_place_of_lost_ones_can_be_parsed(form: str, is_float: bool) -> None:
    label = LabelFormat("label", form, 3, 1 if form in ("class", "indices") else 0, is_float and form != "indices")
    contents, labels = records._parse(tf.constant([records._placeholder("image", label)] * 2), "image", label)
    assert contents[0].numpy().startswith(b"\xff\xd8")
    assert labels.shape == ((2,) if form == "class" else (2, 3))
