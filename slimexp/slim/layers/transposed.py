"""Transposed convolutions: the gradient of a convolution as a layer, which makes images larger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

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
    normal_padding,
    num_channels,
)

__all__ = ["conv2d_transpose", "conv3d_transpose", "convolution2d_transpose", "convolution3d_transpose"]

_zeros = tf.compat.v1.zeros_initializer()


@add_arg_scope
def convolution2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
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
    """Adds a transposed convolution over images, then a normalizer or else biases, then an activation.

    Variables: `weights` [height, width, out, in], and `biases` [out] where there is no normalizer.

    Args:
        inputs: Floating point [batch, height, width, in], or [batch, in, height, width] for `NCHW`.
        num_outputs: The number of output channels.
        kernel_size: One size for both dimensions, or one for each.
        stride: The factor by which images grow, likewise.
        padding: `SAME` gives side * stride; `VALID` gives side * stride + max(kernel - stride, 0).
        data_format: `NHWC` or `NCHW`.
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
        scope: Name of the layer's variable scope; by default `Conv2d_transpose`, made unique.

    Returns:
        The output, [batch, height, width, num_outputs] or as `data_format` says.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If rank, sizes, padding or data format do not fit.
    """
    with tf.compat.v1.variable_scope(scope, "Conv2d_transpose", [inputs], reuse=reuse) as sc:
        return _transposed(
            "conv2d_transpose",
            2,
            inputs,
            num_outputs,
            kernel_size,
            stride,
            padding,
            data_format,
            activation_fn,
            normalizer_fn,
            normalizer_params,
            weights_initializer,
            weights_regularizer,
            biases_initializer,
            biases_regularizer,
            variables_collections,
            outputs_collections,
            trainable,
            sc.name,
        )


@add_arg_scope
def convolution3d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str = "NDHWC",
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
    """Adds a transposed convolution over volumes [batch, depth, height, width, in].

    The arguments are those of `conv2d_transpose`, with `NDHWC` or `NCDHW`; the default scope is `Conv3d_transpose`.
    """
    with tf.compat.v1.variable_scope(scope, "Conv3d_transpose", [inputs], reuse=reuse) as sc:
        return _transposed(
            "conv3d_transpose",
            3,
            inputs,
            num_outputs,
            kernel_size,
            stride,
            padding,
            data_format,
            activation_fn,
            normalizer_fn,
            normalizer_params,
            weights_initializer,
            weights_regularizer,
            biases_initializer,
            biases_regularizer,
            variables_collections,
            outputs_collections,
            trainable,
            sc.name,
        )


conv2d_transpose = convolution2d_transpose
conv3d_transpose = convolution3d_transpose


def _transposed(
    layer: str,
    n: int,
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: str,
    data_format: str,
    activation_fn: Activation | None,
    normalizer_fn: Callable[..., Any] | None,
    normalizer_params: Mapping[str, Any] | None,
    weights_initializer: Any,
    weights_regularizer: Regularizer | None,
    biases_initializer: Any,
    biases_regularizer: Regularizer | None,
    variables_collections: VariablesCollections,
    outputs_collections: OutputsCollections,
    trainable: bool,
    alias: str,
) -> Any:
    inputs = as_floating(layer, inputs)
    known_rank(layer, inputs, n + 2, n + 2)
    first = channels_first(layer, data_format, n)
    padding = normal_padding(layer, padding)
    kernel = n_positive(layer, "kernel_size", kernel_size, n)
    strides = n_positive(layer, "stride", stride, n)
    (num_outputs,) = n_positive(layer, "num_outputs", num_outputs, 1)
    num_inputs = num_channels(layer, inputs, 1 if first else -1)
    dtype = inputs.dtype.base_dtype
    weights = layer_variable(
        "weights",
        [*kernel, num_outputs, num_inputs],
        dtype,
        weights_initializer,
        weights_regularizer,
        trainable,
        variables_collections,
    )

    def with_sizes(batch: Any, sides: Sequence[Any]) -> list[Any]:
        larger = [
            None if side is None else side * s + (max(k - s, 0) if padding == "VALID" else 0)
            for side, k, s in zip(sides, kernel, strides, strict=True)
        ]
        return [batch, num_outputs, *larger] if first else [batch, *larger, num_outputs]

    spatial = slice(2, None) if first else slice(1, -1)
    static = inputs.shape.as_list()
    dynamic = tf.unstack(tf.shape(inputs))
    known = [d if s is None else s for s, d in zip(static, dynamic, strict=True)]
    operation = tf.nn.conv2d_transpose if n == 2 else tf.nn.conv3d_transpose
    outputs = operation(
        inputs,
        weights,
        tf.stack(with_sizes(known[0], known[spatial])),
        strides,
        padding,
        data_format,
        name=f"conv{n}d_transpose",
    )
    outputs.set_shape(with_sizes(static[0], static[spatial]))

    def add_bias(outputs: Any) -> Any:
        biases = layer_variable(
            "biases", [num_outputs], dtype, biases_initializer, biases_regularizer, trainable, variables_collections
        )
        return tf.nn.bias_add(outputs, biases, data_format="NCHW" if first else "NHWC", name="BiasAdd")

    return finish_layer(
        outputs,
        alias,
        add_bias=None if biases_initializer is None else add_bias,
        normalizer_fn=normalizer_fn,
        normalizer_params=normalizer_params,
        activation_fn=activation_fn,
        outputs_collections=outputs_collections,
    )
