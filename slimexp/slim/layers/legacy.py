"""The fully connected layer of the first TF-Slim programs, which keeps its own names and collections."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.initializers import xavier_initializer
from slimexp.slim.layers.common import Activation, Regularizer, as_floating, known_rank, num_channels
from slimexp.slim.static_shapes import static_sizes
from slimexp.slim.variables import variable

__all__ = ["legacy_fully_connected", "legacy_linear", "legacy_relu"]

_Keys = tf.compat.v1.GraphKeys


@add_arg_scope
def legacy_fully_connected(
    x: Any,
    num_output_units: int,
    activation_fn: Activation | None = None,
    weight_init: Any = xavier_initializer(),  # noqa: B008 - keeps no state
    bias_init: Any = tf.compat.v1.zeros_initializer(),  # noqa: B008 - keeps no state
    name: Any = None,
    weight_collections: Sequence[str] | None = (_Keys.WEIGHTS,),
    bias_collections: Sequence[str] | None = (_Keys.BIASES,),
    output_collections: Sequence[str] | None = (_Keys.ACTIVATIONS,),
    trainable: bool = True,
    weight_regularizer: Regularizer | None = None,
    bias_regularizer: Regularizer | None = None,
) -> Any:
    """Multiplies the last dimension by a matrix, adds a bias, then applies an activation.

    Variables: `weights` [in, out] and `bias` [out]. They are no model variables; `fully_connected` is the layer for new
    programs.

    Args:
        x: Floating point [..., in], of rank 2 or more.
        num_output_units: The number of outputs.
        activation_fn: Applied last; None for none.
        weight_init: Initializer of the weights.
        bias_init: Initializer of the bias; None for no bias.
        name: Name of the layer's variable scope; by default `fully_connected`, made unique.
        weight_collections: Collections for the weights, beside that of the global variables.
        bias_collections: Collections for the bias, likewise.
        output_collections: Collections for the output, beside that of the activations.
        trainable: Whether the variables are trained.
        weight_regularizer: Regularizer of the weights.
        bias_regularizer: Regularizer of the bias.

    Returns:
        The output, [..., num_output_units].

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If the rank is less than 2 or the last dimension is undefined.
    """
    layer = "legacy_fully_connected"
    with tf.compat.v1.variable_scope(name, "fully_connected", [x]):
        x = as_floating(layer, x)
        rank = known_rank(layer, x, 2)
        num_inputs = num_channels(layer, x, -1)
        dtype = x.dtype.base_dtype
        weights = variable(
            "weights",
            shape=[num_inputs, num_output_units],
            dtype=dtype,
            initializer=weight_init,
            regularizer=weight_regularizer,
            trainable=trainable,
            collections=[*(weight_collections or ()), _Keys.GLOBAL_VARIABLES],
        )
        y = tf.matmul(x if rank == 2 else tf.reshape(x, [-1, num_inputs]), weights)
        if bias_init is not None:
            bias = variable(
                "bias",
                shape=[num_output_units],
                dtype=dtype,
                initializer=bias_init,
                regularizer=bias_regularizer,
                trainable=trainable,
                collections=[*(bias_collections or ()), _Keys.GLOBAL_VARIABLES],
            )
            y = tf.nn.bias_add(y, bias)
        if rank > 2:
            y = tf.reshape(y, tf.concat([tf.shape(x)[:-1], [num_output_units]], axis=0))
            y.set_shape([*static_sizes(x)[:-1], num_output_units])
        if activation_fn is not None:
            y = activation_fn(y)
        tf.compat.v1.add_to_collections([*(output_collections or ()), _Keys.ACTIVATIONS], y)
        return y


# As in TF-Slim these are partial functions: a scope for them is opened on legacy_fully_connected.
legacy_linear = functools.partial(legacy_fully_connected, activation_fn=None)
legacy_relu = functools.partial(legacy_fully_connected, activation_fn=tf.nn.relu)
