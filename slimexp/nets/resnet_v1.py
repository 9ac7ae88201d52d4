"""Residual networks, version 1: batch norm after each convolution.

K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition. arXiv 1512.03385.

    with slim.arg_scope(resnet_arg_scope(weight_decay=1e-4)):
        logits, end_points = resnet_v1_50(images, num_classes=1000, is_training=True)
        maps, _ = resnet_v1_101(images, 21, global_pool=False, spatial_squeeze=False, output_stride=16)

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
    "resnet_v1",
    "resnet_v1_50",
    "resnet_v1_101",
    "resnet_v1_152",
    "resnet_v1_200",
    "resnet_v1_block",
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
    use_bounded_activations: bool = False,
) -> Any:
    """Adds a unit: 1x1, 3x3 and 1x1 convolutions beside a shortcut (figure 5 of the paper, right).

    Args:
        inputs: [batch, height, width, channels].
        depth: The number of filters of the output. Where the input has another, the shortcut is a projection.
        depth_bottleneck: The number of filters in between.
        stride: Of the 3x3 convolution and the shortcut.
        rate: Dilation of the 3x3 convolution.
        outputs_collections: Collections for the output.
        scope: Name of the unit's scope; by default `bottleneck_v1`.
        use_bounded_activations: Keep the sum within 0..6, which suits quantization.

    Returns:
        [batch, ceil(height / stride), ceil(width / stride), depth].
    """
    with tf.compat.v1.variable_scope(scope, "bottleneck_v1", [inputs]) as sc:
        linear = tf.nn.relu6 if use_bounded_activations else None
        if slim.utils.last_dimension(inputs.shape, min_rank=4) == depth:
            shortcut = subsample(inputs, stride, "shortcut")
        else:
            shortcut = slim.conv2d(inputs, depth, [1, 1], stride=stride, activation_fn=linear, scope="shortcut")
        residual = slim.conv2d(inputs, depth_bottleneck, [1, 1], stride=1, scope="conv1")
        residual = conv2d_same(residual, depth_bottleneck, 3, stride, rate=rate, scope="conv2")
        residual = slim.conv2d(residual, depth, [1, 1], stride=1, activation_fn=None, scope="conv3")
        if use_bounded_activations:
            outputs = tf.nn.relu6(shortcut + tf.clip_by_value(residual, -6.0, 6.0))
        else:
            outputs = tf.nn.relu(shortcut + residual)
        return slim.utils.collect_named_outputs(outputs_collections, sc.name, outputs)


def resnet_v1(
    inputs: Any,
    blocks: Sequence[Block],
    num_classes: int | None = None,
    is_training: Any = True,
    global_pool: bool = True,
    output_stride: int | None = None,
    include_root_block: bool = True,
    spatial_squeeze: bool = True,
    store_non_strided_activations: bool = False,
    reuse: Any = None,
    scope: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Builds a residual network from blocks.

    Args:
        inputs: float32 [batch, height, width, channels]. For dense prediction let the sides be multiples of 32, plus 1:
            then the map's corners lie on the image's.
        blocks: The blocks, e.g. from `resnet_v1_block`.
        num_classes: The number of classes; 0 or None for the features before the logits.
        is_training: Whether batch norm uses the batch's moments; None for what the arg scope says.
        global_pool: Average over the last feature map; False for dense prediction.
        output_stride: The ratio of the image's to the last map's side, a multiple of 4; what strides are too many
            become dilations. None for the network's own 32.
        include_root_block: Begin with the 7x7 convolution and the pooling; else `inputs` is a feature map.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        store_non_strided_activations: Let the blocks' end points be those before their strides.
        reuse: Whether to take existing variables.
        scope: Name of the root scope; by default `resnet_v1`.

    Returns:
        The logits (or features), and the end points by full scope name; besides `global_pool` and `predictions`.

    Raises:
        ValueError: If the stride cannot be reached, or a map of logits is to be squeezed.
    """
    return build_resnet(
        inputs,
        blocks,
        version="resnet_v1",
        bottleneck=bottleneck,
        root_activation=True,
        after_blocks=lambda net: net,
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


resnet_v1.default_image_size = 224  # type: ignore[attr-defined]  # Scripts for TF-Slim ask the function for it.


def resnet_v1_block(scope: str, base_depth: int, num_units: int, stride: int) -> Block:
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
        store_non_strided_activations: bool = False,
        min_base_depth: int = 8,
        depth_multiplier: float = 1,
        reuse: Any = None,
        scope: Any = name,
    ) -> tuple[Any, dict[str, Any]]:
        check_images(net, inputs)
        if not depth_multiplier > 0:
            raise ValueError(f"{name}: depth_multiplier={depth_multiplier} must be greater than 0.")
        blocks = [
            resnet_v1_block(f"block{i}", max(int(base_depth * depth_multiplier), min_base_depth), units, stride)
            for i, base_depth, units, stride in zip(
                (1, 2, 3, 4), (64, 128, 256, 512), num_units, (2, 2, 2, 1), strict=True
            )
        ]
        return resnet_v1(
            inputs,
            blocks,
            num_classes,
            is_training,
            global_pool,
            output_stride,
            include_root_block=True,
            spatial_squeeze=spatial_squeeze,
            store_non_strided_activations=store_non_strided_activations,
            reuse=reuse,
            scope=scope,
        )

    build.__doc__ = f"""Builds the residual network of {name.rpartition("_")[2]} layers ({source}).

    Arguments and results are those of `resnet_v1`, and:

    Args:
        min_base_depth: The least number of filters of a bottleneck where `depth_multiplier` is less than 1.
        depth_multiplier: Multiplies the number of filters of all blocks.
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
resnet_v1_50 = _variant("resnet_v1_50", (3, 4, 6, 3), "table 1 of the paper")
resnet_v1_101 = _variant("resnet_v1_101", (3, 4, 23, 3), "table 1 of the paper")
resnet_v1_152 = _variant("resnet_v1_152", (3, 8, 36, 3), "table 1 of the paper")
resnet_v1_200 = _variant("resnet_v1_200", (3, 24, 36, 3), "table 6 of arXiv 1603.05027")
