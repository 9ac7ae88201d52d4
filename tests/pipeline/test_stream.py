from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import PipelineSettings, build_dataset
from slimexp.pipeline.native import ops
from slimexp.pipeline.preprocessing import (
    CifarnetPreprocessing,
    InceptionPreprocessing,
    LenetPreprocessing,
    PlainPreprocessing,
    Preprocessing,
    VggPreprocessing,
    WindowPreprocessing,
)

ALL: dict[str, Callable[[], Preprocessing]] = {
    "vgg": lambda: VggPreprocessing(24, is_training=True),
    "inception fast": lambda: InceptionPreprocessing(24, is_training=True),
    "inception full": lambda: InceptionPreprocessing(24, is_training=True, color="full"),
    "lenet": lambda: LenetPreprocessing(24, is_training=True),
    "cifarnet": lambda: CifarnetPreprocessing(24, is_training=True),
    "plain": lambda: PlainPreprocessing(24),
}


def build(split: Split, preprocessing: object = None, **values: object) -> tf.data.Dataset:
    options = {"seed": 3, "is_training": True, "start_position": 0, "read_file": tf.io.read_file}
    options = {name: values.pop(name, default) for name, default in options.items()}
    settings = PipelineSettings(**{"batch_size": 4, "readers": 2, "threads": 2, **values})
    return build_dataset(split, preprocessing=preprocessing or PlainPreprocessing(8), settings=settings, **options)


def digest(batch: dict[str, tf.Tensor]) -> str:
    return hashlib.sha256(b"".join(batch[name].numpy().tobytes() for name in sorted(batch))).hexdigest()


@pytest.mark.parametrize("decoder", ["tensorflow", "native"])
@pytest.mark.parametrize(
    "name",
    [name if name in ("inception full", "plain") else pytest.param(name, marks=pytest.mark.slow) for name in ALL],
)
def test_the_stream_is_the_same_for_any_thread_counts_and_goes_on_anywhere(
    split: Split, name: str, decoder: str
) -> None:
    if decoder == "native" and not (isinstance(ALL[name](), WindowPreprocessing) and ops.available()):
        pytest.skip("the native op does not do this preprocessing, or has not been built")

    def digests(count: int = 20, **values: object) -> list[str]:
        return [digest(batch) for batch in build(split, ALL[name](), decoder=decoder, **values).take(count)]

    whole = digests(readers=1, threads=1)
    assert len(set(whole)) == 20
    assert digests(readers=2, threads=8, read_capacity=1, prefetch_capacity=4, batch_capacity=1) == whole
    assert digests(readers=8, threads=8) == whole
    # 21 examples in batches of 4: the fifth batch runs across the end of the first epoch.
    assert digests(4, start_position=4 * 4) == whole[4:8]


def test_each_epoch_visits_each_example_once_in_another_order_and_way(split: Split) -> None:
    batches = list(build(split, VggPreprocessing(16, is_training=True), batch_size=7).take(6))
    indices = np.concatenate([batch["index"] for batch in batches])
    first, second = indices[:21], indices[21:]
    assert sorted(first) == sorted(second) == list(range(21))
    assert first.tolist() != second.tolist()
    images = np.concatenate([batch["image"] for batch in batches])
    example = 3
    one, other = images[:21][first == example], images[21:][second == example]
    assert np.abs(one - other).max() > 5


def test_another_run_seed_is_another_stream(split: Split) -> None:
    (one,), (other,) = build(split).take(1), build(split, seed=4).take(1)
    assert one["index"].numpy().tolist() != other["index"].numpy().tolist()


def test_batches_hold_the_right_images_and_labels(split: Split) -> None:
    dataset = build(split, shuffle=False, batch_size=10, decoder="tensorflow", scaled_decode=False)
    assert dataset.element_spec == {
        "image": tf.TensorSpec([10, 8, 8, 3], tf.float32),
        "label": tf.TensorSpec([10], tf.int32),
        "index": tf.TensorSpec([10], tf.int64),
        "valid": tf.TensorSpec([10], tf.bool),
    }
    batches = list(dataset.take(3))
    indices = np.concatenate([batch["index"] for batch in batches])
    assert indices.tolist() == [*range(21), *range(9)]
    for batch in batches:
        assert batch["valid"].numpy().all()
        assert (batch["label"].numpy() == split.labels[batch["index"]]).all()
        for index, image in zip(batch["index"], batch["image"], strict=True):
            contents = tf.io.read_file(split.paths[int(index)])
            whole = tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE")
            np.testing.assert_allclose(image, (tf.image.resize(whole, [8, 8]) - 127.5) / 127.5, atol=1e-5)


