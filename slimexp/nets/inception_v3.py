"""Inception v3.

C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens, Z. Wojna: Rethinking the Inception architecture for computer vision.
arXiv 1512.00567.

    with slim.arg_scope(inception_v3_arg_scope()):
        logits, end_points = inception_v3(images, num_classes=1001, is_training=True)

Departures: the scopes are TF-Slim's, its slips included (`Conv_1_0c_5x5`, `Conv2d_1a_1x1` for a 3x3), as published
checkpoints have them. In the auxiliary head the pooling window, too, shrinks with the feature map, so that it can be
trained from 75 pixels on; and `global_pool` also averages its logits, so that large images work.
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
    Channels,
    Conv,
    MaxPool,
    SideBySide,
    build_until,
    channels,
    inception_arg_scope,
)
from slimexp.nets.network import check_images, network, reduced_kernel_size, squeezed

__all__ = ["inception_v3", "inception_v3_arg_scope", "inception_v3_base"]

inception_v3_arg_scope = inception_arg_scope


def _mixed_5(scope_1x1: str, scope_5x5: str, projection: int) -> Branches:
    """Figure 5 of the paper, with the 5x5 kept."""
    return Branches(
        (
            (Conv(64, (1, 1), "Conv2d_0a_1x1"),),
            (Conv(48, (1, 1), scope_1x1), Conv(64, (5, 5), scope_5x5)),
            (
                Conv(64, (1, 1), "Conv2d_0a_1x1"),
                Conv(96, (3, 3), "Conv2d_0b_3x3"),
                Conv(96, (3, 3), "Conv2d_0c_3x3"),
            ),
            (AvgPool((3, 3), "AvgPool_0a_3x3"), Conv(projection, (1, 1), "Conv2d_0b_1x1")),
        )
    )


def _mixed_6(n: int) -> Branches:
    """Figure 6 of the paper, n = 7: 7x7 convolutions made of 1x7 and 7x1."""
    return Branches(
        (
            (Conv(192, (1, 1), "Conv2d_0a_1x1"),),
            (
                Conv(n, (1, 1), "Conv2d_0a_1x1"),
                Conv(n, (1, 7), "Conv2d_0b_1x7"),
                Conv(192, (7, 1), "Conv2d_0c_7x1"),
            ),
            (
                Conv(n, (1, 1), "Conv2d_0a_1x1"),
                Conv(n, (7, 1), "Conv2d_0b_7x1"),
                Conv(n, (1, 7), "Conv2d_0c_1x7"),
                Conv(n, (7, 1), "Conv2d_0d_7x1"),
                Conv(192, (1, 7), "Conv2d_0e_1x7"),
            ),
            (AvgPool((3, 3), "AvgPool_0a_3x3"), Conv(192, (1, 1), "Conv2d_0b_1x1")),
        )
    )


def _mixed_7(scope_3x1: str) -> Branches:
    """Figure 7 of the paper: wide blocks on the coarsest grid."""
    return Branches(
        (
            (Conv(320, (1, 1), "Conv2d_0a_1x1"),),
            (
                Conv(384, (1, 1), "Conv2d_0a_1x1"),
                SideBySide((Conv(384, (1, 3), "Conv2d_0b_1x3"), Conv(384, (3, 1), scope_3x1))),
            ),
            (
                Conv(448, (1, 1), "Conv2d_0a_1x1"),
                Conv(384, (3, 3), "Conv2d_0b_3x3"),
                SideBySide((Conv(384, (1, 3), "Conv2d_0c_1x3"), Conv(384, (3, 1), "Conv2d_0d_3x1"))),
            ),
            (AvgPool((3, 3), "AvgPool_0a_3x3"), Conv(192, (1, 1), "Conv2d_0b_1x1")),
        )
    )


# Table 1 of the paper. The stem pads nothing but in Conv2d_2b_3x3.
_BLOCKS: dict[str, Block] = {
    "Conv2d_1a_3x3": Conv(32, (3, 3), stride=2, padding="VALID"),
    "Conv2d_2a_3x3": Conv(32, (3, 3), padding="VALID"),
    "Conv2d_2b_3x3": Conv(64, (3, 3)),
    "MaxPool_3a_3x3": MaxPool((3, 3), stride=2, padding="VALID"),
    "Conv2d_3b_1x1": Conv(80, (1, 1), padding="VALID"),
    "Conv2d_4a_3x3": Conv(192, (3, 3), padding="VALID"),
    "MaxPool_5a_3x3": MaxPool((3, 3), stride=2, padding="VALID"),
    "Mixed_5b": _mixed_5("Conv2d_0a_1x1", "Conv2d_0b_5x5", 32),
    "Mixed_5c": _mixed_5("Conv2d_0b_1x1", "Conv_1_0c_5x5", 64),
    "Mixed_5d": _mixed_5("Conv2d_0a_1x1", "Conv2d_0b_5x5", 64),
    "Mixed_6a": Branches(
        (
            (Conv(384, (3, 3), "Conv2d_1a_1x1", stride=2, padding="VALID"),),
            (
                Conv(64, (1, 1), "Conv2d_0a_1x1"),
                Conv(96, (3, 3), "Conv2d_0b_3x3"),
                Conv(96, (3, 3), "Conv2d_1a_1x1", stride=2, padding="VALID"),
            ),
            (MaxPool((3, 3), "MaxPool_1a_3x3", stride=2, padding="VALID"),),
        )
    ),
    "Mixed_6b": _mixed_6(128),
    "Mixed_6c": _mixed_6(160),
    "Mixed_6d": _mixed_6(160),
    "Mixed_6e": _mixed_6(192),
    "Mixed_7a": Branches(
        (
            (
                Conv(192, (1, 1), "Conv2d_0a_1x1"),
                Conv(320, (3, 3), "Conv2d_1a_3x3", stride=2, padding="VALID"),
            ),
            (
                Conv(192, (1, 1), "Conv2d_0a_1x1"),
                Conv(192, (1, 7), "Conv2d_0b_1x7"),
                Conv(192, (7, 1), "Conv2d_0c_7x1"),
                Conv(192, (3, 3), "Conv2d_1a_3x3", stride=2, padding="VALID"),
            ),
            (MaxPool((3, 3), "MaxPool_1a_3x3", stride=2, padding="VALID"),),
        )
    ),
    "Mixed_7b": _mixed_7("Conv2d_0b_3x1"),
    "Mixed_7c": _mixed_7("Conv2d_0c_3x1"),
}


def inception_v3_base(
    inputs: Any,
    final_endpoint: str = "Mixed_7c",
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    scope: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Builds Inception v3 from the images up to an end point.

    Args:
        inputs: float32 [batch, height, width, channels].
        final_endpoint: The last end point, e.g. `Mixed_6e`.
        min_depth: The least number of filters of a layer where `depth_multiplier` is less than 1.
        depth_multiplier: Multiplies the number of filters of all layers.
        scope: Name of the root scope; by default `InceptionV3`.

    Returns:
        The final end point, and all end points by name.

    Raises:
        ValueError: If there is no such end point or `depth_multiplier` is not greater than 0.
    """
    depth = channels("inception_v3", depth_multiplier, min_depth)
    with tf.compat.v1.variable_scope(scope, "InceptionV3", [inputs]):
        return build_until("inception_v3", inputs, _BLOCKS, final_endpoint, depth)


