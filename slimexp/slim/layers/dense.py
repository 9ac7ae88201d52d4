"""Fully connected layers, and biases on their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.initializers import xavier_initializer
from slimexp.slim.layers.common import (
    Activation,
    OutputsCollections,
    Regularizer,
    VariablesCollections,
    as_floating,
    channels_first,
    finish_layer,
    known_rank,
    layer_variable,
    n_positive,
    num_channels,
)
from slimexp.slim.static_shapes import static_sizes

__all__ = ["bias_add", "elu", "fully_connected", "linear", "relu", "relu6"]

_zeros = tf.compat.v1.zeros_initializer()


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Activation | None = tf.nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008 - keeps no state
    weights_regularizer: Regularizer | None = None,
    biases_initializer: Any = _zeros,
    biases_regularizer: Regularizer | None = None,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Multiplies the last dimension by a matrix, then adds a normalizer or else biases, then an activation.

    Variables: `weights` [in, out], and `biases` [out] where there is no normalizer.

    Args:
        inputs: Floating point [..., in], of rank 2 or more.
        num_outputs: The number of outputs.
        activation_fn: Applied last; None for none.
        normalizer_fn: Applied instead of biases, e.g. `batch_norm`.
        normalizer_params: Keyword arguments for it.
        weights_initializer: Initializer of the weights.
        weights_regularizer: Regularizer of the weights.
        biases_initializer: Initializer of the biases; None for no biases.
        biases_regularizer: Regularizer of the biases.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether the variables are trained.
        scope: Name of the layer's variable scope; by default `fully_connected`, made unique.

    Returns:
        The output, [..., num_outputs].

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If the rank is less than 2, the last dimension is unknown, or `num_outputs` is not positive.
    """
    with tf.compat.v1.variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as sc:
        inputs = as_floating("fully_connected", inputs)
        num_inputs = utils.last_dimension(inputs.shape, min_rank=2)
        (num_outputs,) = n_positive("fully_connected", "num_outputs", num_outputs, 1)
        dtype = inputs.dtype.base_dtype
        weights = layer_variable(
            "weights",
            [num_inputs, num_outputs],
            dtype,
            weights_initializer,
            weights_regularizer,
            trainable,
            variables_collections,
        )
        if inputs.shape.rank == 2:
            outputs = tf.matmul(inputs, weights, name="MatMul")
        else:
            outputs = tf.tensordot(inputs, weights, [[inputs.shape.rank - 1], [0]], name="Tensordot")
            outputs.set_shape([*static_sizes(inputs)[:-1], num_outputs])

        def add_bias(outputs: Any) -> Any:
            biases = layer_variable(
                "biases",
                [num_outputs],
                dtype,
                biases_initializer,
                biases_regularizer,
                trainable,
                variables_collections,
            )
            return tf.nn.bias_add(outputs, biases, name="BiasAdd")

        return finish_layer(
            outputs,
            sc.name,
            add_bias=None if biases_initializer is None else add_bias,
            normalizer_fn=normalizer_fn,
            normalizer_params=normalizer_params,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


# As in TF-Slim these are partial functions: a scope for them is opened on fully_connected.
elu = functools.partial(fully_connected, activation_fn=tf.nn.elu)
linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=tf.nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=tf.nn.relu6)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Activation | None = None,
    initializer: Any = _zeros,
    regularizer: Regularizer | None = None,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Adds a bias to each channel, then an activation.

    Variables: `biases` [channels].

    Args:
        inputs: Floating point [..., channels], of rank 2 or more; [batch, channels, height, width] for `NCHW`.
        activation_fn: Applied last; None for none.
        initializer: Initializer of the biases.
        regularizer: Regularizer of the biases.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether the biases are trained.
        data_format: `NHWC` or `NCHW`.
        scope: Name of the layer's variable scope; by default `BiasAdd`, made unique.

    Returns:
        The output, shaped as the inputs.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If the number of channels is unknown, or the data format does not fit the rank.
    """
    with tf.compat.v1.variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as sc:
        inputs = as_floating("bias_add", inputs)
        first = channels_first("bias_add", data_format, 2)
        if first:
            known_rank("bias_add with data_format=NCHW", inputs, 4, 4)
        else:
            known_rank("bias_add", inputs, 2)
        biases = layer_variable(
            "biases",
            [num_channels("bias_add", inputs, 1 if first else -1)],
            inputs.dtype.base_dtype,
            initializer,
            regularizer,
            trainable,
            variables_collections,
        )
        outputs = tf.nn.bias_add(inputs, biases, data_format=data_format, name="BiasAdd")
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)
