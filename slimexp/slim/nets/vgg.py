"""VGG (K. Simonyan and A. Zisserman, arXiv 1409.1556), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.vgg import vgg_16, vgg_19, vgg_a, vgg_arg_scope

__all__ = ["vgg_16", "vgg_19", "vgg_a", "vgg_arg_scope"]
