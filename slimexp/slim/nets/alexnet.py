"""AlexNet (A. Krizhevsky, arXiv 1404.5997), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.alexnet import alexnet_v2, alexnet_v2_arg_scope

__all__ = ["alexnet_v2", "alexnet_v2_arg_scope"]
