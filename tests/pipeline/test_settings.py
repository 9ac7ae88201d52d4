from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from slimexp.errors import UserError
from slimexp.pipeline.settings import PipelineSettings


def test_default_capacities_follow_from_the_batch_and_the_counts() -> None:
    queues = PipelineSettings().queues()
    assert [(queue.name, queue.capacity, queue.unit) for queue in queues.values()] == [
        ("filename", 640, "names"),
        ("read", 32, "images"),
        ("prefetch", 64, "images"),
        ("batch", 2, "batches"),
    ]
    assert PipelineSettings(batch_size=2, readers=3, threads=9).queues()["read"].capacity == 18


def test_a_given_capacity_is_taken() -> None:
    assert PipelineSettings(read_capacity=1).queues()["read"].capacity == 1
    PipelineSettings(filename_capacity=4096, threads=1024, readers=1024).check(100)  # The bound is for threads alone.
    PipelineSettings(filename_capacity=1, read_capacity=1, prefetch_capacity=32, batch_capacity=1).check(100)


@pytest.mark.parametrize(
    ("values", "examples", "replicas", "message"),
    [
        ({"threads": 0}, 100, 1, r"pipeline\.threads=0 is refused: .* at least 1"),
        ({"readers": True}, 100, 1, r"pipeline\.readers=True is refused"),
        ({"batch_size": 2.5}, 100, 1, r"pipeline\.batch_size=2\.5 is refused: it must be a whole number"),
        ({"read_capacity": -1}, 100, 1, r"pipeline\.queues\.read\.capacity=-1 is refused"),
        (
            {"threads": 1025},
            100,
            1,
            r"pipeline\.threads=1025 is refused: .* at most 1024, as each is a thread of its own",
        ),
        ({"readers": 10**9}, 100, 1, r"pipeline\.readers=1000000000 is refused: it must be at most 1024"),
        ({"threads": 0, "readers": 0}, 100, 1, r"(?s)pipeline\.threads=0.*pipeline\.readers=0"),
        ({}, 0, 1, r"no examples to read"),
        ({}, 10, 1, r"batch_size=32 is more than the 10 training examples.*Set pipeline\.batch_size=10 or less"),
        ({}, 10, 4, r"Set pipeline\.batch_size=8 or less"),
        ({}, 3, 4, r"Use no more replicas \(devices\) than there are examples, or add examples\."),
        ({"batch_size": 30}, 100, 4, r"batch_size=30 cannot be divided evenly among 4 replicas.*Set it to 28 or 32"),
        ({"batch_size": 1}, 100, 2, r"Set it to 2\."),
        ({"prefetch_capacity": 31}, 100, 1, r"prefetch\.capacity=31 defeats itself: a batch takes 32.*Set it to 32"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], examples: int, replicas: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        PipelineSettings(**values).check(examples, replicas)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, (640, 320)),  # TF-Slim's: 20 batches, of which 10 stay.
        ({"read_capacity": 400}, (400, 320)),  # The order follows from the minimum, so that stays.
        ({"read_min_after_dequeue": 1000}, (1320, 1000)),
        ({"read_min_after_dequeue": 0}, (320, 0)),
        ({"read_min_after_dequeue": 10, "readers": 512}, (1034, 10)),
        ({"read_min_after_dequeue": 10, "read_capacity": 99}, (99, 10)),
    ],
)
def test_the_read_queue_of_a_source_that_is_read_in_sequence(values: dict[str, Any], expected: tuple[int, int]) -> None:
    fitted = PipelineSettings(**values).fitted(is_sequential=True, is_training=True)
    assert (fitted.queues()["read"].capacity, fitted.read_min_after_dequeue) == expected
    assert fitted.fitted(is_sequential=True, is_training=True) == fitted
    fitted.check(100_000, is_sequential=True)


def test_a_capacity_below_the_usual_minimum_is_refused_and_not_made_to_fit() -> None:
    settings = PipelineSettings(read_capacity=200)
    with pytest.raises(UserError, match=r"read\.capacity=200 is too small: 320 .*to 384 or more, .* to 136 or less"):
        settings.check(100_000, is_sequential=True)
    settings.check(100_000, is_sequential=False)
    settings.check(100_000, is_training=False, is_sequential=True)


def test_nothing_is_kept_back_of_lists_and_in_evaluation() -> None:
    settings = PipelineSettings(read_min_after_dequeue=10)
    plain = PipelineSettings()
    assert settings.fitted(is_sequential=True, is_training=False) == plain
    assert settings.fitted(is_sequential=False, is_training=True) == plain
    assert PipelineSettings(shuffle=False).fitted(is_sequential=True, is_training=True).read_min_after_dequeue is None
    settings.check(5, is_training=False, is_sequential=True)


@pytest.mark.parametrize(
    ("values", "replicas", "is_sequential", "message"),
    [
        (
            {"read_min_after_dequeue": 8},
            1,
            False,
            r"min_after_dequeue=8 is refused: this dataset is a list, .* exactly",
        ),
        ({"read_min_after_dequeue": -1}, 1, True, r"min_after_dequeue=-1 is refused: it must be a whole number, 0 or"),
        (
            {"read_min_after_dequeue": 8, "shuffle": False},
            1,
            True,
            r"refused: pipeline\.shuffle=false, and records are",
        ),
        ({"read_min_after_dequeue": 100}, 1, True, r"=100 can never be met: there are 100 .*Set it to 68 or less"),
        # The seed's own: 16 - 8 leaves what 8 clones take at once.
        (
            {"read_min_after_dequeue": 8, "read_capacity": 16, "batch_size": 8},
            8,
            True,
            r"=8 with .*\.capacity=16 defeats itself: 16 - 8 leaves 8 .* 8 at once, 1 for each of 8 replicas.* 24 or",
        ),
        (
            {"read_min_after_dequeue": 20, "read_capacity": 10, "batch_size": 8},
            1,
            True,
            r"10 - 20 leaves 0 to take.*the capacity to 36 or more, .*twice the batch",
        ),
    ],
)
def test_a_minimum_that_cannot_work_is_refused(
    values: dict[str, Any], replicas: int, is_sequential: bool, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        PipelineSettings(**values).check(100, replicas, is_sequential=is_sequential)


def test_evaluation_takes_fewer_examples_than_a_batch() -> None:
    PipelineSettings().check(1, is_training=False)


def test_tensorflow_is_not_imported() -> None:
    program = "import sys, slimexp.pipeline.settings, slimexp.pipeline; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
