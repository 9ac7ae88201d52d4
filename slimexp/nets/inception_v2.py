"""Inception v2: Inception v1 with batch norm.

S. Ioffe, C. Szegedy: Batch normalization: accelerating deep network training by reducing internal covariate shift.
arXiv 1502.03167.

    with slim.arg_scope(inception_v2_arg_scope()):
        logits, end_points = inception_v2(images, num_classes=1001, is_training=True)

Departures: the first convolution is a separable one, without batch norm, as in TF-Slim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.inception_utils import (
    AvgPool,
    Block,
    Branches,
    Conv,
    MaxPool,
    SeparableConv,
    build_until,
    channels,
    inception_arg_scope,
)
from slimexp.nets.network import check_images, network, reduced_kernel_size, squeezed

__all__ = ["inception_v2", "inception_v2_arg_scope", "inception_v2_base"]

inception_v2_arg_scope = inception_arg_scope

# Deviations of the initial weights of the 1x1 convolutions that reduce, and of those after a pooling.
_REDUCTION = 0.09
_PROJECTION = 0.1


def _mixed(
    n_1x1: int, n_3x3: tuple[int, int], n_double: tuple[int, int], n_pool: int, pool: Callable[..., Block] = AvgPool
) -> Branches:
    """A block of the paper's figure 5 without stride; the pairs are the filters of reduction and convolution."""
    pooling = "MaxPool_0a_3x3" if pool is MaxPool else "AvgPool_0a_3x3"
    return Branches(
        (
            (Conv(n_1x1, (1, 1), "Conv2d_0a_1x1"),),
            (Conv(n_3x3[0], (1, 1), "Conv2d_0a_1x1", stddev=_REDUCTION), Conv(n_3x3[1], (3, 3), "Conv2d_0b_3x3")),
            (
                Conv(n_double[0], (1, 1), "Conv2d_0a_1x1", stddev=_REDUCTION),
                Conv(n_double[1], (3, 3), "Conv2d_0b_3x3"),
                Conv(n_double[1], (3, 3), "Conv2d_0c_3x3"),
            ),
            (pool((3, 3), pooling), Conv(n_pool, (1, 1), "Conv2d_0b_1x1", stddev=_PROJECTION)),
        )
    )


def _strided(n_3x3: tuple[int, int], n_double: tuple[int, int]) -> Branches:
    """A block of the paper's figure 5 that halves the map."""
    return Branches(
        (
            (
                Conv(n_3x3[0], (1, 1), "Conv2d_0a_1x1", stddev=_REDUCTION),
                Conv(n_3x3[1], (3, 3), "Conv2d_1a_3x3", stride=2),
            ),
            (
                Conv(n_double[0], (1, 1), "Conv2d_0a_1x1", stddev=_REDUCTION),
                Conv(n_double[1], (3, 3), "Conv2d_0b_3x3"),
                Conv(n_double[1], (3, 3), "Conv2d_1a_3x3", stride=2),
            ),
            (MaxPool((3, 3), "MaxPool_1a_3x3", stride=2),),
        )
    )


_SEPARABLE_ROOT: dict[str, Block] = {"Conv2d_1a_7x7": SeparableConv(64, (7, 7), most=8, stride=2, stddev=1.0)}
_FULL_ROOT: dict[str, Block] = {"Conv2d_1a_7x7": Conv(64, (7, 7), stride=2, stddev=1.0)}
_ROOT: dict[str, Block] = {
    "MaxPool_2a_3x3": MaxPool((3, 3), stride=2),
    "Conv2d_2b_1x1": Conv(64, (1, 1), stddev=0.1),
    "Conv2d_2c_3x3": Conv(192, (3, 3)),
    "MaxPool_3a_3x3": MaxPool((3, 3), stride=2),
}
_BLOCKS: dict[str, Block] = {
    "Mixed_3b": _mixed(64, (64, 64), (64, 96), 32),
    "Mixed_3c": _mixed(64, (64, 96), (64, 96), 64),
    "Mixed_4a": _strided((128, 160), (64, 96)),
    "Mixed_4b": _mixed(224, (64, 96), (96, 128), 128),
    "Mixed_4c": _mixed(192, (96, 128), (96, 128), 128),
    "Mixed_4d": _mixed(160, (128, 160), (128, 160), 96),
    "Mixed_4e": _mixed(96, (128, 192), (160, 192), 96),
    "Mixed_5a": _strided((128, 192), (192, 256)),
    "Mixed_5b": _mixed(352, (192, 320), (160, 224), 128),
    "Mixed_5c": _mixed(352, (192, 320), (192, 224), 128, pool=MaxPool),
}


