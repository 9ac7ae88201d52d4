"""Batch normalization (Ioffe and Szegedy, arXiv 1502.03167)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import Activation, as_floating, layer_variable

__all__ = ["batch_norm"]


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Activation | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Callable[[Any], Any]] | None = None,
    updates_collections: str | Sequence[str] | None = tf.compat.v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalizes each channel to mean 0 and variance 1 over the batch, then scales and shifts it.

    In training the batch's own moments are used, and moving averages of them are updated; otherwise the moving
    averages are used. **The updates must be run with the training step**: they are in the collection of update
    operations, which `learning.create_train_op` runs.

    Variables: `gamma`, `beta`, `moving_mean` and `moving_variance`, each [channels], float32 for half-precision
    inputs. Under a strategy each replica has moving averages of its own batch, averaged where they are read outside
    of replicas or saved.

    Args:
        inputs: Floating point, of rank 2 or more, e.g. [batch, height, width, channels].
        decay: Of the moving averages, in [0, 1). With few training steps 0.9 keeps up where 0.999 does not.
        center: Add `beta`.
        scale: Multiply by `gamma`. Not needed before a ReLU followed by a linear layer, which can scale itself.
        epsilon: Added to the variance.
        activation_fn: Applied last; None for none.
        param_initializers: Initializers by variable name: `beta`, `gamma`, `moving_mean`, `moving_variance`.
        param_regularizers: Regularizers for `beta` and `gamma`.
        updates_collections: Collections for the update operations; None runs the updates as part of the layer itself.
        is_training: A bool or a scalar bool tensor.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether `beta` and `gamma` are trained.
        batch_weights: [batch], how much each example counts in the moments; not with `fused`.
        fused: Use one fused operation, for inputs of rank 2 or 4; None uses it where it can. Its moving variance
            is that of the population (n - 1 in the denominator), as TF-Slim's is.
        data_format: `NHWC` (channels last, for any rank) or `NCHW` (channels second).
        scope: Name of the layer's variable scope; by default `BatchNorm`, made unique.

    Returns:
        The output, shaped as the inputs.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If an argument does not fit, or rank or number of channels are unknown.
    """
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"batch_norm: data_format={data_format!r} must be NHWC or NCHW.")
    if isinstance(decay, (int, float)) and not 0 <= decay <= 1:
        raise ValueError(f"batch_norm: decay={decay} must be in 0..1.")
    _check_names("param_initializers", param_initializers, ("beta", "gamma", "moving_mean", "moving_variance"))
    _check_names("param_regularizers", param_regularizers, ("beta", "gamma"))
    with tf.compat.v1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as sc:
        inputs = as_floating("batch_norm", inputs)
        rank = inputs.shape.rank
        if rank is None or rank < 2:
            raise ValueError(f"batch_norm: the inputs must have rank 2 or more, not shape {inputs.shape}.")
        axis = 1 if data_format == "NCHW" else rank - 1
        num_channels = inputs.shape[axis]
        if num_channels is None:
            raise ValueError(f"batch_norm: the number of channels must be known, not shape {inputs.shape}.")
        if fused and (batch_weights is not None or rank not in (2, 4)):
            raise ValueError(
                f"batch_norm: fused=True is for inputs of rank 2 or 4 without batch_weights, not shape {inputs.shape}"
                f"{' with batch_weights' if batch_weights is not None else ''}. Leave fused out."
            )
        if fused is None:
            fused = batch_weights is None and rank in (2, 4)
        # Half precision cannot hold averages of many small steps.
        half = inputs.dtype in (tf.float16, tf.bfloat16)
        dtype = tf.float32 if half else inputs.dtype.base_dtype

        def parameter(name: str, initial: float, wanted: bool) -> Any:
            if not wanted:
                return tf.fill([num_channels], tf.cast(initial, dtype))
            initializer = (param_initializers or {}).get(name, tf.compat.v1.constant_initializer(initial))
            regularizer = (param_regularizers or {}).get(name)
            return layer_variable(
                name, [num_channels], dtype, initializer, regularizer, trainable, variables_collections
            )

        def moving(name: str, initial: float) -> Any:
            initializer = (param_initializers or {}).get(name, tf.compat.v1.constant_initializer(initial))
            return layer_variable(
                name,
                [num_channels],
                dtype,
                initializer,
                None,
                False,
                variables_collections,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.MEAN,
            )

        gamma = parameter("gamma", 1.0, scale)
        beta = parameter("beta", 0.0, center)
        moving_mean = moving("moving_mean", 0.0)
        moving_variance = moving("moving_variance", 1.0)

        normalize = _fused if fused else _unfused

        def training() -> Any:
            return normalize(inputs, gamma, beta, None, None, epsilon, axis, batch_weights)

        def inference() -> Any:
            mean = tf.convert_to_tensor(moving_mean)
            variance = tf.convert_to_tensor(moving_variance)
            return normalize(inputs, gamma, beta, mean, variance, epsilon, axis, None), mean, variance

        known = utils.static_value(is_training)
        outputs, mean, variance = utils.smart_cond(is_training, training, inference)
        if known is not False:
            weight = 1.0 - decay
            if known is None:
                # The branch not taken returned the moving averages, so that an update leaves them as they are.
                weight = tf.where(is_training, tf.cast(weight, dtype), tf.zeros([], dtype))
            with tf.compat.v1.name_scope("AssignMovingAvg"):
                updates = [
                    _move_towards(moving_mean, mean, weight),
                    _move_towards(moving_variance, variance, weight),
                ]
            if updates_collections is None:
                with tf.control_dependencies(updates):
                    outputs = tf.identity(outputs)
            else:
                for update in updates:
                    tf.compat.v1.add_to_collections(updates_collections, update)
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)


