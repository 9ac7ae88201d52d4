from __future__ import annotations

import math
import time
from typing import Any

import pytest
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import PipelineSettings
from slimexp.pipeline.doctor import auto
from slimexp.pipeline.doctor.auto import choose_counts, thread_candidates
from slimexp.pipeline.doctor.measure import StageBench
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.preprocessing import PlainPreprocessing

SETTINGS = PipelineSettings(threads=1, readers=1, batch_size=4, decoder="tensorflow")


class Sleepy(PlainPreprocessing):
    """Sleeps 20 ms an image, which takes no core."""

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(0.02), [], [])]):
            return super().finish(image, draws)


@pytest.mark.parametrize(
    ("cpus", "candidates"), [(0.5, [1]), (1, [1]), (2, [1, 2]), (2.5, [1, 2, 3]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_candidates(cpus: float, candidates: list[int]) -> None:
    assert thread_candidates(cpus) == candidates


@pytest.mark.slow
def test_threads_within_the_cores(split: Split) -> None:
    (choice,) = choose_counts(
        split,
        preprocessing=Sleepy(8),
        settings=SETTINGS,
        seed=0,
        threads=True,
        readers=False,
        cpus=3,
        secs=0.3,
    )
    assert (choice.key, choice.value) == ("pipeline.threads", 3)
    assert list(choice.measured) == [1, 2, 3]
    assert 25 < choice.measured[1] < 55
    assert str(choice).startswith("pipeline.threads=auto: 3 (images/s by count: 1: ")
    assert str(choice).endswith("; 3 cores are available)")


def test_readers_as_many_as_it_takes(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[str, Any] = {
        "read": lambda self, secs, readers: 30.0 * readers,
        "preprocess": lambda self, secs, settings=None: 90.0,
    }
    for name, function in rates.items():
        monkeypatch.setattr(StageBench, name, function)

    def cold(self: StageBench, secs: float, readers: int) -> float:
        raise OSError("it is in memory")

    monkeypatch.setattr(StageBench, "read_cold", cold)
    options = {"preprocessing": PlainPreprocessing(8), "settings": SETTINGS, "seed": 0, "cpus": 1}
    threads, readers = choose_counts(split, threads=True, readers=True, **options)
    assert (threads.value, readers.value) == (1, 4)  # 120 images/s for 90, with a fourth to spare.
    assert str(readers) == (
        "pipeline.readers=auto: 4 (images/s by count: 1: 30, 2: 60, 4: 120; from memory, as it is in memory; "
        "preprocessing takes 90)"
    )
    # A disk that does not get faster.
    monkeypatch.setattr(StageBench, "read_cold", lambda self, secs, readers: min(30.0 * readers, 61.0))
    (readers,) = choose_counts(split, threads=False, readers=True, **options)
    assert readers.value == 2
    assert list(readers.measured) == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({1: (100, 100, 100), 2: (108, 112, 109)}, 1),  # No tenth more.
        ({1: (100, 20, 100), 2: (190, 195, 180), 4: (200, 90, 205)}, 2),  # One round each was disturbed.
        ({1: (100, 101, 102), 2: (190, 191, 192), 4: (80, 81, 82)}, 2),  # More make it slower.
        ({1: (100, 101, 102), 2: (60, 61, 62), 4: (190, 191, 192)}, None),  # That cannot be.
        ({1: (100, 50, 102), 2: (60, 61, 62), 4: (190, 191, 192)}, 4),  # It may be noise.
    ],
)
def test_of_about_equal_counts_the_smallest(rates: dict[int, tuple[float, ...]], chosen: int | None) -> None:
    assert auto._smallest({count: Rate.of(rounds) for count, rounds in rates.items()}, math.inf) == chosen


def test_counts_take_turns_and_rates_that_cannot_be_choose_nothing(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []

    def preprocess(self: StageBench, secs: float, settings: PipelineSettings) -> float:
        order.append(settings.threads)
        return {1: 100.0, 2: 50.0, 4: 190.0}[settings.threads]

    monkeypatch.setattr(StageBench, "preprocess", preprocess)
    (choice,) = choose_counts(
        split, preprocessing=PlainPreprocessing(8), settings=SETTINGS, seed=0, threads=True, readers=False, cpus=4
    )
    assert order == [1, 2, 4] * 3
    assert choice.value == 4
    assert str(choice).endswith(
        "the rates go down and up again, as other programs disturbed them, so as many as the cores; 4 cores are "
        "available)"
    )


def test_a_bad_file_is_named(split: Split, damaged: Any) -> None:
    bad = damaged({3: b"<html>", 4: None})
    with pytest.raises(UserError, match=r"2 images of a batch of 21 cannot be read:\n  train\.txt:4: "):
        choose_counts(
            bad, preprocessing=PlainPreprocessing(8), settings=SETTINGS, seed=0, threads=True, readers=False, cpus=1
        )