def inception_v2_base(
    inputs: Any,
    final_endpoint: str = "Mixed_5c",
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    use_separable_conv: bool = True,
    data_format: str = "NHWC",
    include_root_block: bool = True,
    scope: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Builds Inception v2 from the images up to an end point.

    Args:
        inputs: float32 [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`.
        final_endpoint: The last end point, e.g. `Mixed_4e`.
        min_depth: The least number of filters of a layer where `depth_multiplier` is less than 1.
        depth_multiplier: Multiplies the number of filters of all layers.
        use_separable_conv: Let the first convolution be a separable one; else a full one, with batch norm.
        data_format: `NHWC` or, for a full first convolution, `NCHW`.
        include_root_block: Begin with `Conv2d_1a_7x7`; else `inputs` is what `Mixed_3b` takes.
        scope: Name of the root scope; by default `InceptionV2`.

    Returns:
        The final end point, and all end points by name.

    Raises:
        ValueError: If there is no such end point, `depth_multiplier` is not greater than 0, or the first convolution
            cannot have the data format.
    """
    depth = channels("inception_v2", depth_multiplier, min_depth, data_format)
    if use_separable_conv and include_root_block and data_format == "NCHW":
        raise ValueError(
            "inception_v2: data_format='NCHW' does not go with use_separable_conv=True: the separable convolution "
            "takes NHWC only. Pass use_separable_conv=False."
        )
    blocks = _BLOCKS
    if include_root_block:
        blocks = {**(_SEPARABLE_ROOT if use_separable_conv else _FULL_ROOT), **_ROOT, **_BLOCKS}
    with (
        tf.compat.v1.variable_scope(scope, "InceptionV2", [inputs]),
        slim.arg_scope([slim.conv2d, slim.max_pool2d, slim.avg_pool2d, slim.batch_norm], data_format=data_format),
    ):
        return build_until("inception_v2", inputs, blocks, final_endpoint, depth)


@network(
    default_image_size=224,
    min_image_size=1,  # Every layer pads, and the last pooling window shrinks with its feature map.
    arg_scope=inception_v2_arg_scope,
    head_scopes=("InceptionV2/Logits",),
)
def inception_v2(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.8,
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    prediction_fn: Callable[..., Any] = slim.softmax,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "InceptionV2",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds Inception v2.

    Args:
        inputs: float32 [batch, height, width, channels].
        num_classes: The number of classes; 0 or None for the features before the logits.
        is_training: Whether batch norm uses the batch's moments and dropout is on.
        dropout_keep_prob: The probability that dropout keeps a feature.
        min_depth: The least number of filters of a layer where `depth_multiplier` is less than 1.
        depth_multiplier: Multiplies the number of filters of all layers.
        prediction_fn: Turns logits into predictions.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        reuse: Whether to take existing variables.
        scope: Name of the root scope.
        global_pool: Average over the whole last feature map, whatever its size, instead of 7x7.

    Returns:
        The logits (or features, [batch, 1, 1, 1024]), and the end points by name.

    Raises:
        ValueError: If `depth_multiplier` is not greater than 0, or the images are so large that the logits are a map
            that cannot be squeezed.
    """
    check_images(inception_v2, inputs)
    with (
        tf.compat.v1.variable_scope(scope, "InceptionV2", [inputs], reuse=reuse) as sc,
        slim.arg_scope([slim.batch_norm, slim.dropout], is_training=is_training),
    ):
        net, end_points = inception_v2_base(inputs, min_depth=min_depth, depth_multiplier=depth_multiplier, scope=sc)
        with tf.compat.v1.variable_scope("Logits"):
            if global_pool:
                net = tf.reduce_mean(net, [1, 2], keepdims=True, name="global_pool")
                end_points["global_pool"] = net
            else:
                kernel = reduced_kernel_size(net, [7, 7])
                net = slim.avg_pool2d(net, kernel, padding="VALID", scope="AvgPool_1a_{}x{}".format(*kernel))
                end_points["AvgPool_1a"] = net
            if not num_classes:
                return net, end_points
            net = slim.dropout(net, dropout_keep_prob, scope="Dropout_1b")
            end_points["PreLogits"] = net
            logits = slim.conv2d(
                net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="Conv2d_1c_1x1"
            )
            if spatial_squeeze:
                logits = squeezed("inception_v2", logits, inputs, "SpatialSqueeze")
        end_points["Logits"] = logits
        end_points["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, end_points