def _fused(
    inputs: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    axis: int,
    batch_weights: Any,
) -> Any:
    assert batch_weights is None
    images = inputs
    if inputs.shape.rank == 2:
        images = inputs[:, tf.newaxis, tf.newaxis, :]  # [batch, c] -> [batch, 1, 1, c]
    outputs, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
        images,
        gamma,
        beta,
        mean,
        variance,
        epsilon,
        data_format="NCHW" if axis == 1 and inputs.shape.rank == 4 else "NHWC",
        is_training=mean is None,
        name="FusedBatchNorm",
    )
    if inputs.shape.rank == 2:
        outputs = outputs[:, 0, 0, :]
    return outputs if mean is not None else (outputs, batch_mean, batch_variance)


def _unfused(
    inputs: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    axis: int,
    batch_weights: Any,
) -> Any:
    rank = inputs.shape.rank
    values = tf.cast(inputs, gamma.dtype)
    batch_moments = mean is None
    if batch_moments:
        axes = [i for i in range(rank) if i != axis]
        if batch_weights is None:
            mean, variance = tf.nn.moments(values, axes)
        else:
            weights = tf.cast(tf.convert_to_tensor(batch_weights), gamma.dtype)
            weights = tf.reshape(weights, [-1] + [1] * (rank - 1))
            mean, variance = tf.nn.weighted_moments(values, axes, weights)
    shape = [-1 if i == axis else 1 for i in range(rank)]
    outputs = tf.nn.batch_normalization(values, *(tf.reshape(v, shape) for v in (mean, variance, beta, gamma)), epsilon)
    outputs = tf.cast(outputs, inputs.dtype)
    return (outputs, mean, variance) if batch_moments else outputs


def _move_towards(moving: Any, value: Any, weight: Any) -> Any:
    value = tf.cast(value, moving.dtype)
    # A reading of the variable by its own replica; across replicas it would be the mean over all.
    return moving.assign_sub((tf.convert_to_tensor(moving) - value) * tf.cast(weight, moving.dtype), read_value=False)


def _check_names(argument: str, values: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    unknown = sorted(set(values or ()) - set(known))
    if unknown:
        raise ValueError(f"batch_norm: {argument} has {unknown}, but there is only {', '.join(known)}.")
