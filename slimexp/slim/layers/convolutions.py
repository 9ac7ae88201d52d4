"""Convolutions in one, two and three dimensions."""

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

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution3d",
]

_zeros = tf.compat.v1.zeros_initializer()


@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: int | Sequence[int] = 1,
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
    conv_dims: int | None = None,
) -> Any:
    """Adds a convolution, then a normalizer or else biases, then an activation.

    Variables: `weights` [*kernel, in, out], and `biases` [out] where there is no normalizer.

    Args:
        inputs: Floating point [batch, *spatial, in] (or [batch, in, *spatial], see `data_format`), with one to three
            spatial dimensions.
        num_outputs: The number of filters.
        kernel_size: One size for all spatial dimensions, or one for each.
        stride: Likewise; not together with a rate.
        padding: `SAME` or `VALID`.
        data_format: `NWC`, `NHWC` or `NDHWC`, the default; or `NCW`, `NCHW`, `NCDHW`.
        rate: Dilation of the kernel.
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
        scope: Name of the layer's variable scope; by default `Conv`, made unique.
        conv_dims: The number of spatial dimensions that the inputs must have; None takes what they have.

    Returns:
        The output, [batch, *spatial, num_outputs] or as `data_format` says.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If rank, sizes, padding or data format do not fit.
    """
    with tf.compat.v1.variable_scope(scope, "Conv", [inputs], reuse=reuse) as sc:
        inputs = as_floating("convolution", inputs)
        if conv_dims is not None:
            n = known_rank(f"conv{conv_dims}d", inputs, conv_dims + 2, conv_dims + 2) - 2
        else:
            n = known_rank("convolution", inputs, 3, 5) - 2
        name = f"conv{n}d"
        first = channels_first(name, data_format, n)
        padding = normal_padding(name, padding)
        kernel = n_positive(name, "kernel_size", kernel_size, n)
        strides = n_positive(name, "stride", stride, n)
        rates = n_positive(name, "rate", rate, n)
        if max(strides) > 1 and max(rates) > 1:
            raise ValueError(f"{name}: stride={stride!r} and rate={rate!r} cannot both be greater than 1.")
        num_inputs = num_channels(name, inputs, 1 if first else -1)
        (num_outputs,) = n_positive(name, "num_outputs", num_outputs, 1)
        dtype = inputs.dtype.base_dtype
        weights = layer_variable(
            "weights",
            [*kernel, num_inputs, num_outputs],
            dtype,
            weights_initializer,
            weights_regularizer,
            trainable,
            variables_collections,
        )
        outputs = _convolve(inputs, weights, strides, padding, first, rates)

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


def _convolve(inputs: Any, weights: Any, strides: list[int], padding: str, first: bool, rates: list[int]) -> Any:
    if len(strides) == 2 and max(rates) == 1:
        # Under the name that TF-Slim's graphs have it.
        data_format = "NCHW" if first else "NHWC"
        return tf.nn.conv2d(inputs, weights, strides, padding, data_format, name="Conv2D")
    spatial = {1: "W", 2: "HW", 3: "DHW"}[len(strides)]
    return tf.nn.convolution(
        inputs, weights, strides, padding, f"NC{spatial}" if first else f"N{spatial}C", rates, name="convolution"
    )


@add_arg_scope
def convolution1d(
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: int | Sequence[int] = 1,
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
    """Adds a convolution over sequences [batch, width, in]; the arguments are those of `convolution`."""
    return convolution(
        inputs,
        num_outputs,
        kernel_size,
        stride,
        padding,
        data_format,
        rate,
        activation_fn,
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        reuse,
        variables_collections,
        outputs_collections,
        trainable,
        scope,
        conv_dims=1,
    )


@add_arg_scope
def convolution2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: int | Sequence[int] = 1,
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
    """Adds a convolution over images [batch, height, width, in]; the arguments are those of `convolution`."""
    return convolution(
        inputs,
        num_outputs,
        kernel_size,
        stride,
        padding,
        data_format,
        rate,
        activation_fn,
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        reuse,
        variables_collections,
        outputs_collections,
        trainable,
        scope,
        conv_dims=2,
    )


@add_arg_scope
def convolution3d(
    inputs: Any,
    num_outputs: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: int | Sequence[int] = 1,
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
    """Adds a convolution over volumes [batch, depth, height, width, in]; the arguments are those of `convolution`."""
    return convolution(
        inputs,
        num_outputs,
        kernel_size,
        stride,
        padding,
        data_format,
        rate,
        activation_fn,
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        reuse,
        variables_collections,
        outputs_collections,
        trainable,
        scope,
        conv_dims=3,
    )


# The long names are those under which `repeat` and `stack` call their scopes.
conv1d = convolution1d
conv2d = convolution2d
conv3d = convolution3d
