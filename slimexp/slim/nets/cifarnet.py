"""CifarNet (A. Krizhevsky, 2009), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.cifarnet import cifarnet, cifarnet_arg_scope

__all__ = ["cifarnet", "cifarnet_arg_scope"]
