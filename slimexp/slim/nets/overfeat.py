"""OverFeat (P. Sermanet et al., arXiv 1312.6229), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.overfeat import overfeat, overfeat_arg_scope
from slimexp.slim.nets.initial_weights import trunc_normal

__all__ = ["overfeat", "overfeat_arg_scope", "trunc_normal"]
