"""Residual networks, version 2: batch norm before each convolution, so that shortcuts stay clear.

K. He, X. Zhang, S. Ren, J. Sun: Identity mappings in deep residual networks. arXiv 1603.05027.

    with slim.arg_scope(resnet_arg_scope(weight_decay=1e-4)):
        logits, end_points = resnet_v2_50(images, num_classes=1001, is_training=True)
        maps, _ = resnet_v2_101(images, 21, global_pool=False, spatial_squeeze=False, output_stride=16)

Departures: as in TF-Slim a block's stride is in its last unit, in the 3x3 convolution, and pool1 is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.network import Network, check_images, network
from slimexp.nets.resnet_utils import (
    Block,
    bottleneck_block,
    build_resnet,
    conv2d_same,
    resnet_arg_scope,
    subsample,
)

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


@slim.add_arg_scope
def bottleneck(
    inputs: Any,
    depth: int,
    depth_bottleneck: int,
    stride: int,
    rate: int = 1,
    outputs_collections: str | Sequence[str] | None = None,
    scope: Any = None,
) -> Any:
    """Adds a unit: batch norm, then 1x1, 3x3 and 1x1 convolutions beside a shortcut (figure 1 (b) of the paper).

    Args:
        inputs: [batch, height, width, channels].
        depth: The number of filters of the output. Where the input has another, the shortcut is a projection.
        depth_bottleneck: The number of filters in between.
        stride: Of the 3x3 convolution and the shortcut.
        rate: Dilation of the 3x3 convolution.
        outputs_collections: Collections for the output.
        scope: Name of the unit's scope; by default `bottleneck_v2`.

    Returns:
        [batch, ceil(height / stride), ceil(width / stride), depth].
    """
    with tf.compat.v1.variable_scope(scope, "bottleneck_v2", [inputs]) as sc:
        preact = slim.batch_norm(inputs, activation_fn=tf.nn.relu, scope="preact")
        # Nothing may follow what is added to the shortcut.
        bare: dict[str, Any] = {"normalizer_fn": None, "activation_fn": None}
        if slim.utils.last_dimension(inputs.shape, min_rank=4) == depth:
            shortcut = subsample(inputs, stride, "shortcut")
        else:
            shortcut = slim.conv2d(preact, depth, [1, 1], stride=stride, scope="shortcut", **bare)
        residual = slim.conv2d(preact, depth_bottleneck, [1, 1], stride=1, scope="conv1")
        residual = conv2d_same(residual, depth_bottleneck, 3, stride, rate=rate, scope="conv2")
        residual = slim.conv2d(residual, depth, [1, 1], stride=1, scope="conv3", **bare)
        return slim.utils.collect_named_outputs(outputs_collections, sc.name, shortcut + residual)


def resnet_v2(
    inputs: Any,
    blocks: Sequence[Block],
    num_classes: int | None = None,
    is_training: Any = True,
    global_pool: bool = True,
    output_stride: int | None = None,
    include_root_block: bool = True,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = None,
    store_non_strided_activations: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds a residual network from blocks.

    Args:
        inputs: float32 [batch, height, width, channels]. For dense prediction let the sides be multiples of 32, plus 1:
            then the map's corners lie on the image's.
        blocks: The blocks, e.g. from `resnet_v2_block`.
        num_classes: The number of classes; 0 or None for the features before the logits.
        is_training: Whether batch norm uses the batch's moments; None for what the arg scope says.
        global_pool: Average over the last feature map; False for dense prediction.
        output_stride: The ratio of the image's to the last map's side, a multiple of 4; what strides are too many
            become dilations. None for the network's own 32.
        include_root_block: Begin with the 7x7 convolution and the pooling; else `inputs` is the outcome of a
            convolution without activation.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        reuse: Whether to take existing variables.
        scope: Name of the root scope; by default `resnet_v2`.
        store_non_strided_activations: Let the blocks' end points be those before their strides.

    Returns:
        The logits (or features), and the end points by full scope name; besides `global_pool` and `predictions`.

    Raises:
        ValueError: If the stride cannot be reached, or a map of logits is to be squeezed.
    """
    return build_resnet(
        inputs,
        blocks,
        version="resnet_v2",
        bottleneck=bottleneck,
        # The first unit begins with both.
        root_activation=False,
        after_blocks=lambda net: slim.batch_norm(net, activation_fn=tf.nn.relu, scope="postnorm"),
        num_classes=num_classes,
        is_training=is_training,
        global_pool=global_pool,
        output_stride=output_stride,
        include_root_block=include_root_block,
        spatial_squeeze=spatial_squeeze,
        store_non_strided_activations=store_non_strided_activations,
        reuse=reuse,
        scope=scope,
    )


resnet_v2.default_image_size = 224  # type: ignore[attr-defined]  # Scripts for TF-Slim ask the function for it.


def resnet_v2_block(scope: str, base_depth: int, num_units: int, stride: int) -> Block:
    """Returns a block of bottleneck units; the arguments are those of `bottleneck_block`, without the function."""
    return bottleneck_block(scope, bottleneck, base_depth, num_units, stride)


def _variant(name: str, num_units: tuple[int, int, int, int], source: str) -> Network:
    def build(
        inputs: Any,
        num_classes: int | None = None,
        is_training: Any = True,
        global_pool: bool = True,
        output_stride: int | None = None,
        spatial_squeeze: bool = True,
        reuse: Any = None,
        scope: Any = name,
        store_non_strided_activations: bool = False,
    ) -> tuple[Any, dict[str, Any]]:
        check_images(net, inputs)
        blocks = [
            resnet_v2_block(f"block{i}", base_depth, units, stride)
            for i, base_depth, units, stride in zip(
                (1, 2, 3, 4), (64, 128, 256, 512), num_units, (2, 2, 2, 1), strict=True
            )
        ]
        return resnet_v2(
            inputs,
            blocks,
            num_classes,
            is_training,
            global_pool,
            output_stride,
            include_root_block=True,
            spatial_squeeze=spatial_squeeze,
            reuse=reuse,
            scope=scope,
            store_non_strided_activations=store_non_strided_activations,
        )

    build.__doc__ = f"""Builds the residual network of {name.rpartition("_")[2]} layers ({source}).

    Arguments and results are those of `resnet_v2`.
    """
    build.__name__ = build.__qualname__ = name
    decorate: Callable[[Any], Network] = network(
        default_image_size=224,
        min_image_size=1,  # Every layer pads, and the pooling takes what is left.
        arg_scope=resnet_arg_scope,
        head_scopes=(f"{name}/logits",),
    )
    net = decorate(build)
    return net


# The numbers of units in the four blocks.
resnet_v2_50 = _variant("resnet_v2_50", (3, 4, 6, 3), "table 1 of arXiv 1512.03385")
resnet_v2_101 = _variant("resnet_v2_101", (3, 4, 23, 3), "table 1 of arXiv 1512.03385")
resnet_v2_152 = _variant("resnet_v2_152", (3, 8, 36, 3), "table 1 of arXiv 1512.03385")
resnet_v2_200 = _variant("resnet_v2_200", (3, 24, 36, 3), "table 6 of the paper")
