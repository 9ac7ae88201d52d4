"""Metrics over all batches: those of `tf.compat.v1.metrics`, with the arguments in TF-Slim's order.

Each returns a tensor with its value so far and an operation that takes the next batch into account (and returns the
value with it). Their variables are local ones: run `tf.compat.v1.local_variables_initializer()` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = [
    "streaming_accuracy",
    "streaming_false_negatives",
    "streaming_false_positives",
    "streaming_mean",
    "streaming_mean_absolute_error",
    "streaming_mean_cosine_distance",
    "streaming_mean_iou",
    "streaming_mean_relative_error",
    "streaming_mean_squared_error",
    "streaming_mean_tensor",
    "streaming_percentage_less",
    "streaming_precision",
    "streaming_recall",
    "streaming_root_mean_squared_error",
    "streaming_true_negatives",
    "streaming_true_positives",
]

v1 = tf.compat.v1
_Metric = Callable[..., tuple[Any, Any]]


def _predictions_first(name: str, metric: Callable[..., Any], what: str) -> _Metric:
    def streaming(
        predictions: Any,
        labels: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        return metric(labels, predictions, weights, metrics_collections, updates_collections, name)

    streaming.__name__ = streaming.__qualname__ = name
    streaming.__doc__ = f"""Computes {what} of all batches (graph mode).

    Args:
        predictions: Of any shape.
        labels: Of the same shape.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return streaming


_m = v1.metrics
streaming_true_positives = _predictions_first(
    "streaming_true_positives", _m.true_positives, "how many elements are predicted and true"
)
streaming_true_negatives = _predictions_first(
    "streaming_true_negatives", _m.true_negatives, "how many elements are neither predicted nor true"
)
streaming_false_positives = _predictions_first(
    "streaming_false_positives", _m.false_positives, "how many elements are predicted but not true"
)
streaming_false_negatives = _predictions_first(
    "streaming_false_negatives", _m.false_negatives, "how many elements are true but not predicted"
)
streaming_accuracy = _predictions_first(
    "streaming_accuracy", _m.accuracy, "the share of elements where predictions and labels are equal"
)
streaming_precision = _predictions_first(
    "streaming_precision", _m.precision, "the share of true elements among the predicted ones"
)
streaming_recall = _predictions_first(
    "streaming_recall", _m.recall, "the share of predicted elements among the true ones"
)
streaming_mean_absolute_error = _predictions_first(
    "streaming_mean_absolute_error", _m.mean_absolute_error, "the mean of abs(predictions - labels)"
)
streaming_mean_squared_error = _predictions_first(
    "streaming_mean_squared_error", _m.mean_squared_error, "the mean of (predictions - labels) ** 2"
)
streaming_root_mean_squared_error = _predictions_first(
    "streaming_root_mean_squared_error",
    _m.root_mean_squared_error,
    "the square root of the mean of (predictions - labels) ** 2",
)


def streaming_mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean of the elements of all batches (graph mode).

    Args:
        values: Of any shape.
        weights: A scalar, or of a shape that broadcasts to the values'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return _m.mean(values, weights, metrics_collections, updates_collections, name)


def streaming_mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean over the batches of each element on its own; the arguments are those of `streaming_mean`.

    It works in graphs only.
    """
    return _m.mean_tensor(values, weights, metrics_collections, updates_collections, name)


def streaming_percentage_less(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share, in 0..1, of elements below a threshold (graph mode); the rest is as for `streaming_mean`."""
    return _m.percentage_below(values, threshold, weights, metrics_collections, updates_collections, name)


def streaming_mean_relative_error(
    predictions: Any,
    labels: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean of `abs(predictions - labels) / normalizer`, where elements with normalizer 0 count as 0.

    It works in graphs only.

    Args:
        predictions: Of any shape.
        labels: Of the same shape.
        normalizer: Of the same shape.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return _m.mean_relative_error(
        labels, predictions, normalizer, weights, metrics_collections, updates_collections, name
    )


def streaming_mean_cosine_distance(
    predictions: Any,
    labels: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean of `1 - sum(predictions * labels)` along a dimension, along which both have length 1.

    It works in graphs only.

    Args:
        predictions: Of any shape.
        labels: Of the same shape.
        dim: The dimension.
        weights: Of a shape that broadcasts to the labels' with dimension `dim` 1; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return _m.mean_cosine_distance(labels, predictions, dim, weights, metrics_collections, updates_collections, name)


def streaming_mean_iou(
    predictions: Any,
    labels: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean over the classes of intersection over union, as for segmentations (graph mode).

    Args:
        predictions: Class numbers, of any shape.
        labels: Of the same shape.
        num_classes: The number of classes.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account (it returns the confusion matrix).
    """
    return _m.mean_iou(labels, predictions, num_classes, weights, metrics_collections, updates_collections, name)
