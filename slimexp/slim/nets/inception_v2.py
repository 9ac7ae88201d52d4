"""Inception v2 (S. Ioffe and C. Szegedy, arXiv 1502.03167), with the library's arg scope and order of arguments."""

from __future__ import annotations

from typing import Any

from slimexp.nets.inception_utils import inception_arg_scope
from slimexp.nets.inception_v2 import inception_v2
from slimexp.nets.inception_v2 import inception_v2_base as _base
from slimexp.slim.nets.initial_weights import trunc_normal
from slimexp.slim.nets.moving_averages import with_collection

__all__ = ["inception_v2", "inception_v2_arg_scope", "inception_v2_base", "trunc_normal"]


def inception_v2_base(
    inputs: Any,
    final_endpoint: str = "Mixed_5c",
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    scope: Any = None,
    use_separable_conv: bool = True,
    data_format: str = "NHWC",
    include_root_block: bool = True,
) -> tuple[Any, dict[str, Any]]:
    """Builds `slimexp.nets.inception_v2.inception_v2_base`, with `scope` before what the library lacks."""
    return _base(
        inputs,
        final_endpoint,
        min_depth,
        depth_multiplier,
        use_separable_conv,
        data_format,
        include_root_block,
        scope,
    )


def inception_v2_arg_scope(weight_decay: float = 0.00004, batch_norm_var_collection: str = "moving_vars") -> Any:
    """Returns the arg scope to build Inception v2 in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights.
        batch_norm_var_collection: Collection for the moving averages.
    """
    return with_collection(inception_arg_scope(weight_decay), batch_norm_var_collection)