def test_several_labels_an_image(split: Split) -> None:
    labels = np.random.default_rng(0).integers(-1, 2, (21, 6)).astype(np.int8)
    (batch,) = build(Split("train", split.paths, labels, "train.txt")).take(1)
    assert batch["label"].dtype == tf.int8
    assert (batch["label"].numpy() == labels[batch["index"]]).all()


@pytest.mark.parametrize(("batch_size", "fill"), [(1, 0), (7, 0), (16, 11), (64, 43)])
def test_evaluation_sees_each_example_once(split: Split, batch_size: int, fill: int) -> None:
    batches = list(build(split, is_training=False, batch_size=batch_size))
    for batch in batches:
        assert batch["image"].shape == [batch_size, 8, 8, 3]
    index, valid, label = (np.concatenate([batch[name] for batch in batches]) for name in ("index", "valid", "label"))
    assert index[valid].tolist() == list(range(21))
    assert index[~valid].tolist() == [20] * fill
    assert (label == split.labels[index]).all()
    last = batches[-1]["image"].numpy()
    assert (last[21 - 21 // batch_size * batch_size :] == last[-1]).all() if fill else True


def test_evaluation_may_start_late(split: Split) -> None:
    batches = list(build(split, is_training=False, start_position=16))
    assert [batch["index"].numpy().tolist() for batch in batches] == [[16, 17, 18, 19], [20] * 4]
    assert list(build(split, is_training=False, start_position=21)) == []


class Gauge:
    """Counts the calls that are under way at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __call__(self) -> np.int32:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.01)
        with self._lock:
            self._now -= 1
        return np.int32(0)


class Gauged:
    """A preprocessing of one's own, which counts its parallel calls."""

    size_px = 2

    def __init__(self) -> None:
        self.gauge = Gauge()

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return tf.stack([0, 0, height, width])

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        zero = tf.ensure_shape(tf.py_function(self.gauge, [], tf.int32), [])
        return tf.zeros([2, 2, 3]) + tf.cast(zero, tf.float32)


@pytest.mark.parametrize(("readers", "threads"), [(1, 1), (3, 2), (8, 8), (9, 4)])
def test_thread_counts_are_obeyed_exactly(split: Split, readers: int, threads: int) -> None:
    reading, preprocessing = Gauge(), Gauged()

    def read_file(path: tf.Tensor) -> tf.Tensor:
        zero = tf.ensure_shape(tf.py_function(reading, [], tf.int32), [])
        return tf.io.read_file(tf.strings.join([path, tf.strings.substr("", 0, zero)]))

    values = {"readers": readers, "threads": threads, "batch_size": 8, "decoder": "tensorflow"}
    for _ in build(split, preprocessing, read_file=read_file, **values).take(16):
        pass
    assert (reading.most, preprocessing.gauge.most) == (readers, threads)


class Half:
    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return tf.stack([0, 0, height, width])


class Bytes(Half):
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(image, [4, 4], method="nearest")


class Shapeless(Half):
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return tf.cast(image, tf.float32)


class Sized(Shapeless):
    size_px = 5


@pytest.mark.parametrize(
    ("preprocessing", "message"),
    [
        (Half(), "gave a Half, which has no method `finish`"),
        (Bytes(), r"Bytes\.finish returns uint8 \(4, 4, 3\); it must return float32"),
        (Shapeless(), r"Shapeless\.finish returns float32 \(None, None, 3\)"),
    ],
)
def test_a_preprocessing_that_does_not_fit_is_refused(split: Split, preprocessing: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(split, preprocessing)


def test_a_known_size_stands_in_for_an_unknown_shape(split: Split) -> None:
    assert build(split, Sized()).element_spec["image"].shape == [4, 5, 5, 3]


def test_a_negative_start_is_refused(split: Split) -> None:
    with pytest.raises(ValueError, match="start_position=-4: a stream begins at position 0"):
        build(split, start_position=-4)


def test_settings_are_checked(split: Split) -> None:
    with pytest.raises(UserError, match="batch_size=22 is more than the 21 training examples"):
        build(split, batch_size=22)
