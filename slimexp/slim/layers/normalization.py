"""Batch normalization (Ioffe and Szegedy, arXiv 1502.03167), and batch renormalization (Ioffe, arXiv 1702.03275)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.freezing import statistics_are_frozen
from slimexp.slim.layers.common import (
    Activation,
    OutputsCollections,
    Regularizer,
    VariablesCollections,
    as_floating,
    channels_first,
    check_names,
    known_rank,
    layer_variable,
    num_channels,
)
from slimexp.slim.layers.moving_averages import move_towards, moving_variable, zero_debiased
from slimexp.slim.static_shapes import static_sizes

__all__ = ["batch_norm"]

_MOVING = ("moving_mean", "moving_variance")


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Activation | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Regularizer] | None = None,
    updates_collections: str | Sequence[str] | None = tf.compat.v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: OutputsCollections = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Mapping[str, Any] | None = None,
    renorm_decay: float = 0.99,
    adjustment: Callable[[Any], tuple[Any, Any]] | None = None,
) -> Any:
    """Normalizes each channel to mean 0 and variance 1 over the batch, then scales and shifts it.

    In training the batch's own moments are used, and moving averages of them are updated; otherwise the moving
    averages are used. **The updates must be run with the training step**: they are in the collection of update
    operations, which `learning.create_train_op` runs.

    Variables: `gamma`, `beta`, `moving_mean` and `moving_variance`, each [channels], float32 for half-precision
    inputs; with `renorm` also `renorm_mean` and `renorm_stddev`; with `zero_debias_moving_mean` also `biased` and
    `local_step`. Under a strategy each replica has moving averages of its own batch, averaged where they are read
    outside of replicas or saved.

    Args:
        inputs: Floating point, of rank 2 or more, e.g. [batch, height, width, channels].
        decay: Of the moving averages, in 0..1. With few training steps 0.9 keeps up where 0.999 does not.
        center: Add `beta`.
        scale: Multiply by `gamma`. Not needed before a ReLU followed by a linear layer, which can scale itself.
        epsilon: Added to the variance.
        activation_fn: Applied last; None for none.
        param_initializers: Initializers by variable name: `beta`, `gamma`, `moving_mean`, `moving_variance`.
        param_regularizers: Regularizers for `beta` and `gamma`.
        updates_collections: Collections for the update operations; None runs the updates as part of the layer itself.
        is_training: A bool or a scalar bool tensor; false within `frozen_statistics` of the layer.
        reuse: Whether to take existing variables; then `scope` must be given.
        variables_collections: Collections for the variables, or a dictionary from variable name to collections.
        outputs_collections: Collections for the output.
        trainable: Whether `beta` and `gamma` are trained.
        batch_weights: [batch], how much each example counts in the moments.
        fused: Use one fused operation where there is one: for inputs of rank 2 or 4, of float32 or half precision,
            without `batch_weights`, `renorm` and `adjustment`. None means True. Its moving variance is that of the
            population (n - 1 in the denominator), as TF-Slim's is.
        data_format: `NHWC` (channels last, for any rank) or `NCHW` (channels second).
        zero_debias_moving_mean: Correct the moving mean for having begun at zero, so that it is of use after few steps.
        scope: Name of the layer's variable scope; by default `BatchNorm`, made unique.
        renorm: Batch renormalization: correct the batch's moments towards their moving averages in training as well,
            so that the network sees the same in training and inference. Of use with small batches.
        renorm_clipping: Limits of the corrections r and d: `rmax`, `rmin` and `dmax`, numbers or scalar tensors; most
            often relaxed in the course of training. None sets no limits.
        renorm_decay: Of the moving averages that the corrections use.
        adjustment: A function of the inputs' dynamic shape that returns a factor and a term, applied in training to
            the normalized values before `gamma` and `beta`: noise, for instance. Each is [channels], or of a shape
            that broadcasts to the inputs'.

    Returns:
        The output, shaped as the inputs.

    Raises:
        TypeError: If the inputs are not floating point numbers.
        ValueError: If an argument does not fit, or rank or number of channels are undefined.
    """
    first = channels_first("batch_norm", data_format, 2)
    if isinstance(decay, (int, float)) and not 0 <= decay <= 1:
        raise ValueError(f"batch_norm: decay={decay} must be in 0..1.")
    check_names("batch_norm", "param_initializers", param_initializers, ("beta", "gamma", *_MOVING))
    check_names("batch_norm", "param_regularizers", param_regularizers, ("beta", "gamma"))
    check_names("batch_norm", "renorm_clipping", renorm_clipping, ("rmax", "rmin", "dmax"))
    initializers = {
        "beta": tf.compat.v1.constant_initializer(0.0),
        "gamma": tf.compat.v1.constant_initializer(1.0),
        "moving_mean": tf.compat.v1.constant_initializer(0.0),
        "moving_variance": tf.compat.v1.constant_initializer(1.0),
        **(param_initializers or {}),
    }
    with tf.compat.v1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as sc:
        if statistics_are_frozen(sc.name):
            is_training = False
        inputs = as_floating("batch_norm", inputs)
        rank = known_rank("batch_norm", inputs, 2)
        axis = 1 if first else rank - 1
        size = num_channels("batch_norm", inputs, axis)
        # Half precision cannot hold averages of many small steps.
        half = inputs.dtype in (tf.float16, tf.bfloat16)
        dtype = tf.float32 if half else inputs.dtype.base_dtype

        def parameter(name: str, otherwise: float, wanted: bool) -> Any:
            if not wanted:
                return tf.fill([size], tf.cast(otherwise, dtype))
            regularizer = (param_regularizers or {}).get(name)
            return layer_variable(
                name, [size], dtype, initializers[name], regularizer, trainable, variables_collections
            )

        def moving(name: str, initializer: Any) -> Any:
            return moving_variable(name, [size], dtype, initializer, variables_collections)

        def initial_stddev(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            initializer = initializers["moving_variance"]
            initializer = initializer() if isinstance(initializer, type) else initializer
            return tf.sqrt(tf.cast(initializer(shape, dtype=dtype) if callable(initializer) else initializer, dtype))

        gamma = parameter("gamma", 1.0, scale)
        beta = parameter("beta", 0.0, center)
        moving_mean = moving("moving_mean", initializers["moving_mean"])
        moving_variance = moving("moving_variance", initializers["moving_variance"])
        if renorm:
            renorm_mean = moving("renorm_mean", initializers["moving_mean"])
            renorm_stddev = moving("renorm_stddev", initial_stddev)
        plain = batch_weights is None and not renorm and adjustment is None
        use_fused = fused is not False and plain and rank in (2, 4) and dtype == tf.float32

        def training() -> Any:
            if use_fused:
                return _fused(inputs, gamma, beta, None, None, epsilon, axis)
            mean, variance = _moments(inputs, dtype, axis, batch_weights)
            shape = [size if i == axis else 1 for i in range(rank)]
            factor, term = tf.reshape(gamma, shape), tf.reshape(beta, shape)
            if adjustment is not None:
                adjust = [tf.cast(v, dtype) for v in adjustment(tf.shape(inputs))]
                adjust = [tf.reshape(v, shape) if v.shape.rank == 1 else v for v in adjust]
                factor, term = adjust[0] * factor, adjust[1] * factor + term
            if renorm:
                r, d = _corrections(mean, variance, renorm_mean, renorm_stddev, epsilon, renorm_clipping or {})
                factor, term = tf.reshape(r, shape) * factor, tf.reshape(d, shape) * factor + term
            return _normalize(inputs, mean, variance, factor, term, epsilon, shape), mean, variance

        def inference() -> Any:
            mean = tf.convert_to_tensor(moving_mean)
            variance = tf.convert_to_tensor(moving_variance)
            if use_fused:
                return _fused(inputs, gamma, beta, mean, variance, epsilon, axis)
            shape = [size if i == axis else 1 for i in range(rank)]
            factor, term = tf.reshape(gamma, shape), tf.reshape(beta, shape)
            return _normalize(inputs, mean, variance, factor, term, epsilon, shape), mean, variance

        known = utils.static_value(is_training)
        outputs, mean, variance = utils.smart_cond(is_training, training, inference)
        if known is not False:

            def weight(decay: Any) -> Any:
                # The branch not taken returned the moving averages, and a weight of 0 leaves all averages as they are.
                return 1.0 - decay if known else tf.where(is_training, tf.cast(1.0 - decay, dtype), tf.zeros([], dtype))

            # The corrections of renorm read their averages as they were before this step.
            with tf.control_dependencies([outputs] if renorm else []):
                if zero_debias_moving_mean:
                    updates = [zero_debiased(moving_mean, mean, weight(decay), is_training)]
                else:
                    updates = [move_towards(moving_mean, mean, weight(decay))]
                updates.append(move_towards(moving_variance, variance, weight(decay)))
                if renorm:
                    updates.append(move_towards(renorm_mean, mean, weight(renorm_decay)))
                    stddev = tf.sqrt(variance + epsilon)
                    updates.append(move_towards(renorm_stddev, stddev, weight(renorm_decay)))
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


def _fused(inputs: Any, gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float, axis: int) -> Any:
    """Normalizes by the moments given, or the batch's own; returns the output and the moments for the averages."""
    flat = inputs.shape.rank == 2
    outputs, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
        inputs[:, tf.newaxis, tf.newaxis, :] if flat else inputs,  # [batch, c] -> [batch, 1, 1, c]
        gamma,
        beta,
        mean,
        variance,
        epsilon,
        data_format="NCHW" if axis == 1 and not flat else "NHWC",
        is_training=mean is None,
        name="FusedBatchNorm",
    )
    outputs = outputs[:, 0, 0, :] if flat else outputs
    return (outputs, batch_mean, batch_variance) if mean is None else (outputs, mean, variance)


