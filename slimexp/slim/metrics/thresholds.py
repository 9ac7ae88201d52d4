"""Counts and rates of scores at given thresholds, over all batches.

An element is predicted where its score, in 0..1, is above the threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.metrics.common import collected, flat, flat_weights, metric_scope, metric_variable

__all__ = [
    "EPSILON",
    "Counts",
    "from_confusion",
    "streaming_false_negative_rate",
    "streaming_false_negative_rate_at_thresholds",
    "streaming_false_negatives_at_thresholds",
    "streaming_false_positive_rate",
    "streaming_false_positive_rate_at_thresholds",
    "streaming_false_positives_at_thresholds",
    "streaming_precision_at_thresholds",
    "streaming_recall_at_thresholds",
    "streaming_true_negatives_at_thresholds",
    "streaming_true_positives_at_thresholds",
]

v1 = tf.compat.v1
_m = v1.metrics

# What keeps quotients finite, and puts the outermost thresholds below 0 and above 1. As tf.compat.v1.metrics has it.
EPSILON = 1e-7

Counts = dict[str, Any]
_KINDS = ("true_positives", "false_negatives", "false_positives", "true_negatives")


def _confusion_at_thresholds(
    labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any, kinds: Sequence[str] = _KINDS
) -> tuple[Counts, Counts]:
    """Counts elements by kind at each threshold, in variables of that name.

    Returns:
        Kind -> count so far, float32 [thresholds]; kind -> count with this batch, which is taken into account.
    """
    predictions = tf.convert_to_tensor(predictions)
    labels = tf.convert_to_tensor(labels)
    predictions.shape.assert_is_compatible_with(labels.shape)
    checks = [
        tf.debugging.assert_greater_equal(predictions, tf.cast(0, predictions.dtype), "predictions must be in [0, 1]"),
        tf.debugging.assert_less_equal(predictions, tf.cast(1, predictions.dtype), "predictions must be in [0, 1]"),
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        scores = flat(predictions, tf.float32)
    weight = flat_weights(weights, predictions)
    positive = tf.cast(flat(labels, tf.bool), tf.float32)
    above = tf.cast(scores > tf.constant(list(thresholds), tf.float32)[:, tf.newaxis], tf.float32)

    # [thresholds, n] x [n] -> [thresholds]
    in_batch: dict[str, Callable[[], Any]] = {
        "true_positives": lambda: tf.linalg.matvec(above, weight * positive),
        "false_positives": lambda: tf.linalg.matvec(above, weight * (1 - positive)),
        "false_negatives": lambda: tf.linalg.matvec(1 - above, weight * positive),
        "true_negatives": lambda: tf.linalg.matvec(1 - above, weight * (1 - positive)),
    }
    values, updates = {}, {}
    for kind in kinds:
        variable = metric_variable([len(thresholds)], tf.float32, kind)
        values[kind] = tf.identity(variable)
        updates[kind] = tf.identity(variable.assign_add(in_batch[kind]()))
    return values, updates


def from_confusion(
    fn: Callable[[Counts], Any],
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    metrics_collections: Any,
    updates_collections: Any,
    name: str | None,
    default_name: str,
    kinds: Sequence[str] = _KINDS,
) -> tuple[Any, Any]:
    """Makes a metric of a function of the counts at thresholds (graph mode).

    Args:
        fn: Takes a dictionary from kind (`true_positives`, ...) to counts, float32 [thresholds].
        labels: Of any shape; true where not zero.
        predictions: Scores in 0..1, of the same shape.
        thresholds: The thresholds.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.
        default_name: The variable scope if `name` is None.
        kinds: The kinds that `fn` needs.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    with metric_scope(name, default_name, (predictions, labels, weights)):
        values, updates = _confusion_at_thresholds(labels, predictions, thresholds, weights, kinds)
        value = tf.identity(fn(values), name="value")
        update_op = tf.identity(fn(updates), name="update_op")
        return collected(value, update_op, metrics_collections, updates_collections)


def _counted(kind: str, labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any) -> tuple[Any, Any]:
    values, updates = _confusion_at_thresholds(labels, predictions, thresholds, weights, (kind,))
    return values[kind], updates[kind]


def streaming_true_positives_at_thresholds(
    predictions: Any, labels: Any, thresholds: Sequence[float], weights: Any = None
) -> tuple[Any, Any]:
    """Counts the elements that are predicted and true, at each threshold.

    Args:
        predictions: Scores in 0..1, of any shape.
        labels: Of the same shape; true where not zero.
        thresholds: The thresholds.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.

    Returns:
        The counts so far, float32 [thresholds], and the operation that takes a batch into account.
    """
    return _counted("true_positives", labels, predictions, thresholds, weights)