@network(
    default_image_size=299,
    min_image_size=75,
    arg_scope=inception_v3_arg_scope,
    head_scopes=("InceptionV3/Logits", "InceptionV3/AuxLogits"),
)
def inception_v3(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.8,
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    prediction_fn: Callable[..., Any] = slim.softmax,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    create_aux_logits: bool = True,
    scope: Any = "InceptionV3",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds Inception v3.

    Args:
        inputs: float32 [batch, height, width, channels], of 75 pixels a side or more.
        num_classes: The number of classes; 0 or None for the features before the logits, without auxiliary head.
        is_training: Whether batch norm uses the batch's moments and dropout is on.
        dropout_keep_prob: The probability that dropout keeps a feature.
        min_depth: The least number of filters of a layer where `depth_multiplier` is less than 1.
        depth_multiplier: Multiplies the number of filters of all layers.
        prediction_fn: Turns logits into predictions.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        reuse: Whether to take existing variables.
        create_aux_logits: Add the auxiliary head (section 4 of the paper), end point `AuxLogits`.
        scope: Name of the root scope.
        global_pool: Average over the whole last feature map, whatever its size, instead of 8x8.

    Returns:
        The logits (or features, [batch, 1, 1, 2048]), and the end points by name.

    Raises:
        ValueError: If the images are too small, or so large that the logits are a map that cannot be squeezed.
    """
    check_images(inception_v3, inputs)
    depth = channels("inception_v3", depth_multiplier, min_depth)
    with (
        tf.compat.v1.variable_scope(scope, "InceptionV3", [inputs], reuse=reuse) as sc,
        slim.arg_scope([slim.batch_norm, slim.dropout], is_training=is_training),
    ):
        net, end_points = inception_v3_base(inputs, min_depth=min_depth, depth_multiplier=depth_multiplier, scope=sc)
        if create_aux_logits and num_classes:
            with tf.compat.v1.variable_scope("AuxLogits"):
                aux_logits = _auxiliary_logits(end_points["Mixed_6e"], num_classes, depth)
                if global_pool:
                    aux_logits = tf.reduce_mean(aux_logits, [1, 2], keepdims=True, name="GlobalPool")
                if spatial_squeeze:
                    aux_logits = squeezed("inception_v3", aux_logits, inputs, "SpatialSqueeze")
                end_points["AuxLogits"] = aux_logits
        with tf.compat.v1.variable_scope("Logits"):
            if global_pool:
                net = tf.reduce_mean(net, [1, 2], keepdims=True, name="GlobalPool")
                end_points["global_pool"] = net
            else:
                kernel = reduced_kernel_size(net, [8, 8])
                net = slim.avg_pool2d(net, kernel, stride=2, padding="VALID", scope="AvgPool_1a_{}x{}".format(*kernel))
                end_points["AvgPool_1a"] = net
            if not num_classes:
                return net, end_points
            net = end_points["PreLogits"] = slim.dropout(net, dropout_keep_prob, scope="Dropout_1b")
            logits = slim.conv2d(
                net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="Conv2d_1c_1x1"
            )
            if spatial_squeeze:
                logits = squeezed("inception_v3", logits, inputs, "SpatialSqueeze")
        end_points["Logits"] = logits
        end_points["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, end_points


def _auxiliary_logits(net: Any, num_classes: int, depth: Channels) -> Any:
    window = reduced_kernel_size(net, [5, 5])
    net = slim.avg_pool2d(net, window, stride=3, padding="VALID", scope="AvgPool_1a_5x5")
    net = slim.conv2d(net, depth(128), [1, 1], scope="Conv2d_1b_1x1")
    kernel = reduced_kernel_size(net, [5, 5])
    net = slim.conv2d(
        net,
        depth(768),
        kernel,
        weights_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.01),
        padding="VALID",
        scope="Conv2d_2a_{}x{}".format(*kernel),
    )
    return slim.conv2d(
        net,
        num_classes,
        [1, 1],
        activation_fn=None,
        normalizer_fn=None,
        weights_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.001),
        scope="Conv2d_2b_1x1",
    )
