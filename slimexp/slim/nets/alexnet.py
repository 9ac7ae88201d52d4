"""AlexNet (A. Krizhevsky, arXiv 1404.5997), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.alexnet import alexnet_v2, alexnet_v2_arg_scope
from slimexp.slim.nets.initial_weights import trunc_normal

__all__ = ["alexnet_v2", "alexnet_v2_arg_scope", "trunc_normal"]
