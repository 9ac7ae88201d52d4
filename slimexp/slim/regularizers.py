"""Penalties on weights: functions of one tensor that return a scalar, or None for no penalty."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = [
    "apply_regularization",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "sum_regularizer",
]

Regularizer = Callable[[Any], Any]


def _check_scale(name: str, scale: Any) -> None:
    if isinstance(scale, numbers.Integral):
        # An integer is most often a slip (a count, a flag): TF-Slim refuses it, and so old scripts never pass one.
        raise ValueError(f"{name} cannot be an integer: {scale}. Write a float, e.g. {float(scale)}.")
    if isinstance(scale, numbers.Real) and not float(scale) >= 0:
        raise ValueError(f"{name} of a regularizer must be 0 or more, got {scale}.")


def _is_zero(scale: Any) -> bool:
    return isinstance(scale, numbers.Real) and scale == 0


def _no_penalty(weights: Any) -> None:
    del weights


def l1_regularizer(scale: Any, scope: str | None = None) -> Regularizer:
    """Returns a function that computes `scale * sum(abs(weights))`.

    Args:
        scale: A float, 0 or more, or a scalar tensor. 0.0 switches the penalty off.
        scope: Name scope of the penalty's operations.

    Raises:
        ValueError: If `scale` is negative or an integer.
    """
    _check_scale("scale", scale)
    if _is_zero(scale):
        return _no_penalty

    def l1(weights: Any) -> Any:
        with tf.compat.v1.name_scope(scope, "l1_regularizer", [weights]) as name:
            factor = tf.convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return tf.multiply(factor, tf.reduce_sum(tf.abs(weights)), name=name)

    return l1


def l2_regularizer(scale: Any, scope: str | None = None) -> Regularizer:
    """Returns a function that computes `scale * sum(weights ** 2) / 2`.

    Args:
        scale: A float, 0 or more, or a scalar tensor. 0.0 switches the penalty off.
        scope: Name scope of the penalty's operations.

    Raises:
        ValueError: If `scale` is negative or an integer.
    """
    _check_scale("scale", scale)
    if _is_zero(scale):
        return _no_penalty

    def l2(weights: Any) -> Any:
        with tf.compat.v1.name_scope(scope, "l2_regularizer", [weights]) as name:
            factor = tf.convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return tf.multiply(factor, tf.nn.l2_loss(weights), name=name)

    return l2


def l1_l2_regularizer(scale_l1: Any = 1.0, scale_l2: Any = 1.0, scope: str | None = None) -> Regularizer:
    """Returns a function that computes the l1 and the l2 penalty and adds them.

    Args:
        scale_l1: Scale of the l1 part; 0.0 leaves it out.
        scale_l2: Scale of the l2 part; 0.0 leaves it out.
        scope: Name scope of the penalty's operations.

    Raises:
        ValueError: If a scale is negative or an integer.
    """
    _check_scale("scale_l1", scale_l1)
    _check_scale("scale_l2", scale_l2)
    scope = scope or "l1_l2_regularizer"
    if _is_zero(scale_l1):
        return l2_regularizer(scale_l2, scope)
    if _is_zero(scale_l2):
        return l1_regularizer(scale_l1, scope)
    both = sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=scope)
    assert both is not None
    return both


def sum_regularizer(regularizer_list: Sequence[Regularizer | None], scope: str | None = None) -> Regularizer | None:
    """Returns a function that adds up several regularizers.

    Args:
        regularizer_list: The regularizers; None entries are left out.
        scope: Name scope of the sum.

    Returns:
        The function, or None if no regularizer is left.
    """
    regularizers = [regularizer for regularizer in regularizer_list if regularizer is not None]
    if not regularizers:
        return None

    def sum_of_penalties(weights: Any) -> Any:
        with tf.compat.v1.name_scope(scope, "sum_regularizer", [weights]) as name:
            penalties = [regularizer(weights) for regularizer in regularizers]
            penalties = [penalty for penalty in penalties if penalty is not None]
            return tf.add_n(penalties, name=name) if penalties else None

    return sum_of_penalties


def apply_regularization(regularizer: Regularizer, weights_list: Sequence[Any] | None = None) -> Any:
    """Adds up a regularizer over weights and puts the sum into the collection of regularization losses.

    Args:
        regularizer: A function of one tensor that returns a scalar or None.
        weights_list: The weights; by default the collection `tf.compat.v1.GraphKeys.WEIGHTS`.

    Returns:
        The summed penalty, a scalar.

    Raises:
        ValueError: If there are no weights, or the regularizer returns something else than a scalar.
    """
    weights = list(weights_list or tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.WEIGHTS))
    if not weights:
        raise ValueError(
            "apply_regularization: no weights to regularize. Pass weights_list, or create variables with "
            "collections=[tf.compat.v1.GraphKeys.WEIGHTS]."
        )
    with tf.compat.v1.name_scope("get_regularization_penalty", values=weights) as scope:
        penalties = [regularizer(w) for w in weights]
        penalties = [tf.constant(0.0) if penalty is None else penalty for penalty in penalties]
        for penalty in penalties:
            if penalty.shape.ndims != 0:
                raise ValueError(f"A regularizer must return a scalar, not a tensor of shape {penalty.shape}.")
        total = tf.add_n(penalties, name=scope)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES, total)
        return total
