"""Take apart the pairs of value and update that metrics return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["aggregate_metric_map", "aggregate_metrics"]


def aggregate_metrics(*value_update_tuples: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Returns the values of several metrics, and their updates, as two lists.

    Raises:
        ValueError: If there is none.
    """
    if not value_update_tuples:
        raise ValueError("aggregate_metrics: give at least one pair of value and update, as a metric returns it.")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(names_to_tuples: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values of several metrics, and their updates, as two dictionaries.

        names_to_values, names_to_updates = aggregate_metric_map({
            "accuracy": slim.metrics.streaming_accuracy(predictions, labels),
            "mean_loss": slim.metrics.streaming_mean(loss),
        })

    Args:
        names_to_tuples: Name -> pair of value and update.
    """
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    updates = {name: update for name, (_, update) in names_to_tuples.items()}
    return values, updates