def _moments(inputs: Any, dtype: tf.DType, axis: int, batch_weights: Any) -> tuple[Any, Any]:
    rank = inputs.shape.rank
    values = tf.cast(inputs, dtype)
    axes = [i for i in range(rank) if i != axis]
    if batch_weights is None:
        return tf.nn.moments(values, axes)
    weights = tf.convert_to_tensor(batch_weights)
    if not weights.shape.is_compatible_with(inputs.shape[:1]):
        raise ValueError(
            f"batch_norm: batch_weights must have one number for each of {static_sizes(inputs)[0]} examples, not shape "
            f"{weights.shape}."
        )
    weights = tf.reshape(tf.cast(weights, dtype), [-1] + [1] * (rank - 1))
    return tf.nn.weighted_moments(values, axes, weights)


def _corrections(
    mean: Any, variance: Any, renorm_mean: Any, renorm_stddev: Any, epsilon: float, clipping: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Returns r and d of section 3 of arXiv 1702.03275, through which no gradient passes."""
    dtype = mean.dtype
    # An average that has hardly begun must not divide by zero.
    stddev = tf.maximum(tf.convert_to_tensor(renorm_stddev), tf.sqrt(tf.cast(epsilon, dtype)))
    r = tf.sqrt(variance + epsilon) / stddev
    d = (mean - tf.convert_to_tensor(renorm_mean)) / stddev
    if clipping.get("rmin") is not None:
        r = tf.maximum(r, tf.cast(clipping["rmin"], dtype))
    if clipping.get("rmax") is not None:
        r = tf.minimum(r, tf.cast(clipping["rmax"], dtype))
    if clipping.get("dmax") is not None:
        limit = tf.cast(clipping["dmax"], dtype)
        d = tf.clip_by_value(d, -limit, limit)
    return tf.stop_gradient(r), tf.stop_gradient(d)


def _normalize(inputs: Any, mean: Any, variance: Any, factor: Any, term: Any, epsilon: float, shape: list[int]) -> Any:
    mean, variance = tf.reshape(mean, shape), tf.reshape(variance, shape)
    outputs = tf.nn.batch_normalization(tf.cast(inputs, mean.dtype), mean, variance, term, factor, epsilon)
    return tf.cast(outputs, inputs.dtype)
