"""The metrics of an evaluation by name, and which values of them are the better ones."""

from __future__ import annotations

import re

__all__ = ["direction_of", "metric_names"]

_UP = ("balanced_accuracy", "mean_average_precision", "precision", "recall", "f1")


def metric_names(task: str, num_classes: int, top_k: int = 5) -> list[str]:
    """Returns the metrics that say how good a model is, first the one that says most.

    Args:
        task: `single` or `multi`.
        num_classes: The number of classes or labels.
        top_k: As for `Accumulator`.
    """
    if task == "multi":
        return [f"eval/{name}" for name in ("mean_average_precision", "f1", "precision", "recall", "loss")]
    best = [f"eval/top{top_k}"] if 1 < top_k < num_classes else []
    return ["eval/top1", *best, "eval/balanced_accuracy", "eval/loss"]


def direction_of(metric: str) -> str | None:
    """Returns `maximize` or `minimize`, or None for a metric that is not known, e.g. `eval/examples`."""
    name = metric.removeprefix("eval/")
    if name == "loss":
        return "minimize"
    return "maximize" if name in _UP or re.fullmatch(r"top\d+", name) else None
