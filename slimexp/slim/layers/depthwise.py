"""Convolutions that filter each channel on its own: separable ones, and one filter for all channels."""

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

__all__ = ["conv2d_in_plane", "convolution2d_in_plane", "separable_conv2d", "separable_convolution2d"]

_zeros = tf.compat.v1.zeros_initializer()


@add_arg_scope
def separable_convolution2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: int | Sequence[int],
    depth_multiplier: int = 1,
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: int | Sequence[int] = 1,
    activation_fn: Activation | None = tf.nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008 - keeps no state
    pointwise_initializer: Any = None,
    weights_regularizer: Regularizer | None = None,
    biases_initializer: Any = _zeros,
    biases_regularizer: Regularizer | None = None,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Filters each channel on its own, then mixes the channels of each pixel; then biases and activation.

    Variables: `depthwise_weights` [height, width, in, depth_multiplier], `pointwise_weights`
    [1, 1, in * depth_multiplier, out], and `biases` where there is no normalizer.

    Args:
        inputs: Floating point [batch, height, width, in], or [batch, in, height, width] for `NCHW`.
        num_outputs: The number of outputs of the pointwise convolution; None leaves that stage out.
        kernel_size: Size of the depthwise filters, one for both dimensions or one for each.
        depth_multiplier: The number of depthwise filters per channel.
        stride: Of the depthwise stage; both dimensions alike, not together with a rate.
        padding: `SAME` or `VALID`.
        data_format: `NHWC` or `NCHW`.
        rate: Dilation of the depthwise filters.
        activation_fn: Applied last; None for none.
        normalizer_fn: Applied instead of biases, e.g. `batch_norm`.
        normalizer_params: Keyword arguments for it.
        weights_initializer: Initializer of the depthwise weights.
        pointwise_initializer: Initializer of the pointwise weights; None takes `weights_initializer`.
        weights_regularizer: Regularizer of both.
        biases_initializer: Initializer of the biases; None for no biases.
        biases_regularizer: Regularizer of the biases.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary; `weights` stands for both weights.
        outputs_collections: Collections for the output.
        trainable: Whether the variables are trained.
        scope: Name of the layer's variable scope; by default `SeparableConv2d`, made unique.

    Returns:
        The output; it has num_outputs channels, or in * depth_multiplier.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If rank, sizes, padding or data format do not fit.
    """
    layer = "separable_conv2d"
    with tf.compat.v1.variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse) as sc:
        inputs = as_floating(layer, inputs)
        known_rank(layer, inputs, 4, 4)
        first = channels_first(layer, data_format, 2)
        padding = normal_padding(layer, padding)
        kernel, strides, rates = _windows(layer, kernel_size, stride, rate)
        (depth_multiplier,) = n_positive(layer, "depth_multiplier", depth_multiplier, 1)
        num_inputs = num_channels(layer, inputs, 1 if first else -1)
        dtype = inputs.dtype.base_dtype
        if isinstance(variables_collections, Mapping):
            both = variables_collections.get("weights", ())
            variables_collections = {
                "depthwise_weights": both,
                "pointwise_weights": both,
                "biases": variables_collections.get("biases", ()),
            }
        depthwise = layer_variable(
            "depthwise_weights",
            [*kernel, num_inputs, depth_multiplier],
            dtype,
            weights_initializer,
            weights_regularizer,
            trainable,
            variables_collections,
        )
        outputs = tf.nn.depthwise_conv2d(
            inputs,
            depthwise,
            [1, 1, *strides] if first else [1, *strides, 1],
            padding,
            "NCHW" if first else "NHWC",
            rates,
            name="depthwise",
        )
        size = num_inputs * depth_multiplier
        if num_outputs is not None:
            (num_outputs,) = n_positive(layer, "num_outputs", num_outputs, 1)
            pointwise = layer_variable(
                "pointwise_weights",
                [1, 1, size, num_outputs],
                dtype,
                weights_initializer if pointwise_initializer is None else pointwise_initializer,
                weights_regularizer,
                trainable,
                variables_collections,
            )
            outputs = tf.nn.conv2d(outputs, pointwise, 1, "VALID", "NCHW" if first else "NHWC", name="separable_conv2d")
            size = num_outputs

        def add_bias(outputs: Any) -> Any:
            biases = layer_variable(
                "biases", [size], dtype, biases_initializer, biases_regularizer, trainable, variables_collections
            )
            return tf.nn.bias_add(outputs, biases, data_format="NCHW" if first else "NHWC", name="BiasAdd")

        return finish_layer(
            outputs,
            sc.name,
            add_bias=None if biases_initializer is None else add_bias,
            normalizer_fn=normalizer_fn,
            normalizer_params=normalizer_params,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


@add_arg_scope
def convolution2d_in_plane(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
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
    """Filters all channels by the same filter, each on its own: for blurs and image gradients.

    Variables: `weights` [height, width, 1, 1], and `biases` [channels] where there is no normalizer. The arguments
    are those of `separable_conv2d`; the default scope is `ConvInPlane`.

    Args:
        inputs: Floating point [batch, height, width, channels].
        kernel_size: One size for both dimensions, or one for each.
        stride: Likewise; both dimensions alike.
        padding: `SAME` or `VALID`.
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
        scope: Name of the layer's variable scope; by default `ConvInPlane`, made unique.

    Returns:
        The output, [batch, height, width, channels].

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If rank, sizes or padding do not fit.
    """
    layer = "conv2d_in_plane"
    with tf.compat.v1.variable_scope(scope, "ConvInPlane", [inputs], reuse=reuse) as sc:
        inputs = as_floating(layer, inputs)
        known_rank(layer, inputs, 4, 4)
        padding = normal_padding(layer, padding)
        kernel, strides, _ = _windows(layer, kernel_size, stride, 1)
        size = num_channels(layer, inputs, -1)
        dtype = inputs.dtype.base_dtype
        weights = layer_variable(
            "weights",
            [*kernel, 1, 1],
            dtype,
            weights_initializer,
            weights_regularizer,
            trainable,
            variables_collections,
        )
        outputs = tf.nn.depthwise_conv2d(
            inputs, tf.tile(weights, [1, 1, size, 1]), [1, *strides, 1], padding, name="depthwise"
        )

        def add_bias(outputs: Any) -> Any:
            biases = layer_variable(
                "biases", [size], dtype, biases_initializer, biases_regularizer, trainable, variables_collections
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


separable_conv2d = separable_convolution2d
conv2d_in_plane = convolution2d_in_plane


def _windows(layer: str, kernel_size: Any, stride: Any, rate: Any) -> tuple[list[int], list[int], list[int]]:
    """Returns kernel, strides and rates, each [height, width]."""
    kernel = n_positive(layer, "kernel_size", kernel_size, 2)
    strides = n_positive(layer, "stride", stride, 2)
    rates = n_positive(layer, "rate", rate, 2)
    if strides[0] != strides[1]:
        # TensorFlow has no depthwise convolution that steps otherwise.
        raise ValueError(f"{layer}: stride={stride!r} must be the same in both dimensions.")
    if max(strides) > 1 and max(rates) > 1:
        raise ValueError(f"{layer}: stride={stride!r} and rate={rate!r} cannot both be greater than 1.")
    return kernel, strides, rates
