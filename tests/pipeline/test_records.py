"""Records through the whole pipeline: order, labels, what is said of bad ones."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset import load_tfrecord
from slimexp.dataset.record_split import RecordSplit
from slimexp.errors import UserError
from slimexp.pipeline import Feed, PipelineSettings, build_dataset
from slimexp.pipeline.preprocessing import InceptionPreprocessing, PlainPreprocessing
from slimexp.pipeline.skipping import SkippedImages
from tests.records import damage, example, picture, write_shards

COUNTS = [7, 9, 5]


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> RecordSplit:
    """21 records in three shards."""
    folder = tmp_path_factory.mktemp("records")
    write_shards(folder, COUNTS)
    return load(folder, cache_dir=str(folder / "cache"))


def load(folder: Path, **options: Any) -> RecordSplit:
    options = {"num_classes": 5, "cache_dir": str(folder / "cache"), **options}
    split = load_tfrecord(root=str(folder), file_pattern="train-*", **options).train
    assert isinstance(split, RecordSplit)
    return split


def arguments(is_training: bool = True, **values: Any) -> dict[str, Any]:
    return {
        "preprocessing": InceptionPreprocessing(16, is_training=True) if is_training else PlainPreprocessing(16),
        "settings": PipelineSettings(**{"batch_size": 4, "readers": 2, "threads": 2, **values}),
        "seed": 3,
        "is_training": is_training,
    }


def digests(batches: Any, count: int) -> list[str]:
    found = []
    for _, batch in zip(range(count), batches, strict=False):
        found.append(hashlib.sha256(b"".join(batch[name].numpy().tobytes() for name in sorted(batch))).hexdigest())
    return found


@pytest.mark.parametrize("decoder", ["auto", "tensorflow"])
def test_the_stream_is_the_same_for_any_thread_counts_and_goes_on_in_any_epoch(
    split: RecordSplit, decoder: str
) -> None:
    options: dict[str, Any] = {"decoder": decoder, "read_min_after_dequeue": 6}
    whole = digests(build_dataset(split, **arguments(readers=1, threads=1, **options)), 20)
    assert len(set(whole)) == 20
    # A feed has the monitor; a queue of another capacity holds the same.
    for readers, threads, capacity in ((2, 8, None),) if decoder == "tensorflow" else ((8, 2, 11),):
        counts = {"readers": readers, "threads": threads, "read_capacity": capacity}
        with Feed(split, **arguments(**counts, **options)) as feed:
            assert digests(feed, 20) == whole
            assert feed.monitor is not None
    # 21 examples in batches of 4: in the first, the second and the third epoch, and across their ends.
    for start in (5, 12):
        rest = build_dataset(split, **arguments(**options), start_position=4 * start)
        assert digests(rest, 20 - start) == whole[start:]


def test_it_is_the_same_after_another_seed_was_set_for_all_of_tensorflow(split: RecordSplit) -> None:
    before = digests(build_dataset(split, **arguments()), 3)
    tf.random.set_seed(7)
    assert digests(build_dataset(split, **arguments()), 3) == before


@pytest.mark.parametrize(("kept", "shuffle"), [(None, True), (3, True), (0, True), (None, False)])
def test_every_epoch_has_each_record_once_with_its_label(split: RecordSplit, kept: int | None, shuffle: bool) -> None:
    values = {"batch_size": 7, "read_min_after_dequeue": kept, "shuffle": shuffle}
    batches = list(build_dataset(split, **arguments(**values)).take(9))
    index = np.concatenate([batch["index"] for batch in batches]).reshape(3, 21)
    labels = np.concatenate([batch["label"] for batch in batches]).reshape(3, 21)
    assert (np.sort(index) == np.arange(21)).all()
    assert (labels == index % 5).all()
    assert labels.dtype == np.int32
    if shuffle:
        # Without a buffer there are only the orders of three shards.
        assert len({tuple(epoch) for epoch in index}) >= (2 if kept == 0 else 3)
    else:  # One of each shard in turn.
        assert index[0, :7].tolist() == [0, 7, 16, 1, 8, 17, 2]
        assert (index == index[0]).all()


def test_the_buffer_keeps_records_back(split: RecordSplit) -> None:
    """Without one a record cannot come before its predecessor in the shard; with one it may."""

    def is_in_order(kept: int) -> bool:
        (batch,) = build_dataset(split, **arguments(batch_size=21, read_min_after_dequeue=kept)).take(1)
        index = batch["index"].numpy()
        ends = np.cumsum([0, *COUNTS])
        shards = [index[(index >= a) & (index < b)] for a, b in itertools.pairwise(ends)]
        return all((np.diff(shard) > 0).all() for shard in shards)

    assert is_in_order(0)
    assert not is_in_order(12)


def test_evaluation_sees_each_record_once(split: RecordSplit) -> None:
    batches = list(
        build_dataset(
            split, **arguments(is_training=False, batch_size=8, read_min_after_dequeue=5, decoder="tensorflow")
        )
    )
    index, valid, label = (np.concatenate([batch[key] for batch in batches]) for key in ("index", "valid", "label"))
    assert valid.tolist() == [True] * 21 + [False] * 3
    assert sorted(index[valid]) == list(range(21))
    assert (label == index % 5).all()
    # The pictures are those of the records.
    pictures = [tf.io.decode_jpeg(picture(n), channels=3) for n in range(21)]
    finished = np.stack([PlainPreprocessing(16).finish(whole, tf.zeros([1])) for whole in pictures])
    distances = np.abs(finished - batches[1]["image"][1]).mean(axis=(1, 2, 3))
    assert int(np.argmin(distances)) == int(index[9])
    assert distances.min() < 0.05


@pytest.mark.parametrize(
    ("form", "stored", "expected"),
    [
        ("indices", lambda n: [n % 3, 2], lambda n: [1 if k in (n % 3, 2) else -1 for k in range(3)]),
        ("indices", lambda n: [2] if n == 0 else [], lambda n: [-1, -1, 1 if n == 0 else -1]),
        ("binary", lambda n: [n % 2, 0, 1], lambda n: [1 if n % 2 else -1, -1, 1]),
        ("binary", lambda n: [float(n % 2), 0.0, 1.0], lambda n: [1 if n % 2 else -1, -1, 1]),
        ("signed", lambda n: [n % 3 - 1, 0, 1], lambda n: [n % 3 - 1, 0, 1]),
        ("signed", lambda n: [float(n % 3 - 1), 0.0, 1.0], lambda n: [n % 3 - 1, 0, 1]),
    ],
)
def test_several_labels(tmp_path: Path, form: str, stored: Callable, expected: Callable) -> None:
    write_shards(tmp_path, [4], label=stored)
    split = load(tmp_path, num_classes=3, task="multi", label_form=form)
    (batch,) = build_dataset(split, **arguments()).take(1)
    assert batch["label"].dtype == tf.int8
    assert batch["label"].numpy().tolist() == [expected(int(index)) for index in batch["index"]]


def test_labels_offset(tmp_path: Path) -> None:
    write_shards(tmp_path, [4], label=lambda n: n + 1)
    (batch,) = build_dataset(load(tmp_path, num_classes=4, labels_offset=1), **arguments()).take(1)
    assert batch["label"].numpy().tolist() == batch["index"].numpy().tolist()


def failure(split: RecordSplit, batches: int = 12, **values: Any) -> str:
    with Feed(split, **arguments(shuffle=False, **values)) as feed, pytest.raises(UserError) as caught:
        list(itertools.islice(feed, batches))
    return str(caught.value)


def test_a_label_out_of_range_is_named(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [8, 8], label=lambda n: 7 if n == 11 else n % 5)
    # Its records alternate, so the fourth of the second shard is the eighth.
    with Feed(load(tmp_path), **arguments(shuffle=False)) as feed:
        next(feed)
        with pytest.raises(UserError) as caught:
            next(feed)
    assert str(caught.value) == (
        "1 image of a batch of 4 cannot be read:\n"
        f"  record 3: '{paths[1]}#3': the label is 7; one whole number in 0..4 is allowed (5 classes)\n"
        "Write the shards again without these records, or with good ones."
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            example(image__class__label=1),
            r"dataset\.image_key=image/encoded is not there; its keys and types are image/",
        ),
        (example(image__encoded=b"x"), r"dataset\.label_key=image/class/label is not there; .* image/encoded: bytes"),
        (
            example(image__encoded=b"x", image__class__label=1.5),
            r"dataset\.label_key=image/class/label is float, where the first record has int64",
        ),
        (example(image__encoded=b"x", image__class__label=[1, 2]), r"the label is 1, 2; one whole number"),
        (example(image__encoded=[b"x", b"y"], image__class__label=1), "holds 2 byte strings; it must hold one picture"),
        (b"\xff\xff", r"it is no tf\.train\.Example"),
        (
            example(image__encoded=b"hello", image__class__label=1),
            "begins with b'hello'(?s:.*)on_bad_image=skip leaves",
        ),
        (example(image__encoded=b"", image__class__label=1), "empty"),
        (example(image__encoded=picture(0)[:-300], image__class__label=1), "the JPEG is cut short or damaged"),
    ],
    # Not the records themselves: the order of a protobuf's map differs from process to process.
    ids=[
        "no image",
        "no label",
        "float label",
        "two labels",
        "two images",
        "no example",
        "no picture",
        "empty",
        "cut short",
    ],
)
def test_bad_records_are_named(tmp_path: Path, record: bytes, message: str) -> None:
    write_shards(tmp_path, [8], replace={5: record})
    with Feed(load(tmp_path), **arguments(shuffle=False)) as feed:
        next(feed)
        with pytest.raises(UserError, match=rf"record 5: '.*train-00000-of-00001#5': (?s:.*){message}"):
            next(feed)
        assert feed.position == 4


def test_damaged_data_are_found(tmp_path: Path, split: RecordSplit) -> None:
    paths = write_shards(tmp_path, COUNTS)
    damaged = load(tmp_path)
    damage(paths[1], paths[1].stat().st_size // 2)
    assert "1 shard of" in failure(damaged)
    assert "train-00001-of-00003: damaged at byte" in failure(damaged)


def test_a_shard_that_changes_while_it_is_in_use(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, COUNTS)
    split = load(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-10])
    assert "train-00002-of-00003: the file is cut short: it ends at byte" in failure(split)
    paths[2].unlink()
    assert "train-00002-of-00003: the file cannot be opened: No such file" in failure(split)


def test_bad_pictures_are_skipped(tmp_path: Path) -> None:
    bad = {5: example(image__encoded=b"hello", image__class__label=1)}
    write_shards(tmp_path, COUNTS, replace=bad)
    split = load(tmp_path)

    def run(start: int = 0) -> list[dict[str, Any]]:
        skipped = SkippedImages(split, path=tmp_path / "skipped.csv", max_fraction=0.1)
        with Feed(split, **arguments(), skipped=skipped, start_position=start) as feed:
            return [next(feed) for _ in range(8 - start // 4)]

    batches = run()
    index = np.concatenate([batch["index"] for batch in batches])
    valid = np.concatenate([batch["valid"] for batch in batches])
    assert set(index[:21]) == set(range(21)) - {5}
    assert (~valid[:21]).sum() == 1
    place = int(np.flatnonzero(~valid)[0])
    copied = index[place - place % 4 : place - place % 4 + 4]
    assert sorted(np.bincount(copied)[np.bincount(copied) > 0]) == [1, 1, 2]
    assert f"{split.path(5)},record 5," in (tmp_path / "skipped.csv").read_text()
    assert digests(run(start=8), 6) == digests(batches[2:], 6)


def test_a_batch_of_nothing_but_skipped_records(tmp_path: Path) -> None:
    bad = {n: example(image__encoded=b"hello", image__class__label=1) for n in range(4)}
    write_shards(tmp_path, [12], replace=bad)
    split = load(tmp_path)
    skipped = SkippedImages(split, path=None, max_fraction=0.5)
    with Feed(split, **arguments(shuffle=False), skipped=skipped) as feed:
        batch = next(feed)
        assert not batch["valid"].numpy().any()
        assert next(feed)["valid"].numpy().all()


def test_the_small_copies_are_for_files(split: RecordSplit) -> None:
    with pytest.raises(UserError, match=r"pipeline\.cache: only image files have smaller copies made"):
        build_dataset(split, **arguments(), read_file=lambda path: path)


def test_the_minimum_is_checked(split: RecordSplit) -> None:
    with pytest.raises(UserError, match="min_after_dequeue=21 can never be met: there are 21 training examples"):
        build_dataset(split, **arguments(read_min_after_dequeue=21))


class Slow(PlainPreprocessing):
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(0.01), [], [])]):
            return super().finish(image, draws)


def test_the_monitor_follows_records_through_epochs(split: RecordSplit) -> None:
    options = {**arguments(readers=8, threads=2, batch_size=7), "preprocessing": Slow(16)}
    with Feed(split, **options) as feed:
        # A busy machine may let some batches pass before the first reading.
        for _ in range(200):
            next(feed)
            stats = feed.monitor.total()
            if stats is not None and stats.images >= 18 * 7 and stats.stage("preprocess").busy_frac > 0.7:
                break
    assert stats is not None
    assert stats.stage("read").threads == 3  # No more than there are shards.
    assert stats.stage("preprocess").busy_frac > 0.7
    assert stats.stage("preprocess").images_per_sec == pytest.approx(stats.images_per_sec, rel=0.4)
    assert stats.queue("read").fill_frac > 0.5
    assert stats.queue("read").capacity == 140
    assert 0 <= stats.stage("read").busy_frac < 0.5


def test_dataclass_fields_are_kept_when_shards_are_chosen(split: RecordSplit) -> None:
    part = dataclasses.replace(split, shards=split.shards[:1], counts=split.counts[:1])
    assert (len(part), len(split)) == (7, 21)
