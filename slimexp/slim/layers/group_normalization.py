"""Normalizations that look at one example at a time: by layer, by group of channels, by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import (
    Activation,
    OutputsCollections,
    VariablesCollections,
    as_floating,
    channels_first,
    check_names,
    known_rank,
    layer_variable,
    num_channels,
)

__all__ = ["group_norm", "instance_norm", "layer_norm"]


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Activation | None = None,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalizes each example over all its features (Ba, Kiros and Hinton, arXiv 1607.06450).

    Variables: `gamma` and `beta`, shaped as the inputs from `begin_params_axis` on.

    Args:
        inputs: Floating point, of known rank.
        center: Add `beta`.
        scale: Multiply by `gamma`.
        activation_fn: Applied last; None for none.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether `beta` and `gamma` are trained.
        begin_norm_axis: The moments are those over this dimension and all after it.
        begin_params_axis: `beta` and `gamma` have an element for each position in this dimension and all after it.
        scope: Name of the layer's variable scope; by default `LayerNorm`, made unique.

    Returns:
        The output, shaped as the inputs.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If the rank is undefined, an axis is out of it, or a size that the variables need is undefined.
    """
    with tf.compat.v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as sc:
        inputs = as_floating("layer_norm", inputs)
        rank = known_rank("layer_norm", inputs, 1)
        for name, axis in (("begin_norm_axis", begin_norm_axis), ("begin_params_axis", begin_params_axis)):
            if not -rank <= axis < rank:
                raise ValueError(f"layer_norm: {name}={axis} must be < rank(inputs), which is {rank}.")
        shape = inputs.shape[begin_params_axis % rank :]
        if not shape.is_fully_defined():
            raise ValueError(
                f"layer_norm: the shape from begin_params_axis={begin_params_axis} on is not fully defined: "
                f"{inputs.shape}."
            )
        beta, gamma = _beta_and_gamma(
            shape.as_list(), inputs.dtype.base_dtype, center, scale, None, trainable, variables_collections
        )
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        # Half precision cannot tell 1e-12 from zero.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Activation | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalizes each channel of each example (Ulyanov, Vedaldi and Lempitsky, arXiv 1607.08022).

    Variables: `gamma` and `beta`, each [channels].

    Args:
        inputs: Floating point [batch, ..., channels], or [batch, channels, ...] for `NCHW`, of rank 3 or more.
        center: Add `beta`.
        scale: Multiply by `gamma`.
        epsilon: Added to the variance.
        activation_fn: Applied last; None for none.
        param_initializers: Initializers by variable name, `beta` and `gamma`.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether `beta` and `gamma` are trained.
        data_format: `NHWC` (channels last, for any rank) or `NCHW` (channels second).
        scope: Name of the layer's variable scope; by default `InstanceNorm`, made unique.

    Returns:
        The output, shaped as the inputs.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If rank or number of channels are undefined, or an argument does not fit.
    """
    first = channels_first("instance_norm", data_format, 2)
    check_names("instance_norm", "param_initializers", param_initializers, ("beta", "gamma"))
    with tf.compat.v1.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse) as sc:
        inputs = as_floating("instance_norm", inputs)
        rank = known_rank("instance_norm", inputs, 3)
        axis = 1 if first else rank - 1
        size = num_channels("instance_norm", inputs, axis)
        beta, gamma = _beta_and_gamma(
            [size], inputs.dtype.base_dtype, center, scale, param_initializers, trainable, variables_collections
        )
        shape = [size if i == axis else 1 for i in range(rank)]
        beta, gamma = (None if v is None else tf.reshape(v, shape) for v in (beta, gamma))
        mean, variance = tf.nn.moments(inputs, [i for i in range(1, rank) if i != axis], keepdims=True)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon, name="instancenorm")
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)


@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Activation | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalizes groups of channels of each example (Wu and He, arXiv 1803.08494).

    Variables: `gamma` and `beta`, each [channels].

    Args:
        inputs: Floating point, of known rank, by default [batch, height, width, channels].
        groups: The number of groups; it divides the number of channels.
        channels_axis: The dimension of the channels.
        reduction_axes: The dimensions over which the moments are taken, beside the channels of a group.
        center: Add `beta`.
        scale: Multiply by `gamma`.
        epsilon: Added to the variance.
        activation_fn: Applied last; None for none.
        param_initializers: Initializers by variable name, `beta` and `gamma`.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether `beta` and `gamma` are trained.
        scope: Name of the layer's variable scope; by default `GroupNorm`, made unique.
        mean_close_to_zero: Compute the variance as E[x^2] - E[x]^2, in one pass: the better way where the mean is
            close to zero, and the worse one where it is large.

    Returns:
        The output, shaped as the inputs.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If a rank or size is undefined, the groups do not divide the channels, or an axis does not fit.
    """
    check_names("group_norm", "param_initializers", param_initializers, ("beta", "gamma"))
    with tf.compat.v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse) as sc:
        inputs = as_floating("group_norm", inputs)
        rank = known_rank("group_norm", inputs, 2)
        for axis in (channels_axis, *reduction_axes):
            if not -rank <= axis < rank:
                raise ValueError(f"group_norm: axis {axis} is out of bounds: the inputs have rank {rank}.")
        channels_axis %= rank
        axes = [axis % rank for axis in reduction_axes]
        size = num_channels("group_norm", inputs, channels_axis)
        if channels_axis in axes:
            raise ValueError(
                f"group_norm: reduction_axes={tuple(reduction_axes)} and channels_axis={channels_axis} must be "
                "mutually exclusive."
            )
        static = inputs.shape.as_list()
        undefined = [axis for axis in axes if static[axis] is None]
        if undefined:
            raise ValueError(f"group_norm: the inputs, {inputs.shape}, have undefined dimensions {undefined}.")
        if groups < 1 or size % groups:
            raise ValueError(f"group_norm: groups={groups} must divide the number of channels, {size}.")
        sizes = [d if s is None else s for s, d in zip(static, tf.unstack(tf.shape(inputs)), strict=True)]
        per_group = size // groups
        # [.., channels, ..] -> [.., groups, channels / groups, ..]
        grouped = tf.reshape(inputs, tf.stack([*sizes[:channels_axis], groups, per_group, *sizes[channels_axis + 1 :]]))
        shape = [1] * channels_axis + [groups, per_group] + [1] * (rank - 1 - channels_axis)
        moments_axes = [axis + 1 if axis > channels_axis else axis for axis in axes] + [channels_axis + 1]
        beta, gamma = _beta_and_gamma(
            [size], inputs.dtype.base_dtype, center, scale, param_initializers, trainable, variables_collections
        )
        beta, gamma = (None if v is None else tf.reshape(v, shape) for v in (beta, gamma))
        if mean_close_to_zero:
            mean = tf.reduce_mean(grouped, moments_axes, keepdims=True)
            variance = tf.reduce_mean(tf.square(grouped), moments_axes, keepdims=True) - tf.square(mean)
        else:
            mean, variance = tf.nn.moments(grouped, moments_axes, keepdims=True)
        outputs = tf.nn.batch_normalization(grouped, mean, variance, beta, gamma, epsilon)
        outputs = tf.reshape(outputs, tf.stack(sizes))
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)


def _beta_and_gamma(
    shape: list[int],
    dtype: tf.DType,
    center: bool,
    scale: bool,
    initializers: Mapping[str, Any] | None,
    trainable: bool,
    variables_collections: VariablesCollections,
) -> tuple[Any, Any]:
    """Returns the variables, each None if it is not wanted."""

    def parameter(name: str, initial: float, wanted: bool) -> Any:
        if not wanted:
            return None
        initializer = (initializers or {}).get(name, tf.compat.v1.constant_initializer(initial))
        return layer_variable(name, shape, dtype, initializer, None, trainable, variables_collections)

    return parameter("beta", 0.0, center), parameter("gamma", 1.0, scale)
