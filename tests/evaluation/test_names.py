from __future__ import annotations

import numpy as np
import pytest

from slimexp.evaluation import Accumulator, direction_of, metric_names


@pytest.mark.parametrize(("task", "classes", "top_k"), [("single", 10, 5), ("single", 3, 5), ("multi", 3, 5)])
def test_the_names_are_those_of_an_evaluation(task: str, classes: int, top_k: int) -> None:
    accumulator = Accumulator(task, [str(c) for c in range(classes)], top_k)
    labels = np.arange(2) if task == "single" else np.ones((2, classes), np.int8)
    accumulator.update(np.zeros((2, classes)), labels, np.ones(2, bool), np.arange(2))
    names = metric_names(task, classes, top_k)
    assert set(names) <= set(accumulator.summarize())
    assert all(direction_of(name) for name in names)
    assert (f"eval/top{top_k}" in names) == (classes == 10)


def test_directions() -> None:
    assert [direction_of(f"eval/{name}") for name in ("loss", "top1", "top5", "f1", "examples")] == [
        "minimize",
        "maximize",
        "maximize",
        "maximize",
        None,
    ]
