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


def test_evaluation_takes_fewer_examples_than_a_batch() -> None:
    PipelineSettings().check(1, is_training=False)


def test_tensorflow_is_not_imported() -> None:
    program = "import sys, slimexp.pipeline.settings, slimexp.pipeline; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
