"""What the residual networks share: blocks of units, strides that can be traded for dilation, their arg scope.

K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition, arXiv 1512.03385; Identity mappings in
deep residual networks, arXiv 1603.05027.

    with slim.arg_scope(resnet_arg_scope(weight_decay=1e-4)):
        logits, end_points = resnet_v1_50(images, num_classes=1000, is_training=True)

Departures: a block is subsampled in its last unit instead of the next block's first one, as in TF-Slim; the next block
is then cheaper by the same factor, and its unit works on what it would have thrown away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from slimexp import slim
from slimexp.nets.network import squeezed

__all__ = [
    "Block",
    "bottleneck_block",
    "build_resnet",
    "conv2d_same",
    "resnet_arg_scope",
    "stack_blocks_dense",
    "subsample",
]


class Block(NamedTuple):
    """Units of the same kind in a row.

    Attributes:
        scope: Name of the block's scope.
        unit_fn: The function that adds a unit.
        args: For each unit its keyword arguments, e.g. `depth`, `depth_bottleneck`, `stride`.
    """

    scope: str
    unit_fn: Callable[..., Any]
    args: Sequence[Mapping[str, Any]]


def bottleneck_block(scope: str, unit_fn: Callable[..., Any], base_depth: int, num_units: int, stride: int) -> Block:
    """Returns a block of bottleneck units, the last of them strided.

    Args:
        scope: Name of the block's scope.
        unit_fn: The function that adds a unit.
        base_depth: The number of filters of the bottleneck; the unit's output has four times as many.
        num_units: The number of units.
        stride: Stride of the last unit.
    """
    unit = {"depth": base_depth * 4, "depth_bottleneck": base_depth, "stride": 1}
    return Block(scope, unit_fn, [unit] * (num_units - 1) + [{**unit, "stride": stride}])


def subsample(inputs: Any, factor: int, scope: str | None = None) -> Any:
    """Takes every n-th pixel of each row and column of [batch, height, width, channels]."""
    if factor == 1:
        return inputs
    return slim.max_pool2d(inputs, [1, 1], stride=factor, scope=scope)


def conv2d_same(
    inputs: Any, num_outputs: int, kernel_size: int, stride: int, rate: int = 1, scope: str | None = None
) -> Any:
    """Adds a convolution whose padding does not depend on the size of the image.

    `SAME` with a stride pads an even image otherwise than an odd one. This is `SAME` without a stride, followed by
    `subsample`, at the cost of the strided convolution.

    Args:
        inputs: [batch, height, width, channels].
        num_outputs: The number of filters.
        kernel_size: The side of the square kernel.
        stride: The step between windows.
        rate: Dilation of the kernel.
        scope: Name of the layer's scope.

    Returns:
        [batch, ceil(height / stride), ceil(width / stride), num_outputs].
    """
    if stride == 1:
        return slim.conv2d(inputs, num_outputs, kernel_size, stride=1, rate=rate, padding="SAME", scope=scope)
    total = (kernel_size - 1) * rate
    sides = [total // 2, total - total // 2]
    inputs = tf.pad(inputs, [[0, 0], sides, sides, [0, 0]])
    return slim.conv2d(inputs, num_outputs, kernel_size, stride=stride, rate=rate, padding="VALID", scope=scope)


@slim.add_arg_scope
def stack_blocks_dense(
    net: Any,
    blocks: Sequence[Block],
    output_stride: int | None = None,
    store_non_strided_activations: bool = False,
    outputs_collections: str | Sequence[str] | None = None,
) -> Any:
    """Adds blocks in a row, in scopes `<block>/unit_1`, `<block>/unit_2`, ...

    From the unit on at which the stride is reached, units have no stride and their kernels are dilated instead: each
    sees what it would have seen, at all places (section 3.1 of L.-C. Chen et al., arXiv 1606.00915).

    Args:
        net: The feature map, [batch, height, width, channels].
        blocks: The blocks.
        output_stride: The wanted ratio of the input's to the output's side; it must be the product of the strides up to
            some unit. None for the product of all.
        store_non_strided_activations: Collect a block's output before its stride, for decoders.
        outputs_collections: Collections for the blocks' outputs.

    Returns:
        The last block's output.

    Raises:
        ValueError: If the stride cannot be reached.
    """
    current = 1
    rate = 1

    def strided(stride: int) -> None:
        nonlocal current
        current *= stride
        if output_stride is not None and current > output_stride:
            raise ValueError(
                f"The blocks' target output_stride={output_stride} cannot be reached: their strides multiply to "
                f"{current}, past it."
            )

    for block in blocks:
        with tf.compat.v1.variable_scope(block.scope, "block", [net]) as sc:
            stride_after = 1
            for i, unit in enumerate(block.args):
                stride = unit.get("stride", 1)
                if store_non_strided_activations and i == len(block.args) - 1:
                    stride_after, stride = stride, 1
                with tf.compat.v1.variable_scope(f"unit_{i + 1}", values=[net]):
                    if current == output_stride:
                        net = block.unit_fn(net, rate=rate, **{**unit, "stride": 1})
                        rate *= stride
                    else:
                        net = block.unit_fn(net, rate=1, **{**unit, "stride": stride})
                        strided(stride)
            net = slim.utils.collect_named_outputs(outputs_collections, sc.name, net)
            if current == output_stride:
                rate *= stride_after
            else:
                net = subsample(net, stride_after)
                strided(stride_after)
    if output_stride not in (None, current):
        raise ValueError(
            f"The blocks' target output_stride={output_stride} cannot be reached: their strides multiply to {current}."
        )
    return net


def resnet_arg_scope(
    weight_decay: float = 0.0001,
    batch_norm_decay: float = 0.997,
    batch_norm_epsilon: float = 1e-5,
    batch_norm_scale: bool = True,
    activation_fn: Callable[[Any], Any] | None = tf.nn.relu,
    use_batch_norm: bool = True,
    batch_norm_updates_collections: str | Sequence[str] | None = tf.compat.v1.GraphKeys.UPDATE_OPS,
) -> Any:
    """Returns the arg scope to build a residual network in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights; 1e-4 in the first paper, section 3.4.
        batch_norm_decay: Of the moving averages.
        batch_norm_epsilon: Added to the variance.
        batch_norm_scale: Whether batch norm has a `gamma`, as published checkpoints have.
        activation_fn: The activation.
        use_batch_norm: Follow (v1) or precede (v2) convolutions by batch norm; else v1's have biases.
        batch_norm_updates_collections: Collections for the updates of the moving averages; None runs them in place.
    """
    normalizer_params: dict[str, Any] = {
        "decay": batch_norm_decay,
        "epsilon": batch_norm_epsilon,
        "scale": batch_norm_scale,
        "updates_collections": batch_norm_updates_collections,
    }
    with (
        slim.arg_scope(
            [slim.conv2d],
            weights_regularizer=slim.l2_regularizer(float(weight_decay)),
            weights_initializer=slim.variance_scaling_initializer(),
            activation_fn=activation_fn,
            normalizer_fn=slim.batch_norm if use_batch_norm else None,
            normalizer_params=normalizer_params if use_batch_norm else None,
        ),
        slim.arg_scope([slim.batch_norm], **normalizer_params),
        # Padded pooling keeps the map's corners on the image's, which dense prediction needs.
        slim.arg_scope([slim.max_pool2d], padding="SAME") as scope,
    ):
        return scope


def build_resnet(
    inputs: Any,
    blocks: Sequence[Block],
    *,
    version: str,
    bottleneck: Callable[..., Any],
    root_activation: bool,
    after_blocks: Callable[[Any], Any],
    num_classes: int | None,
    is_training: Any,
    global_pool: bool,
    output_stride: int | None,
    include_root_block: bool,
    spatial_squeeze: bool,
    store_non_strided_activations: bool,
    reuse: Any,
    scope: Any,
) -> tuple[Any, dict[str, Any]]:
    """Builds a residual network around blocks; what is not explained here is explained at `resnet_v1`.

    Args:
        inputs: The images, or the feature map where there is no root block.
        blocks: The blocks.
        version: The default name of the root scope.
        bottleneck: The unit function, whose outputs are end points.
        root_activation: Whether the first convolution has batch norm and activation.
        after_blocks: Applied to the last block's output.
        num_classes: See `resnet_v1`, as for the others.
        is_training: None for what the arg scope says.
        global_pool: See `resnet_v1`.
        output_stride: See `resnet_v1`.
        include_root_block: See `resnet_v1`.
        spatial_squeeze: See `resnet_v1`.
        store_non_strided_activations: See `resnet_v1`.
        reuse: See `resnet_v1`.
        scope: See `resnet_v1`.

    Returns:
        The logits (or features), and the end points.

    Raises:
        ValueError: If the stride cannot be reached, or a map of logits is to be squeezed.
    """
    with tf.compat.v1.variable_scope(scope, version, [inputs], reuse=reuse) as sc:
        collection = sc.original_name_scope + "_end_points"
        with (
            slim.arg_scope([slim.conv2d, bottleneck, stack_blocks_dense], outputs_collections=collection),
            contextlib.nullcontext()
            if is_training is None
            else slim.arg_scope([slim.batch_norm], is_training=is_training),
        ):
            net = inputs
            if include_root_block:
                if output_stride is not None:
                    if output_stride % 4:
                        raise ValueError(
                            f"{sc.name}: output_stride={output_stride} must be a multiple of 4, the root block's "
                            "stride."
                        )
                    output_stride //= 4
                plain = {} if root_activation else {"activation_fn": None, "normalizer_fn": None}
                with slim.arg_scope([slim.conv2d], **plain):
                    net = conv2d_same(net, 64, 7, stride=2, scope="conv1")
                net = slim.max_pool2d(net, [3, 3], stride=2, scope="pool1")
            net = stack_blocks_dense(net, blocks, output_stride, store_non_strided_activations)
            net = after_blocks(net)
            end_points = slim.utils.convert_collection_to_dict(collection)
            if global_pool:
                net = tf.reduce_mean(net, [1, 2], keepdims=True, name="pool5")
                end_points["global_pool"] = net
            if not num_classes:
                return net, end_points
            net = slim.conv2d(net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="logits")
            end_points[sc.name + "/logits"] = net
            if spatial_squeeze:
                net = squeezed(sc.name, net, inputs, "SpatialSqueeze")
                end_points[sc.name + "/spatial_squeeze"] = net
            end_points["predictions"] = slim.softmax(net, scope="predictions")
            return net, end_points
