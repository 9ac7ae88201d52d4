"""Initial values of weights, scaled so that the variance of the signal stays about the same from layer to layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["variance_scaling_initializer", "xavier_initializer", "xavier_initializer_conv2d"]

Initializer = Callable[..., Any]

_MODES = ("FAN_IN", "FAN_OUT", "FAN_AVG")


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: tf.DType = tf.float32) -> Initializer:
    """Returns an initializer that keeps gradients and activations at about one scale (Glorot and Bengio, 2010).

    Args:
        uniform: Draw uniformly from [-x, x] with x = sqrt(6 / (in + out)); else from a normal distribution, cut at
            two standard deviations, of variance 2 / (in + out) after the cut.
        seed: Operation-level seed; None takes the graph's.
        dtype: A floating point type.

    Raises:
        TypeError: If `dtype` is not a floating point type.
    """
    return variance_scaling_initializer(factor=1.0, mode="FAN_AVG", uniform=uniform, seed=seed, dtype=dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: tf.DType = tf.float32,
) -> Initializer:
    """Returns an initializer whose variance is `factor / n`, n depending on the shape of the weights.

    The defaults are those of He et al., arXiv 1502.01852, section 2.2.

    Args:
        factor: Multiplies the variance.
        mode: What n counts: `FAN_IN`, the inputs of a unit; `FAN_OUT`, its outputs; `FAN_AVG`, their mean.
        uniform: Draw from a uniform distribution instead of a normal one cut at two standard deviations.
        seed: Operation-level seed; None takes the graph's.
        dtype: A floating point type.

    Returns:
        A function `initializer(shape, dtype=dtype, partition_info=None)`.

    Raises:
        TypeError: If `dtype` is not a floating point type, or `mode` is unknown.
    """
    if not tf.as_dtype(dtype).is_floating:
        raise TypeError(f"An initializer of random weights needs a floating point dtype, not {dtype}.")
    if mode not in _MODES:
        raise TypeError(f"Unknown mode {mode!r} of variance_scaling_initializer; it is one of {', '.join(_MODES)}.")

    def initializer(shape: Any, dtype: tf.DType = dtype, partition_info: Any = None) -> Any:
        if not tf.as_dtype(dtype).is_floating:
            raise TypeError(f"An initializer of random weights needs a floating point dtype, not {dtype}.")
        # The fans are those of the whole variable, not of the part that one partition holds.
        full = [int(size) for size in (shape if partition_info is None else partition_info.full_shape)]
        receptive_field = math.prod(full[:-2])
        fan_in = receptive_field * (full[-2] if len(full) > 1 else full[-1] if full else 1)
        fan_out = receptive_field * (full[-1] if full else 1)
        n = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]
        if uniform:
            limit = math.sqrt(3.0 * factor / n)
            return tf.compat.v1.random_uniform(shape, -limit, limit, dtype, seed=seed)
        # Cutting a normal distribution at two standard deviations leaves 0.774 = 1 / 1.3 of its variance.
        stddev = math.sqrt(1.3 * factor / n)
        return tf.compat.v1.truncated_normal(shape, 0.0, stddev, dtype, seed=seed)

    return initializer
