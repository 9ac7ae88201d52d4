"""Metrics of the k classes with the highest scores, over all batches.

`labels` may be a `tf.SparseTensor` or dense; each example may have several. Where a `class_id` is given, only that
class counts.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim.metrics.common import collected, metric_scope, metric_variable
from slimexp.slim.static_shapes import static_sizes

__all__ = [
    "sparse_recall_at_top_k",
    "streaming_recall_at_k",
    "streaming_sparse_average_precision_at_k",
    "streaming_sparse_average_precision_at_top_k",
    "streaming_sparse_precision_at_k",
    "streaming_sparse_precision_at_top_k",
    "streaming_sparse_recall_at_k",
]

v1 = tf.compat.v1
_m = v1.metrics


def streaming_recall_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of examples whose class is among the k with the highest scores (graph mode).

    Args:
        predictions: Scores, float32 [batch, classes].
        labels: Class numbers, [batch].
        k: How many classes count. With as many as there are, every example is right.
        weights: [batch]; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    found = tf.cast(v1.math.in_top_k(predictions, labels, k), tf.float32)
    return _m.mean(found, weights, metrics_collections, updates_collections, name or f"recall_at_{k}")


def streaming_sparse_recall_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of the labels that are among the k classes with the highest scores of their example.

    It works in graphs only.

    Args:
        predictions: Scores, [..., classes].
        labels: Class numbers, int64 [..., labels]; values outside of the classes count as never found.
        k: How many classes count.
        class_id: Count only labels of this class; None for all.
        weights: Of the shape of the labels without the last dimension, or one that broadcasts to it; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return _m.recall_at_k(labels, predictions, k, class_id, weights, metrics_collections, updates_collections, name)


def streaming_sparse_precision_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the share of labels among the k classes with the highest scores of each example (graph mode).

    The arguments are those of `streaming_sparse_recall_at_k`.
    """
    return _m.precision_at_k(labels, predictions, k, class_id, weights, metrics_collections, updates_collections, name)


def streaming_sparse_precision_at_top_k(
    top_k_predictions: Any,
    labels: Any,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes `streaming_sparse_precision_at_k` from class numbers, int64 [..., k], rather than scores.

    It works in graphs only.
    """
    k = _k(top_k_predictions)
    name = name or _name("precision", k, class_id)
    return _m.precision_at_top_k(
        labels, top_k_predictions, k, class_id, weights, metrics_collections, updates_collections, name
    )


def sparse_recall_at_top_k(
    labels: Any,
    top_k_predictions: Any,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes `streaming_sparse_recall_at_k` from class numbers, int64 [..., k], rather than scores (graph mode)."""
    k = _k(top_k_predictions)
    name = name or _name("recall", k, class_id)
    return _m.recall_at_top_k(
        labels, top_k_predictions, k, class_id, weights, metrics_collections, updates_collections, name
    )


def streaming_sparse_average_precision_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean over the examples of the average precision at k (graph mode).

    That is the mean, over an example's labels (k of them at most), of the precision among the classes with scores as
    high as the label's; labels outside of the highest k count as 0.

    Args:
        predictions: Scores, [..., classes].
        labels: Class numbers, int64 [..., labels].
        k: How many classes count.
        weights: Of the shape of the labels without the last dimension, or one that broadcasts to it; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, and the operation that takes a batch into account.
    """
    return _m.average_precision_at_k(labels, predictions, k, weights, metrics_collections, updates_collections, name)


def streaming_sparse_average_precision_at_top_k(
    top_k_predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes `streaming_sparse_average_precision_at_k` from class numbers, int64 [..., k], rather than scores.

    It works in graphs only.
    """
    top_k = tf.cast(top_k_predictions, tf.int64)
    k = _k(top_k)
    with metric_scope(name, f"average_precision_at_{k}", (top_k, weights)):
        if isinstance(labels, tf.SparseTensor):
            # -1 is no class that a network predicts.
            num_labels = tf.sparse.reduce_sum(tf.sparse.map_values(tf.ones_like, labels), -1)
            labels = tf.sparse.to_dense(labels, default_value=-1)
        else:
            labels = tf.convert_to_tensor(labels)
            if labels.shape.rank is not None and labels.shape.rank == top_k.shape.rank - 1:
                labels = labels[..., tf.newaxis]
            num_labels = tf.fill(tf.shape(labels)[:-1], tf.shape(labels)[-1])
        if None not in (labels.shape.rank, top_k.shape.rank) and labels.shape.rank != top_k.shape.rank:
            raise ValueError(
                f"top_k_predictions must be [..., k] and labels [..., labels], but have shapes {top_k.shape} and "
                f"{labels.shape}."
            )
        labels = tf.cast(labels, tf.int64)
        # [..., k, 1] == [..., 1, labels]
        hit = tf.reduce_any(tf.equal(top_k[..., tf.newaxis], labels[..., tf.newaxis, :]), -1)
        hit = tf.cast(hit, tf.float64)
        precision = tf.cumsum(hit, -1) / tf.range(1, k + 1, dtype=tf.float64)
        relevant = tf.cast(tf.minimum(tf.cast(num_labels, tf.int64), k), tf.float64)
        average = tf.math.divide_no_nan(tf.reduce_sum(hit * precision, -1), relevant)
        if weights is None:
            weight = tf.ones_like(average)
        else:
            weight = tf.broadcast_to(tf.cast(weights, tf.float64), tf.shape(average))
        total = metric_variable([], tf.float64, "total")
        maximum = metric_variable([], tf.float64, "max")
        new_total = total.assign_add(tf.reduce_sum(average * weight))
        new_maximum = maximum.assign_add(tf.reduce_sum(weight))
        value = tf.math.divide_no_nan(tf.identity(total), tf.identity(maximum), name="value")
        update_op = tf.math.divide_no_nan(tf.identity(new_total), tf.identity(new_maximum), name="update")
        return collected(value, update_op, metrics_collections, updates_collections)


def _k(top_k_predictions: Any) -> int:
    k = static_sizes(tf.convert_to_tensor(top_k_predictions))[-1]
    if k is None:
        raise ValueError("The last dimension of top_k_predictions, k, must be known; set it with tf.ensure_shape.")
    return k


def _name(metric: str, k: int, class_id: int | None) -> str:
    return f"{metric}_at_{k}" if class_id is None else f"{metric}_at_{k}_class{class_id}"
