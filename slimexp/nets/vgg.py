"""VGG: 11, 16 or 19 layers of 3x3 convolutions.

K. Simonyan, A. Zisserman: Very deep convolutional networks for large-scale image recognition. arXiv 1409.1556.

    with slim.arg_scope(vgg_arg_scope(weight_decay=5e-4)):
        logits, end_points = vgg_16(images, num_classes=1000, is_training=True)

Departures: the fully connected layers are convolutions, as in TF-Slim, so that larger images give a map of logits.
Where the feature map is smaller than the 7x7 of 224-pixel images, the kernel of fc6 is as small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.dense import classify
from slimexp.nets.network import Network, check_images, network

__all__ = ["vgg_16", "vgg_19", "vgg_a", "vgg_arg_scope"]

# Table 1 of the paper: the number of convolutions in each of the five blocks, and their filters.
_FILTERS = (64, 128, 256, 512, 512)
_LAYERS = {"vgg_a": (1, 1, 2, 2, 2), "vgg_16": (2, 2, 3, 3, 3), "vgg_19": (2, 2, 4, 4, 4)}

# Five poolings halve the image.
_MIN_IMAGE_SIZE = 32


def vgg_arg_scope(weight_decay: float = 0.0005) -> Any:
    """Returns the arg scope to build VGG in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights; 5e-4 in the paper, section 3.1.
    """
    with (
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            activation_fn=tf.nn.relu,
            weights_regularizer=slim.l2_regularizer(float(weight_decay)),
            biases_initializer=tf.compat.v1.zeros_initializer(),
        ),
        slim.arg_scope([slim.conv2d], padding="SAME") as scope,
    ):
        return scope


@network(default_image_size=224, min_image_size=_MIN_IMAGE_SIZE, arg_scope=vgg_arg_scope, head_scopes=("vgg_a/fc8",))
def vgg_a(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.5,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "vgg_a",
    fc_conv_padding: str = "VALID",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds VGG with 11 layers (configuration A).

    Args:
        inputs: float32 [batch, height, width, channels], of 32 pixels a side or more.
        num_classes: The number of classes; 0 or None for the features of fc7.
        is_training: Whether dropout is on.
        dropout_keep_prob: The probability that dropout keeps a unit of fc6 and fc7.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        reuse: Whether to take existing variables.
        scope: Name of the root scope.
        fc_conv_padding: Padding of fc6: `VALID`, or `SAME` for a map of logits as large as the last feature map.
        global_pool: Average over the map before the logits, so that any size of image gives [batch, 1, 1, ...].

    Returns:
        The logits (or features), and the end points by full scope name.

    Raises:
        ValueError: If the images are too small, or a map of logits is to be squeezed.
    """
    return _vgg(
        vgg_a,
        inputs,
        num_classes,
        is_training,
        dropout_keep_prob,
        spatial_squeeze,
        reuse,
        scope,
        fc_conv_padding,
        global_pool,
    )


@network(default_image_size=224, min_image_size=_MIN_IMAGE_SIZE, arg_scope=vgg_arg_scope, head_scopes=("vgg_16/fc8",))
def vgg_16(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.5,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "vgg_16",
    fc_conv_padding: str = "VALID",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds VGG with 16 layers (configuration D); arguments and results are those of `vgg_a`."""
    return _vgg(
        vgg_16,
        inputs,
        num_classes,
        is_training,
        dropout_keep_prob,
        spatial_squeeze,
        reuse,
        scope,
        fc_conv_padding,
        global_pool,
    )


@network(default_image_size=224, min_image_size=_MIN_IMAGE_SIZE, arg_scope=vgg_arg_scope, head_scopes=("vgg_19/fc8",))
def vgg_19(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.5,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "vgg_19",
    fc_conv_padding: str = "VALID",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds VGG with 19 layers (configuration E); arguments and results are those of `vgg_a`."""
    return _vgg(
        vgg_19,
        inputs,
        num_classes,
        is_training,
        dropout_keep_prob,
        spatial_squeeze,
        reuse,
        scope,
        fc_conv_padding,
        global_pool,
    )


def _vgg(
    which: Network,
    inputs: Any,
    num_classes: int | None,
    is_training: Any,
    dropout_keep_prob: Any,
    spatial_squeeze: bool,
    reuse: Any,
    scope: Any,
    fc_conv_padding: str,
    global_pool: bool,
) -> tuple[Any, dict[str, Any]]:
    check_images(which, inputs)
    name = which.__name__
    layers: Sequence[int] = _LAYERS[name]
    with tf.compat.v1.variable_scope(scope, name, [inputs], reuse=reuse) as sc:
        collection = sc.original_name_scope + "_end_points"
        with slim.arg_scope([slim.conv2d, slim.fully_connected, slim.max_pool2d], outputs_collections=collection):
            net = inputs
            for block, (num_layers, num_filters) in enumerate(zip(layers, _FILTERS, strict=True), start=1):
                net = slim.repeat(net, num_layers, slim.conv2d, num_filters, [3, 3], scope=f"conv{block}")
                net = slim.max_pool2d(net, [2, 2], scope=f"pool{block}")
            return classify(
                net,
                num_classes,
                inputs=inputs,
                root=sc,
                collection=collection,
                num_hidden=(4096, 4096),
                kernel_size=(7, 7),
                padding=fc_conv_padding,
                is_training=is_training,
                dropout_keep_prob=dropout_keep_prob,
                spatial_squeeze=spatial_squeeze,
                global_pool=global_pool,
            )
