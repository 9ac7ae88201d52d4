"""What residual networks are made of (K. He et al., arXiv 1512.03385), as `slimexp.nets` has it."""

from __future__ import annotations

from slimexp.nets.resnet_utils import Block, conv2d_same, resnet_arg_scope, stack_blocks_dense, subsample

__all__ = ["Block", "conv2d_same", "resnet_arg_scope", "stack_blocks_dense", "subsample"]
