"""VGG (K. Simonyan and A. Zisserman, arXiv 1409.1556), with the arguments in the library's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slimexp.nets import vgg as nets
from slimexp.nets.vgg import vgg_arg_scope

__all__ = ["vgg_16", "vgg_19", "vgg_a", "vgg_arg_scope", "vgg_d", "vgg_e"]


def _in_order(name: str) -> Callable[..., tuple[Any, dict[str, Any]]]:
    net = getattr(nets, name)

    def build(
        inputs: Any,
        num_classes: int | None = 1000,
        is_training: Any = True,
        dropout_keep_prob: Any = 0.5,
        spatial_squeeze: bool = True,
        scope: Any = name,
        reuse: Any = None,
        fc_conv_padding: str = "VALID",
        global_pool: bool = False,
    ) -> tuple[Any, dict[str, Any]]:
        logits, end_points = net(
            inputs,
            num_classes,
            is_training,
            dropout_keep_prob,
            spatial_squeeze,
            reuse=reuse,
            scope=scope,
            fc_conv_padding=fc_conv_padding,
            global_pool=global_pool,
        )
        return logits, end_points

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Builds `slimexp.nets.vgg.{name}`, with `scope` before the arguments that the library lacks."
    build.__dict__.update(net.__dict__)
    return build


vgg_a = _in_order("vgg_a")
vgg_16 = _in_order("vgg_16")
vgg_19 = _in_order("vgg_19")

# The letters of table 1 of the paper.
vgg_d = vgg_16
vgg_e = vgg_19
