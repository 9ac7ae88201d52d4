"""Inception v1 (C. Szegedy et al., arXiv 1409.4842), with the library's arg scope and order of arguments."""

from __future__ import annotations

from typing import Any

from slimexp.nets.inception_utils import inception_arg_scope
from slimexp.nets.inception_v1 import inception_v1
from slimexp.nets.inception_v1 import inception_v1_base as _base
from slimexp.slim.nets.initial_weights import trunc_normal
from slimexp.slim.nets.moving_averages import with_collection

__all__ = ["inception_v1", "inception_v1_arg_scope", "inception_v1_base", "trunc_normal"]


def inception_v1_base(
    inputs: Any, final_endpoint: str = "Mixed_5c", scope: Any = "InceptionV1", include_root_block: bool = True
) -> tuple[Any, dict[str, Any]]:
    """Builds `slimexp.nets.inception_v1.inception_v1_base`, with `scope` before what the library lacks."""
    return _base(inputs, final_endpoint, include_root_block, scope)


def inception_v1_arg_scope(
    weight_decay: float = 0.00004, use_batch_norm: bool = True, batch_norm_var_collection: str = "moving_vars"
) -> Any:
    """Returns the arg scope to build Inception v1 in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights.
        use_batch_norm: Follow each convolution by batch norm; else by biases.
        batch_norm_var_collection: Collection for the moving averages.
    """
    return with_collection(inception_arg_scope(weight_decay, use_batch_norm), batch_norm_var_collection)
