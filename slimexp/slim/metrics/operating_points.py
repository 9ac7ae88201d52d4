"""Curves of scores over all thresholds, the area under them, and the points on them that are asked for.

An element is predicted where its score, in 0..1, is above the threshold.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim.metrics.thresholds import EPSILON, Counts, from_confusion

__all__ = [
    "check_curve",
    "f1_score",
    "precision_at_recall",
    "recall_at_precision",
    "streaming_auc",
    "streaming_curve_points",
    "streaming_sensitivity_at_specificity",
    "streaming_specificity_at_sensitivity",
]

_m = tf.compat.v1.metrics


def _even_thresholds(num_thresholds: int) -> list[float]:
    inner = [(i + 1) / (num_thresholds - 1) for i in range(num_thresholds - 2)]
    return [-EPSILON, *inner, 1 + EPSILON]


def streaming_curve_points(
    labels: Any = None,
    predictions: Any = None,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the points of the ROC or precision-recall curve (graph mode).

    Args:
        labels: Of any shape; true where not zero.
        predictions: Scores in 0..1, of the same shape.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        num_thresholds: How many thresholds, evenly from just below 0 to just above 1.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        curve: `ROC`: false positive rate against true positive rate; `PR`: recall against precision.
        name: The variable scope.

    Returns:
        The points, float32 [num_thresholds, 2], and the operation that takes a batch into account.

    Raises:
        ValueError: For another `curve`.
    """
    check_curve(curve)

    def points(c: Counts) -> Any:
        recall = (c["true_positives"] + EPSILON) / (c["true_positives"] + c["false_negatives"] + EPSILON)
        if curve == "ROC":
            rate = c["false_positives"] / (c["false_positives"] + c["true_negatives"] + EPSILON)
            return tf.stack([rate, recall], 1)
        precision = (c["true_positives"] + EPSILON) / (c["true_positives"] + c["false_positives"] + EPSILON)
        return tf.stack([recall, precision], 1)

    return from_confusion(
        points,
        labels,
        predictions,
        _even_thresholds(num_thresholds),
        weights,
        metrics_collections,
        updates_collections,
        name,
        "curve_points",
    )


def check_curve(curve: str) -> None:
    """Raises a ValueError unless the curve is one that there is."""
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")


def streaming_auc(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the area under the ROC or precision-recall curve between its points at evenly spaced thresholds.

    It works in graphs only.

    Args:
        predictions: Scores in 0..1, of any shape.
        labels: Of the same shape; true where not zero.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        num_thresholds: How many thresholds; the more, the better the approximation.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        curve: `ROC` or `PR`.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return _m.auc(labels, predictions, weights, num_thresholds, metrics_collections, updates_collections, curve, name)


def streaming_specificity_at_sensitivity(
    predictions: Any,
    labels: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the true negative rate at the threshold whose true positive rate is nearest to `sensitivity`.

    It works in graphs only.

    The other arguments are those of `streaming_auc`.
    """
    return _m.specificity_at_sensitivity(
        labels, predictions, sensitivity, weights, num_thresholds, metrics_collections, updates_collections, name
    )


def streaming_sensitivity_at_specificity(
    predictions: Any,
    labels: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the true positive rate at the threshold whose true negative rate is nearest to `specificity`.

    It works in graphs only.

    The other arguments are those of `streaming_auc`.
    """
    return _m.sensitivity_at_specificity(
        labels, predictions, specificity, weights, num_thresholds, metrics_collections, updates_collections, name
    )


def recall_at_precision(
    labels: Any,
    predictions: Any,
    precision: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
    strict_mode: bool = False,
) -> tuple[Any, Any]:
    """Computes the recall at the threshold whose precision is nearest to the given one (graph mode).

    Args:
        labels: Of any shape; true where not zero.
        predictions: Scores in 0..1, of the same shape.
        precision: The wanted precision, in 0..1.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        num_thresholds: How many thresholds, evenly from just below 0 to just above 1.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.
        strict_mode: Take only thresholds whose precision is not less; the value is 0 if there is none.

    Returns:
        The value, and the operation that takes a batch into account.

    Raises:
        ValueError: If `precision` is not in 0..1.
    """
    if not 0 <= precision <= 1:
        raise ValueError(f"recall_at_precision: precision must be in 0..1, got {precision}.")

    def recall(c: Counts) -> Any:
        precisions = tf.math.divide_no_nan(c["true_positives"], c["true_positives"] + c["false_positives"])
        recalls = tf.math.divide_no_nan(c["true_positives"], c["true_positives"] + c["false_negatives"])
        distance = tf.abs(precisions - precision)
        if strict_mode:
            reached = precisions >= precision
            best = recalls[tf.argmin(tf.where(reached, distance, 2.0))]
            return tf.where(tf.reduce_any(reached), best, 0.0)
        return recalls[tf.argmin(distance)]

    return from_confusion(
        recall,
        labels,
        predictions,
        _even_thresholds(num_thresholds),
        weights,
        metrics_collections,
        updates_collections,
        name,
        "recall_at_precision",
    )


def precision_at_recall(
    labels: Any,
    predictions: Any,
    target_recall: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the precision at the highest threshold whose recall is not less than the given one (graph mode).

    Args:
        labels: Of any shape; true where not zero.
        predictions: Scores in 0..1, of the same shape.
        target_recall: The wanted recall, in 0..1.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        num_thresholds: How many thresholds, evenly from just below 0 to just above 1.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, 0 where no element is true, and the operation that takes a batch into account.

    Raises:
        ValueError: If `target_recall` is not in 0..1.
    """
    if not 0 <= target_recall <= 1:
        raise ValueError(f"precision_at_recall: target_recall must be in 0..1, got {target_recall}.")

    def precision(c: Counts) -> Any:
        precisions = tf.math.divide_no_nan(c["true_positives"], c["true_positives"] + c["false_positives"])
        recalls = tf.math.divide_no_nan(c["true_positives"], c["true_positives"] + c["false_negatives"])
        # Recall falls with the threshold, so the last that reaches it is the highest threshold.
        num_reached = tf.reduce_sum(tf.cast(recalls >= target_recall, tf.int32))
        return tf.where(num_reached > 0, precisions[tf.maximum(num_reached - 1, 0)], 0.0)

    return from_confusion(
        precision,
        labels,
        predictions,
        _even_thresholds(num_thresholds),
        weights,
        metrics_collections,
        updates_collections,
        name,
        "precision_at_recall",
    )


def f1_score(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the best F1 score, the harmonic mean of precision and recall, over the thresholds (graph mode).

    Args:
        labels: Of any shape; true where not zero.
        predictions: Scores in 0..1, of the same shape.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        num_thresholds: How many thresholds, evenly from just below 0 to just above 1.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """

    def best(c: Counts) -> Any:
        hits = 2 * c["true_positives"]
        return tf.reduce_max(tf.math.divide_no_nan(hits, hits + c["false_positives"] + c["false_negatives"]))

    return from_confusion(
        best,
        labels,
        predictions,
        _even_thresholds(num_thresholds),
        weights,
        metrics_collections,
        updates_collections,
        name,
        "f1",
        ("true_positives", "false_positives", "false_negatives"),
    )
