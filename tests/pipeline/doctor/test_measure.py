from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import PipelineSettings
from slimexp.pipeline.doctor.measure import StageBench, step_rate, take_turns
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.preprocessing import PlainPreprocessing

SETTINGS = PipelineSettings(threads=2, readers=2, batch_size=4, decoder="tensorflow")
SECS = 0.3


def sleepy(function: Any, secs: float) -> Any:
    def slow(*args: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(secs), [], [])]):
            return function(*args)

    return slow


def bench(split: Split, read_file: Any = tf.io.read_file, window: float = 0.0, finish: float = 0.0) -> StageBench:
    """A bench whose preprocessing sleeps so many seconds in `window` and in `finish`."""
    preprocessing: Any = PlainPreprocessing(8)
    preprocessing.window = sleepy(preprocessing.window, window) if window else preprocessing.window
    preprocessing.finish = sleepy(preprocessing.finish, finish) if finish else preprocessing.finish
    return StageBench(split, preprocessing=preprocessing, settings=SETTINGS, seed=0, read_file=read_file)


def test_a_stage_alone_is_as_slow_as_it_is(split: Split) -> None:
    # Two at a time of 20 ms each are 100 images a second, fewer on a machine with other work; all else is far faster.
    slow_finish = bench(split, finish=0.02)
    for measure in (slow_finish.finish, slow_finish.preprocess):
        assert 25 < measure(SECS) < 110
    for measure in (slow_finish.read, slow_finish.batch):
        assert measure(SECS) > 200


def test_slow_decoding(split: Split) -> None:
    slow_decode = bench(split, window=0.02)
    assert 25 < slow_decode.read_and_decode(SECS) < 110
    assert slow_decode.finish(SECS) > 200


def test_slow_reading(split: Split) -> None:
    slow_read = bench(split, read_file=sleepy(tf.io.read_file, 0.02))
    for measure in (slow_read.read, slow_read.whole):
        assert 25 < measure(SECS) < 110
    assert 1.3 * slow_read.read(SECS) < slow_read.read(SECS, 4) < 220


