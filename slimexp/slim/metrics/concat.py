"""Keep the values of all batches, or only count them."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from slimexp.slim.metrics.common import collected, metric_scope, metric_variable

__all__ = ["count", "streaming_concat"]

v1 = tf.compat.v1


def streaming_concat(
    values: Any,
    axis: int = 0,
    max_size: int | None = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Joins the values of all batches along an axis (graph mode).

    Args:
        values: Of a known rank; all dimensions but that of the axis must be known.
        axis: The axis; negative ones count from the end.
        max_size: Keep only the first so many along the axis; None for all.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The values so far, and the operation that adds a batch.

    Raises:
        ValueError: If rank or a dimension is unknown, or there is no such axis.
    """
    with metric_scope(name, "streaming_concat", (values,)):
        values = tf.convert_to_tensor(values)
        rank = values.shape.rank
        if rank is None:
            raise ValueError("streaming_concat: the rank of the values must be known; set it with tf.ensure_shape.")
        if not -rank <= axis < rank:
            raise ValueError(
                f"streaming_concat: axis must be in {-rank}..{rank - 1} for values of rank {rank}, got {axis}."
            )
        axis %= rank
        fixed = [size for i, size in enumerate(values.shape.as_list()) if i != axis]
        if None in fixed:
            raise ValueError(
                f"streaming_concat: all dimensions but {axis} must be known, but the shape is {values.shape}."
            )
        # The axis first, where the array grows.
        order = [axis, *(i for i in range(rank) if i != axis)]
        back = [order.index(i) for i in range(rank)]
        array = metric_variable([0, *fixed], values.dtype, "array", validate_shape=False)
        size = metric_variable([], tf.int32, "size")

        def stored() -> Any:
            joined = tf.transpose(array.read_value()[: size.read_value()], back)
            shape = values.shape.as_list()
            shape[axis] = None
            return tf.ensure_shape(joined, shape)

        def append() -> Any:
            batch = tf.transpose(values, order)
            if max_size is not None:
                batch = batch[: tf.maximum(max_size - size.read_value(), 0)]
            new_size = size.read_value() + tf.shape(batch)[0]
            room = tf.shape(array.read_value())[0]

            def grow() -> Any:
                more = tf.zeros([_next_array_size(new_size) - room, *fixed], values.dtype)
                return tf.group(array.assign(tf.concat([array.read_value(), more], 0)))

            with tf.control_dependencies([tf.cond(new_size > room, grow, tf.no_op)]):
                written = array[size.read_value() : new_size].assign(batch)
            with tf.control_dependencies([written]):
                return tf.group(size.assign(new_size))

        return collected(stored(), append(), metrics_collections, updates_collections)


def _next_array_size(required_size: Any, growth_factor: float = 1.5) -> Any:
    """Returns the least power of the factor, rounded up, that is not less: growing costs little on average."""
    exponent = tf.math.ceil(tf.math.log(tf.cast(required_size, tf.float64)) / math.log(growth_factor))
    return tf.cast(tf.math.ceil(growth_factor**exponent), tf.int32)


def count(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Counts the elements of all batches (graph mode).

    Args:
        values: Of any shape.
        weights: A scalar, or of a shape that broadcasts to the values': how much an element counts; None for 1.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The count so far, a float32 scalar, and the operation that takes a batch into account.
    """
    with metric_scope(name, "count", (values, weights)):
        values = tf.convert_to_tensor(values)
        variable = metric_variable([], tf.float32, "count")
        if weights is None:
            in_batch = tf.cast(tf.size(values), tf.float32)
        else:
            in_batch = tf.reduce_sum(tf.broadcast_to(tf.cast(weights, tf.float32), tf.shape(values)))
        update_op = tf.identity(variable.assign_add(in_batch))
        return collected(tf.identity(variable), update_op, metrics_collections, updates_collections)
