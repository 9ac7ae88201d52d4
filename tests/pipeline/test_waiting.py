"""Waiting that can be ended, and the warning that says what is waited for."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import weakref
from pathlib import Path

import pytest

from slimexp.dataset.split import Split
from slimexp.errors import Interrupted
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.preprocessing import PlainPreprocessing
from slimexp.pipeline.waiting import Taker, find_silent
from slimexp.training.signals import StopSignals


def test_it_returns_and_raises_what_the_function_does() -> None:
    taker = Taker()
    assert taker.take(lambda: threading.current_thread().name, lambda secs: None) == "slimexp taker"
    with pytest.raises(ZeroDivisionError):
        taker.take(lambda: 1 / 0, lambda secs: None)
    with pytest.raises(StopIteration):
        taker.take(lambda: next(iter([])), lambda secs: None)
    assert taker.take(lambda: 3, lambda secs: None) == 3
    taker.close()
    taker.close()
    assert "slimexp taker" not in [thread.name for thread in threading.enumerate()]


def test_it_keeps_nothing_alive() -> None:
    class Thing:
        def __call__(self) -> None:
            pass

    taker, thing = Taker(), Thing()
    gone = weakref.ref(thing)
    taker.take(thing, lambda secs: None)
    del thing
    time.sleep(0.05)
    gc.collect()
    assert gone() is None
    taker.close()


def test_it_tells_how_long_it_has_waited() -> None:
    taker, told = Taker(), []
    taker.take(lambda: time.sleep(0.7), told.append)
    taker.close()
    assert 2 <= len(told) <= 4
    assert told == sorted(told)
    assert 0.15 < told[0] < 0.6


@pytest.fixture
def blocked(split: Split, tmp_path: Path) -> Split:
    """The split with a pipe for its tenth file, which nobody ever writes to."""
    os.mkfifo(tmp_path / "gone.jpg")
    paths = list(split.paths)
    paths[9] = str(tmp_path / "gone.jpg").encode()
    return Split(split.name, paths, split.labels, split.source, split.lines)


def test_files_that_do_not_answer(blocked: Split) -> None:
    missing = b"/nowhere/at all"
    assert find_silent([blocked.paths[0], missing, blocked.paths[9], b"/", b"a\0b"]) == [blocked.paths[9]]


@pytest.mark.parametrize("is_training", [True, False])
def test_a_signal_ends_the_wait_for_a_file_that_never_comes(
    blocked: Split, is_training: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = PipelineSettings(batch_size=4, readers=2, threads=2, shuffle=False)
    with StopSignals() as signals, signals.deferred():
        feed = Feed(
            blocked,
            preprocessing=PlainPreprocessing(8),
            settings=settings,
            seed=0,
            is_training=is_training,
            check_stop=signals.check,
            patience_secs=0.3,
        )
        with feed:
            for _ in range(2):
                next(feed)
            timer = threading.Timer(4, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            started = time.monotonic()
            with pytest.raises(Interrupted, match="stopped by SIGINT"):
                next(feed)
            assert time.monotonic() - started < 8
            assert feed.position == 8
    assert time.monotonic() - started < 10
    (warning, *_) = caplog.messages
    assert warning.startswith("No batch for 0 s. Full are the queues filename ")
    assert "batch 0% of 2. These do not answer: '" in warning
    assert "/gone.jpg'. A network drive that is gone would explain it. Ctrl-C ends the run." in warning


def test_a_slow_batch_is_warned_of_now_and_then(split: Split, caplog: pytest.LogCaptureFixture) -> None:
    class Slow(PlainPreprocessing):
        def finish(self, image: object, draws: object) -> object:
            import tensorflow as tf

            with tf.control_dependencies([tf.py_function(lambda: time.sleep(0.6), [], [])]):
                return super().finish(image, draws)

    caplog.set_level(logging.WARNING)
    settings = PipelineSettings(batch_size=4, readers=1, threads=1)
    with Feed(split, preprocessing=Slow(8), settings=settings, seed=0, is_training=True, patience_secs=0.4) as feed:
        next(feed)
    assert 1 <= len(caplog.messages) <= 3  # After 0.4 s, twice that, and twice that.
    assert all("The files that were tried do answer (train.txt)" in message for message in caplog.messages)