def test_files_out_of_the_page_cache(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimexp.pipeline.doctor.samples.evict", lambda paths: None)
    # Two at a time of 20 ms each; threads that start and the first images do not count.
    slow = bench(split, read_file=sleepy(tf.io.read_file, 0.02))
    assert 25 < slow.read_cold(1.0) < 150
    assert 25 < slow.whole_cold(1.0) < 150
    few = StageBench(split, preprocessing=PlainPreprocessing(8), settings=SETTINGS, seed=0, most_examples=4)
    for measure in (few.read_cold, few.whole_cold):
        with pytest.raises(OSError, match="the sample has too few images to tell"):
            measure(SECS)
    ready = bench(split)
    monkeypatch.setattr("slimexp.pipeline.doctor.samples.evict", lambda paths: "they stay")
    for measure in (ready.read_cold, ready.whole_cold):
        with pytest.raises(OSError, match="they stay"):
            measure(SECS)


def test_the_sample(split: Split) -> None:
    part = StageBench(split, preprocessing=PlainPreprocessing(8), settings=SETTINGS, seed=0, most_examples=5)
    sample = part.sample.split
    assert sample.lines.tolist() == [1, 6, 11, 16, 21]
    assert sample.paths == [split.paths[index] for index in (0, 5, 10, 15, 20)]
    assert part.sample.contents.numpy()[1] == Path(os.fsdecode(sample.paths[1])).read_bytes()
    assert part.mean_bytes > 500
    with pytest.raises(UserError, match="is more than the 21 training examples"):
        StageBench(split, preprocessing=PlainPreprocessing(8), settings=PipelineSettings(batch_size=32), seed=0)


@pytest.fixture
def records(split: Split, tmp_path: Path) -> RecordSplit:
    """The photos in three TFRecord files, and a bad picture as record 2."""
    counts = []
    for shard in range(3):
        with tf.io.TFRecordWriter(str(tmp_path / f"train-{shard}")) as writer:
            for path, label in zip(split.paths[shard::3], split.labels[shard::3], strict=True):
                contents = b"bad" if path == split.paths[2] else Path(os.fsdecode(path)).read_bytes()
                picture = tf.train.Feature(bytes_list=tf.train.BytesList(value=[contents]))
                number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
                features = tf.train.Features(feature={"image": picture, "label": number})
                writer.write(tf.train.Example(features=features).SerializeToString())
        counts.append(len(split.paths[shard::3]))
    shards = tuple(os.fsencode(tmp_path / f"train-{shard}") for shard in range(3))
    label = LabelFormat("label", "class", num_classes=5)
    return RecordSplit("train", shards, np.array(counts), str(tmp_path / "train-*"), "image", label)


def test_records(records: RecordSplit) -> None:
    settings = dataclasses.replace(SETTINGS, read_capacity=12, read_min_after_dequeue=4)  # For records alone.
    options: dict[str, Any] = {"preprocessing": PlainPreprocessing(8), "settings": settings, "seed": 0}
    ready = StageBench(records, skip_bad=True, **options)
    assert len(ready.sample.held) == 20
    for measure in (ready.read, ready.read_and_decode, ready.finish, ready.preprocess, ready.batch, ready.whole):
        assert measure(0.05) > 0
    with pytest.raises(UserError, match=r"1 image .*(?s:.)*record 0"):
        StageBench(records, **options).preprocess(0.1)


def test_a_preprocessing_that_fails(split: Split) -> None:
    preprocessing: Any = PlainPreprocessing(8)
    preprocessing.finish = lambda image, draws: tf.cast(tf.ensure_shape(image, [8, 8, 3]), tf.float32)
    broken = StageBench(split, preprocessing=preprocessing, settings=SETTINGS, seed=0)
    with pytest.raises(UserError, match=r"PlainPreprocessing\.finish failed on train\.txt:1: "):
        broken.finish(SECS)


def test_steps() -> None:
    calls = []

    def step() -> dict[str, tf.Tensor]:
        calls.append(time.sleep(0.02))
        return {"loss": tf.zeros([])}

    assert 250 < step_rate(step, 8, 0.2) <= 400
    assert len(calls) >= 6
    calls.clear()
    step_rate(step, 8, 0.0)
    assert len(calls) == 4  # Three that do not count, and one.


def test_the_first_steps_do_not_count() -> None:
    delays = iter([0.2, 0.1, 0.1])

    def step() -> dict[str, tf.Tensor]:
        time.sleep(next(delays, 0.01))
        return {"loss": tf.zeros([])}

    assert 500 < step_rate(step, 8, 0.1) <= 800


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_never_answers_can_be_given_up(
    split: Split, tmp_path: Path, skip_bad: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe.jpg"
    os.mkfifo(pipe)
    paths = list(split.paths)
    paths[5] = os.fsencode(pipe)
    blocked = Split(split.name, paths, split.labels, split.source, split.lines)
    monkeypatch.setattr("slimexp.pipeline.doctor.watch._PATIENCE_SECS", 0.2)
    monkeypatch.setattr("slimexp.pipeline.waiting._PROBE_SECS", 0.3)
    started = time.monotonic()

    def check_stop() -> None:
        if time.monotonic() - started > 1:
            raise InterruptedError("stop")

    try:
        with pytest.raises(InterruptedError, match="stop"):
            StageBench(
                blocked,
                preprocessing=PlainPreprocessing(8),
                settings=SETTINGS,
                seed=0,
                skip_bad=skip_bad,
                check_stop=check_stop,
            )
        assert time.monotonic() - started < 4
        assert "The images to measure with have not been read for " in caplog.text
        assert "pipe.jpg'. A network drive that is gone would explain it." in caplog.text
    finally:
        # Nobody is left who waits for the pipe.
        deadline = time.monotonic() + 10
        while any(thread.name == "slimexp taker" for thread in threading.enumerate()) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            time.sleep(0.02)


def test_a_measurement_ends_when_it_is_told_to(split: Split) -> None:
    stop: list[BaseException] = []

    def check_stop() -> None:
        if stop:
            raise stop[0]

    ready = StageBench(split, preprocessing=PlainPreprocessing(8), settings=SETTINGS, seed=0, check_stop=check_stop)
    assert ready.read(0.05) > 0
    stop.append(InterruptedError("stop"))
    started = time.monotonic()
    with pytest.raises(InterruptedError, match="stop"):
        ready.read(60.0)
    assert time.monotonic() - started < 3


def test_turns_are_taken() -> None:
    order = []

    def measure(name: str, rates: list[float]) -> Any:
        def measure(secs: float) -> float:
            order.append(name)
            if name == "c":
                raise OSError("no disk")
            return rates.pop(0) * secs

        return measure

    measurements = {"a": measure("a", [1, 3, 2]), "b": measure("b", [10, 10, 13]), "c": measure("c", [])}
    breaks = []
    rates, reasons = take_turns(measurements, rounds=3, secs=2.0, between=lambda: breaks.append(1))
    assert "".join(order) == "abcabab"
    assert rates == {"a": Rate(4, 2, 6), "b": Rate(20, 20, 26)}
    assert reasons == {"c": "no disk"}
    assert len(breaks) == 7
