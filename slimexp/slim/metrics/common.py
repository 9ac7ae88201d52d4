"""What the metrics share: their variables, their collections, and how they look at weights."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["collected", "flat", "flat_weights", "metric_scope", "metric_variable"]

v1 = tf.compat.v1


def metric_variable(shape: Any, dtype: tf.DType, name: str, *, validate_shape: bool = True) -> Any:
    """Creates a variable that starts at zero, in the collections of local and of metric variables."""
    return v1.Variable(
        lambda: tf.zeros(shape, dtype),
        trainable=False,
        collections=[v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape,
        use_resource=True,
        name=name,
    )


def metric_scope(name: str | None, default_name: str, values: Any) -> Any:
    """Opens the variable scope of a metric, which also names its operations."""
    return v1.variable_scope(name, default_name, values)


def collected(value: Any, update_op: Any, metrics_collections: Any, updates_collections: Any) -> tuple[Any, Any]:
    """Puts value and update into the collections that the caller names, and returns them."""
    if metrics_collections:
        v1.add_to_collections(metrics_collections, value)
    if updates_collections:
        v1.add_to_collections(updates_collections, update_op)
    return value, update_op


def flat(tensor: Any, dtype: tf.DType) -> Any:
    """Returns a tensor's elements as a vector of a type."""
    return tf.reshape(tf.cast(tensor, dtype), [-1])


def flat_weights(weights: Any, like: Any, dtype: tf.DType = tf.float32) -> Any:
    """Returns one weight per element of `like`, as a vector.

    Args:
        weights: None for ones; else a scalar or of the rank of `like`, with each dimension 1 or that of `like`.
        like: A tensor.
        dtype: The type.
    """
    if weights is None:
        return tf.ones([tf.size(like)], dtype)
    return tf.reshape(tf.broadcast_to(tf.cast(weights, dtype), tf.shape(like)), [-1])
