"""Inception v1, known as GoogLeNet, with batch norm.

C. Szegedy et al.: Going deeper with convolutions. arXiv 1409.4842.

    with slim.arg_scope(inception_v1_arg_scope()):
        logits, end_points = inception_v1(images, num_classes=1001, is_training=True)

Departures: as in TF-Slim there are no auxiliary heads, 3x3 convolutions stand in for the 5x5, and batch norm for the
local response normalization. One scope is a slip of TF-Slim's (`Mixed_5b/Branch_2/Conv2d_0a_3x3`), as published
checkpoints have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.inception_utils import Block, Branches, Conv, MaxPool, build_until, channels, inception_arg_scope
from slimexp.nets.network import check_images, network, reduced_kernel_size, squeezed

__all__ = ["inception_v1", "inception_v1_arg_scope", "inception_v1_base"]

inception_v1_arg_scope = inception_arg_scope


def _mixed(
    n_1x1: int, n_3x3: tuple[int, int], n_5x5: tuple[int, int], n_pool: int, scope_5x5: str = "Conv2d_0b_3x3"
) -> Branches:
    """Figure 2 (b) of the paper; the pairs are the filters of the reduction and of the convolution (table 1)."""
    return Branches(
        (
            (Conv(n_1x1, (1, 1), "Conv2d_0a_1x1"),),
            (Conv(n_3x3[0], (1, 1), "Conv2d_0a_1x1"), Conv(n_3x3[1], (3, 3), "Conv2d_0b_3x3")),
            (Conv(n_5x5[0], (1, 1), "Conv2d_0a_1x1"), Conv(n_5x5[1], (3, 3), scope_5x5)),
            (MaxPool((3, 3), "MaxPool_0a_3x3"), Conv(n_pool, (1, 1), "Conv2d_0b_1x1")),
        )
    )


_BLOCKS: dict[str, Block] = {
    "Conv2d_1a_7x7": Conv(64, (7, 7), stride=2),
    "MaxPool_2a_3x3": MaxPool((3, 3), stride=2),
    "Conv2d_2b_1x1": Conv(64, (1, 1)),
    "Conv2d_2c_3x3": Conv(192, (3, 3)),
    "MaxPool_3a_3x3": MaxPool((3, 3), stride=2),
    "Mixed_3b": _mixed(64, (96, 128), (16, 32), 32),
    "Mixed_3c": _mixed(128, (128, 192), (32, 96), 64),
    "MaxPool_4a_3x3": MaxPool((3, 3), stride=2),
    "Mixed_4b": _mixed(192, (96, 208), (16, 48), 64),
    "Mixed_4c": _mixed(160, (112, 224), (24, 64), 64),
    "Mixed_4d": _mixed(128, (128, 256), (24, 64), 64),
    "Mixed_4e": _mixed(112, (144, 288), (32, 64), 64),
    "Mixed_4f": _mixed(256, (160, 320), (32, 128), 128),
    "MaxPool_5a_2x2": MaxPool((2, 2), stride=2),
    "Mixed_5b": _mixed(256, (160, 320), (32, 128), 128, scope_5x5="Conv2d_0a_3x3"),
    "Mixed_5c": _mixed(384, (192, 384), (48, 128), 128),
}


# What the paper calls the stem: it ends with the third halving.
_NUM_ROOT_BLOCKS = 5


def inception_v1_base(
    inputs: Any, final_endpoint: str = "Mixed_5c", include_root_block: bool = True, scope: Any = "InceptionV1"
) -> tuple[Any, dict[str, Any]]:
    """Builds Inception v1 from the images up to an end point.

    Args:
        inputs: float32 [batch, height, width, channels].
        final_endpoint: The last end point, e.g. `Mixed_4f`.
        include_root_block: Begin with `Conv2d_1a_7x7`; else `inputs` is what `Mixed_3b` takes.
        scope: Name of the root scope.

    Returns:
        The final end point, and all end points by name.

    Raises:
        ValueError: If there is no such end point.
    """
    with (
        tf.compat.v1.variable_scope(scope, "InceptionV1", [inputs]),
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            weights_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.01),
        ),
    ):
        blocks = _BLOCKS if include_root_block else dict(list(_BLOCKS.items())[_NUM_ROOT_BLOCKS:])
        return build_until("inception_v1", inputs, blocks, final_endpoint, channels("inception_v1", 1.0, 1))


@network(
    default_image_size=224,
    min_image_size=1,  # Every layer pads, and the last pooling window shrinks with its feature map.
    arg_scope=inception_v1_arg_scope,
    head_scopes=("InceptionV1/Logits",),
)
def inception_v1(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.8,
    prediction_fn: Callable[..., Any] = slim.softmax,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "InceptionV1",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds Inception v1.

    Args:
        inputs: float32 [batch, height, width, channels].
        num_classes: The number of classes; 0 or None for the features before the logits.
        is_training: Whether batch norm uses the batch's moments and dropout is on.
        dropout_keep_prob: The probability that dropout keeps a feature.
        prediction_fn: Turns logits into predictions.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        reuse: Whether to take existing variables.
        scope: Name of the root scope.
        global_pool: Average over the whole last feature map, whatever its size, instead of 7x7.

    Returns:
        The logits (or features, [batch, 1, 1, 1024]), and the end points by name.

    Raises:
        ValueError: If the images are so large that the logits are a map that cannot be squeezed.
    """
    check_images(inception_v1, inputs)
    with (
        tf.compat.v1.variable_scope(scope, "InceptionV1", [inputs], reuse=reuse) as sc,
        slim.arg_scope([slim.batch_norm, slim.dropout], is_training=is_training),
    ):
        net, end_points = inception_v1_base(inputs, scope=sc)
        with tf.compat.v1.variable_scope("Logits"):
            if global_pool:
                net = tf.reduce_mean(net, [1, 2], keepdims=True, name="global_pool")
                end_points["global_pool"] = net
            else:
                kernel = reduced_kernel_size(net, [7, 7])
                net = slim.avg_pool2d(net, kernel, stride=1, scope="AvgPool_0a_7x7")
                end_points["AvgPool_0a_7x7"] = net
            if not num_classes:
                return net, end_points
            net = slim.dropout(net, dropout_keep_prob, scope="Dropout_0b")
            logits = slim.conv2d(
                net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="Conv2d_0c_1x1"
            )
            if spatial_squeeze:
                logits = squeezed("inception_v1", logits, inputs, "SpatialSqueeze")
        end_points["Logits"] = logits
        end_points["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, end_points
