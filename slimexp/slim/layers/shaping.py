"""Layers without variables: change shape, encode labels, turn logits into probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import known_rank, scoped_alias
from slimexp.slim.static_shapes import static_sizes

__all__ = ["flatten", "one_hot_encoding", "scale_gradient", "softmax", "unit_norm"]


@add_arg_scope
def flatten(inputs: Any, outputs_collections: str | Sequence[str] | None = None, scope: str | None = None) -> Any:
    """Makes one dimension of all but the first.

    Args:
        inputs: [batch, ...], of rank 1 or more.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `Flatten`.

    Returns:
        [batch, k], k being static where all dimensions but the first are; 1 for inputs of rank 1.

    Raises:
        ValueError: If the rank is undefined or 0.
    """
    with tf.compat.v1.name_scope(scope, "Flatten", [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        known_rank("flatten", inputs, 1)
        num_examples, *sizes = static_sizes(inputs)
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            size = math.prod(known)
            # The batch size is spelled out where -1 is ambiguous: there are no elements to count.
            batch = -1 if size else tf.shape(inputs)[0]
            outputs = tf.reshape(inputs, [batch, size])
            outputs.set_shape([num_examples, size])
        else:
            shape = tf.shape(inputs)
            outputs = tf.reshape(inputs, tf.stack([shape[0], tf.reduce_prod(shape[1:])]))
            outputs.set_shape([num_examples, None])
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int | None,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | None = None,
) -> Any:
    """Turns class numbers into vectors.

    Args:
        labels: Integers, each in 0..num_classes - 1, e.g. [batch]. Another number gives a vector without `on_value`.
        num_classes: The length of the vectors.
        on_value: The element at the class number.
        off_value: The other elements.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `OneHotEncoding`.

    Returns:
        float32 [..., num_classes].
    """
    with tf.compat.v1.name_scope(scope, "OneHotEncoding", [labels, num_classes]) as sc:
        labels = tf.convert_to_tensor(labels)
        if labels.dtype == tf.int32:
            labels = tf.cast(labels, tf.int64)
        outputs = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)


@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Any:
    """Turns logits into probabilities along the last dimension, whatever the rank.

    Args:
        logits: Floating point [..., classes], of rank 2 or more.
        scope: Name of the layer's scope; by default `softmax`.

    Returns:
        The probabilities, shaped as the logits. In a graph the operation is called `Reshape_1` within its scope,
        which is what published graphs name as their output.
    """
    with tf.compat.v1.variable_scope(scope, "softmax", [logits]):
        logits = tf.convert_to_tensor(logits)
        num_classes = utils.last_dimension(logits.shape, min_rank=2)
        flat = tf.reshape(logits, [-1, num_classes], name="Reshape")
        predictions = tf.reshape(tf.nn.softmax(flat), tf.shape(logits), name="Reshape_1")
        predictions.set_shape(logits.shape)
        return predictions


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: str | None = None) -> Any:
    """Divides the inputs by their length (l2 norm) along one dimension.

    Args:
        inputs: A tensor of known rank.
        dim: The dimension, 0..rank - 1.
        epsilon: Added to the squared length, so that zeros stay zeros.
        scope: Name of the layer's name scope; by default `UnitNorm`.

    Raises:
        ValueError: If the rank is unknown or `dim` is not one of its dimensions.
    """
    with tf.compat.v1.name_scope(scope, "UnitNorm", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.rank
        if rank is None or not 0 <= dim < rank:
            raise ValueError(f"unit_norm: dim={dim} must be a dimension of the inputs, whose shape is {inputs.shape}.")
        return inputs / tf.sqrt(tf.reduce_sum(tf.square(inputs), axis=dim, keepdims=True) + epsilon)


@add_arg_scope
def scale_gradient(inputs: Any, gradient_multiplier: Any) -> Any:
    """Lets values through unchanged and multiplies the gradient that comes back.

    Args:
        inputs: A tensor.
        gradient_multiplier: The factor; negative turns the gradient round, as adversarial training wants it.
    """

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        return tf.identity(x), lambda gradient: gradient * tf.cast(gradient_multiplier, gradient.dtype)

    return scaled(tf.convert_to_tensor(inputs))
