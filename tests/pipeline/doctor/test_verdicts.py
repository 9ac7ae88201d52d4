"""Pipelines that are made slow on purpose at each stage: the verdict names the right one.

What is slow sleeps, many times longer than the rest takes: so it is the slowest on any machine, however noisy.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slimexp.dataset.split import Split
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.doctor.verdict import Verdict, verdict
from slimexp.pipeline.preprocessing import PlainPreprocessing
from slimexp.pipeline.stats import PipelineStats

SETTINGS = PipelineSettings(threads=2, readers=2, batch_size=4, decoder="tensorflow")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """64 JPEGs of 16 x 16, which cost next to nothing."""
    folder = tmp_path_factory.mktemp("tiny")
    paths = []
    for number in range(64):
        path = folder / f"{number}.jpg"
        Image.fromarray(np.full([16, 16, 3], number, np.uint8)).save(path)
        paths.append(str(path).encode())
    return Split("train", paths, np.zeros(64, np.int32), "train.txt")


def sleepy(function: Callable[..., tf.Tensor], secs: float) -> Callable[..., tf.Tensor]:
    """Makes a graph function sleep before it does its work."""

    def slow(*args: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(lambda: _sleep(secs), [], tf.int32)]):
            return function(*[tf.identity(arg) for arg in args])

    return slow


def _sleep(secs: float) -> np.int32:
    time.sleep(secs)
    return np.int32(0)


class Slow(PlainPreprocessing):
    """Sleeps before an image is decoded (`window_secs`) or finished (`finish_secs`)."""

    def __init__(self, size_px: int, window_secs: float = 0.0, finish_secs: float = 0.0) -> None:
        super().__init__(size_px, is_training=True)
        self._secs = window_secs, finish_secs

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        window = super().window
        return (sleepy(window, self._secs[0]) if self._secs[0] else window)(height, width, draws)

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        finish = super().finish
        return (sleepy(finish, self._secs[1]) if self._secs[1] else finish)(image, draws)


def examine(
    split: Split,
    step: Callable[[int], None] = lambda number: None,
    *,
    preprocessing: Any = None,
    settings: PipelineSettings = SETTINGS,
    num_batches: int = 8,
    **options: Any,
) -> tuple[Verdict, PipelineStats]:
    """Feeds a network whose step is `step(number)`, and asks the doctor."""
    preprocessing = preprocessing or PlainPreprocessing(8, is_training=True)
    feed = Feed(split, preprocessing=preprocessing, settings=settings, seed=0, is_training=True, **options)
    with feed:
        for number in range(num_batches):
            next(feed)
            step(number)
    assert feed.monitor is not None
    stats = feed.monitor.total()
    assert stats is not None
    found = verdict(stats, options={"pipeline.decoder": "tensorflow"})
    print(found, stats)  # Shown when a test fails.
    return found, stats


def nap(number: int) -> None:
    """A step of 100 images a second."""
    time.sleep(0.04)


def test_slow_file_reads(tiny: Split) -> None:
    found, _ = examine(tiny, nap, read_file=sleepy(tf.io.read_file, 0.1))
    assert found.bottleneck == "reading"
    assert found.overrides[0].startswith("pipeline.readers=")


def test_slow_decoding(tiny: Split) -> None:
    assert examine(tiny, nap, preprocessing=Slow(8, window_secs=0.1))[0].bottleneck == "preprocessing"


def test_heavy_preprocessing(tiny: Split) -> None:
    found, _ = examine(tiny, nap, preprocessing=Slow(8, finish_secs=0.1))
    assert found.bottleneck == "preprocessing"
    assert found.overrides[0].startswith("pipeline.threads=")


def test_a_slow_network(tiny: Split) -> None:
    found, _ = examine(tiny, lambda number: time.sleep(0.3))
    assert (found.bottleneck, found.overrides) == ("network", ())


@pytest.fixture
def short() -> PipelineSettings:
    """Queues that hold next to nothing."""
    return dataclasses.replace(SETTINGS, threads=1, readers=1, read_capacity=1, prefetch_capacity=4, batch_capacity=1)


def with_override(settings: PipelineSettings, override: str) -> PipelineSettings:
    key, _, value = override.partition("=")
    name = key.removeprefix("pipeline.").removeprefix("queues.").replace(".", "_")
    return dataclasses.replace(settings, **{name: int(value)})


def test_a_network_that_takes_many_batches_at_once(tiny: Split, short: PipelineSettings) -> None:
    def step(number: int) -> None:
        if number % 12 == 11:
            time.sleep(1.0)  # In which 48 images are easily made, if there is room for them.

    slow = Slow(8, finish_secs=0.012)
    found, before = examine(tiny, step, preprocessing=slow, settings=short, num_batches=37)
    assert found.bottleneck == "queue"
    longer = with_override(short, found.overrides[0])
    _, after = examine(tiny, step, preprocessing=slow, settings=longer, num_batches=37)
    assert after.wait_frac < 0.75 * before.wait_frac


def test_files_that_come_in_bursts(tiny: Split, short: PipelineSettings) -> None:
    count = itertools.count()

    def read(path: tf.Tensor) -> tf.Tensor:
        # 64 files take 0.6 s, and the network wants them in 1.28 s.
        pause = tf.numpy_function(lambda: _sleep(0.6 if next(count) % 64 == 63 else 0.0), [], tf.int32)
        with tf.control_dependencies([pause]):
            return tf.io.read_file(tf.identity(path))

    found, _ = examine(tiny, lambda number: time.sleep(0.08), settings=short, read_file=read, num_batches=49)
    assert found.bottleneck == "queue"


def test_all_cores_are_at_work(tiny: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(PlainPreprocessing):
        def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
            numbers = tf.random.stateless_uniform([200_000], seed=[1, 2])
            total = tf.reduce_sum(tf.sin(tf.cos(tf.sin(tf.cos(numbers)))))
            return super().finish(image, draws) + 0.0 * total

    # As in a container with a quota: what other programs take of the machine cannot change that.
    monkeypatch.setattr("slimexp.pipeline.monitor.available_cpus", lambda: 0.1)
    found, _ = examine(tiny, preprocessing=Busy(8, is_training=True), num_batches=20)
    assert (found.bottleneck, found.overrides) == ("cores", ("pipeline.decoder=native",))
