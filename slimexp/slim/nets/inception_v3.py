"""Inception v3 (C. Szegedy et al., arXiv 1512.00567), with the library's arg scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.inception_utils import inception_arg_scope
from slimexp.nets.inception_v3 import inception_v3, inception_v3_base
from slimexp.slim.nets.initial_weights import trunc_normal
from slimexp.slim.nets.moving_averages import with_collection

__all__ = ["inception_v3", "inception_v3_arg_scope", "inception_v3_base", "trunc_normal"]


def inception_v3_arg_scope(
    weight_decay: float = 0.00004,
    batch_norm_var_collection: str = "moving_vars",
    batch_norm_decay: float = 0.9997,
    batch_norm_epsilon: float = 0.001,
    updates_collections: str | Sequence[str] | None = tf.compat.v1.GraphKeys.UPDATE_OPS,
    use_fused_batchnorm: bool | None = True,
) -> Any:
    """Returns the arg scope to build Inception v3 in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights.
        batch_norm_var_collection: Collection for the moving averages.
        batch_norm_decay: Of the moving averages.
        batch_norm_epsilon: Added to the variance.
        updates_collections: Collections for the updates of the moving averages; None runs them in place.
        use_fused_batchnorm: Whether batch norm is one fused operation; None lets the layer choose.
    """
    scope = inception_arg_scope(
        weight_decay,
        batch_norm_decay=batch_norm_decay,
        batch_norm_epsilon=batch_norm_epsilon,
        batch_norm_updates_collections=updates_collections,
    )
    with (
        slim.arg_scope(with_collection(scope, batch_norm_var_collection)),
        slim.arg_scope([slim.batch_norm], fused=use_fused_batchnorm) as fused,
    ):
        return fused
