"""Residual networks, version 2, whose logits keep their spatial dimensions, as the library has them.

K. He, X. Zhang, S. Ren, J. Sun: Identity mappings in deep residual networks. arXiv 1603.05027.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slimexp.nets import resnet_v2 as nets
from slimexp.nets.resnet_utils import Block, resnet_arg_scope

__all__ = [
    "bottleneck",
    "resnet_arg_scope",
    "resnet_v2",
    "resnet_v2_50",
    "resnet_v2_101",
    "resnet_v2_152",
    "resnet_v2_200",
    "resnet_v2_block",
]

bottleneck = nets.bottleneck
resnet_v2_block = nets.resnet_v2_block


def resnet_v2(
    inputs: Any,
    blocks: Sequence[Block],
    num_classes: int | None = None,
    is_training: Any = True,
    global_pool: bool = True,
    output_stride: int | None = None,
    include_root_block: bool = True,
    reuse: Any = None,
    scope: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Builds a residual network from blocks, without squeezing its logits; see `slimexp.nets.resnet_v2.resnet_v2`."""
    return nets.resnet_v2(
        inputs,
        blocks,
        num_classes,
        is_training,
        global_pool,
        output_stride,
        include_root_block,
        spatial_squeeze=False,
        reuse=reuse,
        scope=scope,
    )


resnet_v2.default_image_size = 224  # type: ignore[attr-defined]  # Scripts ask the function for it.


def _unsqueezed(name: str) -> Callable[..., tuple[Any, dict[str, Any]]]:
    def build(
        inputs: Any,
        num_classes: int | None = None,
        is_training: Any = True,
        global_pool: bool = True,
        output_stride: int | None = None,
        reuse: Any = None,
        scope: Any = name,
    ) -> tuple[Any, dict[str, Any]]:
        net = getattr(nets, name)
        return net(
            inputs,
            num_classes,
            is_training,
            global_pool,
            output_stride,
            spatial_squeeze=False,
            reuse=reuse,
            scope=scope,
        )

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Builds `slimexp.nets.resnet_v2.{name}` without squeezing its logits."
    build.default_image_size = 224  # type: ignore[attr-defined]
    return build


resnet_v2_50 = _unsqueezed("resnet_v2_50")
resnet_v2_101 = _unsqueezed("resnet_v2_101")
resnet_v2_152 = _unsqueezed("resnet_v2_152")
resnet_v2_200 = _unsqueezed("resnet_v2_200")
