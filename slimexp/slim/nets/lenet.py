"""LeNet (Y. LeCun et al., 1998), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.lenet import lenet, lenet_arg_scope

__all__ = ["lenet", "lenet_arg_scope"]
