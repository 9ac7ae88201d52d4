"""Layers that pick or summarise features: maxout, where each channel is strongest, sparse labels, a ball's inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import (
    OutputsCollections,
    VariablesCollections,
    as_floating,
    channels_first,
    known_rank,
    layer_variable,
    num_channels,
)
from slimexp.slim.static_shapes import static_sizes

__all__ = ["bucketize", "dense_to_sparse", "maxout", "poincare_normalize", "spatial_softmax"]


@add_arg_scope
def maxout(inputs: Any, num_units: int, axis: int = -1, scope: Any = None) -> Any:
    """Takes the maximum over groups of neighbouring features (Goodfellow et al., arXiv 1302.4389).

    Args:
        inputs: A tensor of known rank.
        num_units: The number of features that remain; a divisor of their number.
        axis: The dimension of the features.
        scope: Name of the layer's scope; by default `MaxOut`, made unique.

    Returns:
        The inputs with `num_units` features; feature i is the maximum of the i-th group.

    Raises:
        ValueError: If rank or the number of features are undefined, or it is no multiple of `num_units`.
    """
    with tf.compat.v1.variable_scope(scope, "MaxOut", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        rank = known_rank("maxout", inputs, 1)
        if not -rank <= axis < rank:
            raise ValueError(f"maxout: axis={axis} is no dimension of the inputs, whose shape is {inputs.shape}.")
        axis %= rank
        features = num_channels("maxout", inputs, axis)
        if num_units < 1 or features % num_units:
            raise ValueError(f"maxout: the number of features, {features}, is no multiple of num_units={num_units}.")
        sizes = tf.unstack(tf.shape(inputs))
        sizes[axis : axis + 1] = [num_units, features // num_units]
        outputs = tf.reduce_max(tf.reshape(inputs, tf.stack(sizes)), axis=axis + 1)
        outputs.set_shape([num_units if i == axis else size for i, size in enumerate(static_sizes(inputs))])
        return outputs


@add_arg_scope
def spatial_softmax(
    features: Any,
    temperature: float | None = None,
    name: Any = None,
    variables_collections: VariablesCollections = None,
    trainable: bool = True,
    data_format: str = "NHWC",
) -> Any:
    """Finds the point where each channel is strongest, as an expectation (Finn et al., arXiv 1509.06113).

    A softmax over the pixels of a channel weighs their coordinates, which run from -1 to 1.

    Variables: `temperature` [], by which the features are divided.

    Args:
        features: Floating point [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`.
        temperature: The initial temperature; None means 1.
        name: Name of the layer's variable scope; by default `spatial_softmax`, made unique.
        variables_collections: Collections for the variable, or a dictionary with the key `temperature`.
        trainable: Whether the temperature is trained.
        data_format: `NHWC` or `NCHW`.

    Returns:
        [batch, channels * 2]: row and column of each channel in turn.

    Raises:
        TypeError: If the features are not floating point numbers.
        ValueError: If rank or data format do not fit, or the number of channels is undefined.
    """
    with tf.compat.v1.variable_scope(name, "spatial_softmax", [features]):
        features = as_floating("spatial_softmax", features)
        known_rank("spatial_softmax", features, 4, 4)
        if not channels_first("spatial_softmax", data_format, 2):
            features = tf.transpose(features, [0, 3, 1, 2])  # [batch, h, w, c] -> [batch, c, h, w]
        size = num_channels("spatial_softmax", features, 1)
        shape = tf.shape(features)
        height, width = shape[2], shape[3]
        scale = layer_variable(
            "temperature",
            [],
            tf.float32,
            tf.compat.v1.constant_initializer(1.0 if temperature is None else temperature),
            None,
            trainable,
            variables_collections if trainable else None,
        )
        with tf.compat.v1.name_scope("spatial_softmax_op"):
            dtype = features.dtype
            rows, columns = tf.meshgrid(tf.linspace(-1.0, 1.0, height), tf.linspace(-1.0, 1.0, width), indexing="ij")
            points = tf.cast(tf.stack([tf.reshape(rows, [-1]), tf.reshape(columns, [-1])], axis=1), dtype)
            logits = tf.reshape(features, tf.stack([-1, height * width])) / tf.cast(scale, dtype)
            expected = tf.matmul(tf.nn.softmax(logits), points)  # [batch * c, 2]
            outputs = tf.reshape(expected, [-1, size * 2])
            outputs.set_shape([static_sizes(features)[0], size * 2])
            return outputs


@add_arg_scope
def dense_to_sparse(
    tensor: Any, eos_token: int = 0, outputs_collections: OutputsCollections = None, scope: Any = None
) -> tf.SparseTensor:
    """Keeps the elements that are not the end-of-sequence token, as a sparse tensor: labels for the CTC loss.

    Args:
        tensor: Integers of any shape.
        eos_token: The element to leave out.
        outputs_collections: Collections for the output.
        scope: Name of the layer's scope; by default `dense_to_sparse`, made unique.
    """
    with tf.compat.v1.variable_scope(scope, "dense_to_sparse", [tensor]) as sc:
        tensor = tf.convert_to_tensor(tensor)
        indices = tf.where(tf.not_equal(tensor, tf.cast(eos_token, tensor.dtype)))
        outputs = tf.SparseTensor(indices, tf.gather_nd(tensor, indices), tf.shape(tensor, out_type=tf.int64))
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)


def poincare_normalize(x: Any, axis: int | Sequence[int] = 1, epsilon: float = 1e-5, name: str | None = None) -> Any:
    """Moves vectors longer than 1 - epsilon onto that length: into the Poincare ball (Nickel and Kiela, 1705.08039).

    Args:
        x: Floating point, of any shape.
        axis: The dimension, or dimensions, along which the vectors lie.
        epsilon: The distance that is kept from the border of the ball.
        name: Name of the operation; by default `poincare_normalize`.
    """
    with tf.compat.v1.name_scope(name, "poincare_normalize", [x]) as scope:
        x = tf.convert_to_tensor(x, name="x")
        square_length = tf.reduce_sum(tf.square(x), axis, keepdims=True)
        return tf.multiply(x, tf.minimum((1.0 - epsilon) * tf.math.rsqrt(square_length), 1.0), name=scope)


def bucketize(input_tensor: Any, boundaries: Sequence[float], name: str | None = None) -> Any:
    """Returns for each number how many boundaries are not above it: the bucket that it falls into.

    Args:
        input_tensor: Numbers of any shape.
        boundaries: A sorted list of floats.
        name: Name of the operation.

    Returns:
        int32, shaped as the input.

    Raises:
        TypeError: If `boundaries` is not a list.
    """
    if not isinstance(boundaries, (list, tuple)):
        raise TypeError(f"bucketize: boundaries must be a list of floats, not {boundaries!r}.")
    return tf.raw_ops.Bucketize(input=input_tensor, boundaries=list(boundaries), name=name)
