from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.native import ops
from slimexp.pipeline.preprocessing import VggPreprocessing
from slimexp.pipeline.stats import as_metrics, describe

DECODERS = [
    "tensorflow",
    pytest.param("native", marks=pytest.mark.skipif(not ops.available(), reason="the native op has not been built")),
]


def feed(split: Split, decoder: str, read_secs: float = 0.0) -> Feed:
    def read_file(path: tf.Tensor) -> tf.Tensor:
        def slowly(name: bytes) -> bytes:
            time.sleep(read_secs)
            return name

        return tf.io.read_file(tf.ensure_shape(tf.numpy_function(slowly, [path], tf.string), []))

    return Feed(
        split,
        preprocessing=VggPreprocessing(16, is_training=True),
        settings=PipelineSettings(batch_size=4, readers=2, threads=3, decoder=decoder),
        seed=1,
        is_training=True,
        **({"read_file": read_file} if read_secs else {}),
    )


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_slow_taker_finds_full_queues(split: Split, decoder: str) -> None:
    with feed(split, decoder) as batches:
        next(batches)
        assert batches.monitor.total() is None  # The first batch is start-up.
        for _ in range(8):
            next(batches)
            time.sleep(0.15)
        stats = batches.monitor.interval()
        assert stats.images == 7 * 4
        assert stats.secs > 7 * 0.15
        assert stats.wait_frac < 0.3
        assert [(stage.name, stage.threads) for stage in stats.stages] == [("read", 2), ("preprocess", 3)]
        assert [queue.name for queue in stats.queues] == ["filename", "read", "prefetch", "batch"]
        assert [queue.capacity for queue in stats.queues] == [80, 6, 8, 2]
        assert stats.queue("batch").fill_frac > 0.7
        assert stats.queue("read").fill_frac > 0.7
        assert stats.stage("preprocess").busy_frac < 0.5
        assert 0 < stats.cpu_frac <= 1
        assert set(as_metrics(stats)) >= {
            "pipeline/filename_queue/fill_frac",
            "pipeline/batch_queue/fill_frac",
            "pipeline/read_images_per_sec",
            "pipeline/preprocess_busy_frac",
        }
        assert describe(stats).startswith("busy % read ")


@pytest.mark.parametrize("decoder", DECODERS)
def test_slow_reading_shows(split: Split, decoder: str) -> None:
    with feed(split, decoder, read_secs=0.05) as batches:
        for _ in range(12):
            next(batches)
        stats = batches.monitor.total()
    assert stats.wait_frac > 0.8
    assert stats.stage("read").busy_frac > 0.7
    # Two readers at 20 files a second each.
    assert 15 < stats.stage("read").images_per_sec <= 42
    assert stats.stage("preprocess").busy_frac < 0.5
    assert stats.queue("read").fill_frac < 0.5
    assert stats.queue("batch").fill_frac < 0.5


def test_intervals_add_up_and_a_pause_does_not_count(split: Split) -> None:
    with feed(split, "tensorflow") as batches:
        next(batches)
        next(batches)
        for _ in range(3):
            next(batches)
        first = batches.monitor.interval()
        with batches.paused():
            time.sleep(0.5)
        for _ in range(4):
            next(batches)
        second = batches.monitor.interval()
        total = batches.monitor.total()
    assert (first.images, second.images, total.images) == (12, 16, 28)
    assert second.secs < 0.5
    assert total.secs == pytest.approx(first.secs + second.secs, abs=0.2)
    assert np.isclose(total.images_per_sec, 28 / total.secs)


def test_closing_ends_the_thread_and_keeps_the_numbers(split: Split) -> None:
    batches = feed(split, "tensorflow")
    for _ in range(4):
        next(batches)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "slimexp monitor"]
    total = batches.monitor.total()
    assert total.images == 8
    assert batches.monitor.total() == total


def test_evaluation_has_none(split: Split) -> None:
    settings = PipelineSettings(batch_size=4)
    preprocessing = VggPreprocessing(16, is_training=False)
    with Feed(split, preprocessing=preprocessing, settings=settings, seed=1, is_training=False) as batches:
        next(batches)
        assert batches.monitor is None