def streaming_false_negatives_at_thresholds(
    predictions: Any, labels: Any, thresholds: Sequence[float], weights: Any = None
) -> tuple[Any, Any]:
    """Counts the elements that are true but not predicted; see `streaming_true_positives_at_thresholds`."""
    return _counted("false_negatives", labels, predictions, thresholds, weights)


def streaming_false_positives_at_thresholds(
    predictions: Any, labels: Any, thresholds: Sequence[float], weights: Any = None
) -> tuple[Any, Any]:
    """Counts the elements that are predicted but not true; see `streaming_true_positives_at_thresholds`."""
    return _counted("false_positives", labels, predictions, thresholds, weights)


def streaming_true_negatives_at_thresholds(
    predictions: Any, labels: Any, thresholds: Sequence[float], weights: Any = None
) -> tuple[Any, Any]:
    """Counts the elements that are neither predicted nor true; see `streaming_true_positives_at_thresholds`."""
    return _counted("true_negatives", labels, predictions, thresholds, weights)


def streaming_precision_at_thresholds(
    predictions: Any,
    labels: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of true elements among the predicted ones, at each threshold (graph mode).

    Args:
        predictions: Scores in 0..1, of any shape.
        labels: Of the same shape; true where not zero.
        thresholds: The thresholds.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The values so far, float32 [thresholds], and the operation that takes a batch into account.
    """
    return _m.precision_at_thresholds(
        labels, predictions, thresholds, weights, metrics_collections, updates_collections, name
    )


def streaming_recall_at_thresholds(
    predictions: Any,
    labels: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of predicted elements among the true ones; see `streaming_precision_at_thresholds`.

    It works in graphs only.
    """
    return _m.recall_at_thresholds(
        labels, predictions, thresholds, weights, metrics_collections, updates_collections, name
    )


def streaming_false_positive_rate_at_thresholds(
    predictions: Any,
    labels: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of predicted elements among those not true; see `streaming_precision_at_thresholds`.

    It works in graphs only.
    """
    return from_confusion(
        lambda c: c["false_positives"] / (EPSILON + c["false_positives"] + c["true_negatives"]),
        labels,
        predictions,
        thresholds,
        weights,
        metrics_collections,
        updates_collections,
        name,
        "false_positive_rate_at_thresholds",
        ("false_positives", "true_negatives"),
    )


def streaming_false_negative_rate_at_thresholds(
    predictions: Any,
    labels: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of elements not predicted among the true ones; see `streaming_precision_at_thresholds`.

    It works in graphs only.
    """
    return from_confusion(
        lambda c: c["false_negatives"] / (EPSILON + c["false_negatives"] + c["true_positives"]),
        labels,
        predictions,
        thresholds,
        weights,
        metrics_collections,
        updates_collections,
        name,
        "false_negative_rate_at_thresholds",
        ("false_negatives", "true_positives"),
    )


def streaming_false_positive_rate(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of predicted elements among those not true, of predictions that are 0 or 1 (graph mode).

    Args:
        predictions: Of any shape; predicted where not zero.
        labels: Of the same shape; true where not zero.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, 0 where there is no such element, and the operation that takes a batch into account.
    """
    with metric_scope(name, "false_positive_rate", (predictions, labels, weights)):
        wrong = _m.false_positives(labels, predictions, weights)
        right = _m.true_negatives(labels, predictions, weights)
        return _share(wrong, right, metrics_collections, updates_collections)


def streaming_false_negative_rate(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of elements not predicted among the true ones; see `streaming_false_positive_rate`.

    It works in graphs only.
    """
    with metric_scope(name, "false_negative_rate", (predictions, labels, weights)):
        wrong = _m.false_negatives(labels, predictions, weights)
        right = _m.true_positives(labels, predictions, weights)
        return _share(wrong, right, metrics_collections, updates_collections)


def _share(
    part: tuple[Any, Any], rest: tuple[Any, Any], metrics_collections: Any, updates_collections: Any
) -> tuple[Any, Any]:
    # Read once the updates are done: an update that is a variable would be read at any time.
    part_now, rest_now = (tf.convert_to_tensor(update) for _, update in (part, rest))
    value = tf.math.divide_no_nan(part[0], part[0] + rest[0], name="value")
    update_op = tf.math.divide_no_nan(part_now, part_now + rest_now, name="update_op")
    return collected(value, update_op, metrics_collections, updates_collections)
