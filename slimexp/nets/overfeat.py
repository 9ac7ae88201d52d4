"""OverFeat, the fast model.

P. Sermanet, D. Eigen, X. Zhang, M. Mathieu, R. Fergus, Y. LeCun: OverFeat: integrated recognition, localization and
detection using convolutional networks. arXiv 1312.6229.

    with slim.arg_scope(overfeat_arg_scope(weight_decay=5e-4)):
        logits, end_points = overfeat(images, num_classes=1000, is_training=True)

Departures: 64 filters in conv1 instead of 96, and the fully connected layers are convolutions, both as in TF-Slim.
Where the feature map is smaller than the 6x6 of 231-pixel images, the kernel of fc6 is as small.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.dense import classify
from slimexp.nets.network import check_images, network

__all__ = ["overfeat", "overfeat_arg_scope"]


def overfeat_arg_scope(weight_decay: float = 0.0005) -> Any:
    """Returns the arg scope to build OverFeat in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights. The paper's section 3.1 has 1e-5.
    """
    with (
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            activation_fn=tf.nn.relu,
            weights_regularizer=slim.l2_regularizer(float(weight_decay)),
            biases_initializer=tf.compat.v1.zeros_initializer(),
        ),
        slim.arg_scope([slim.conv2d], padding="SAME"),
        slim.arg_scope([slim.max_pool2d], padding="VALID") as scope,
    ):
        return scope


@network(
    default_image_size=231,
    min_image_size=71,  # The unpadded conv1 and conv2 and three poolings leave one pixel.
    arg_scope=overfeat_arg_scope,
    head_scopes=("overfeat/fc8",),
)
def overfeat(
    inputs: Any,
    num_classes: int | None = 1000,
    is_training: Any = True,
    dropout_keep_prob: Any = 0.5,
    spatial_squeeze: bool = True,
    scope: Any = "overfeat",
    global_pool: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Builds OverFeat.

    Args:
        inputs: float32 [batch, height, width, channels], of 71 pixels a side or more.
        num_classes: The number of classes; 0 or None for the features of fc7.
        is_training: Whether dropout is on.
        dropout_keep_prob: The probability that dropout keeps a unit of fc6 and fc7.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        scope: Name of the root scope.
        global_pool: Average over the map before the logits, so that any size of image gives [batch, 1, 1, ...].

    Returns:
        The logits (or features, [batch, 1, 1, 4096]), and the end points by full scope name.

    Raises:
        ValueError: If the images are too small, or a map of logits is to be squeezed.
    """
    check_images(overfeat, inputs)
    with tf.compat.v1.variable_scope(scope, "overfeat", [inputs]) as sc:
        collection = sc.original_name_scope + "_end_points"
        with slim.arg_scope([slim.conv2d, slim.fully_connected, slim.max_pool2d], outputs_collections=collection):
            net = slim.conv2d(inputs, 64, [11, 11], 4, padding="VALID", scope="conv1")
            net = slim.max_pool2d(net, [2, 2], scope="pool1")
            net = slim.conv2d(net, 256, [5, 5], padding="VALID", scope="conv2")
            net = slim.max_pool2d(net, [2, 2], scope="pool2")
            net = slim.conv2d(net, 512, [3, 3], scope="conv3")
            net = slim.conv2d(net, 1024, [3, 3], scope="conv4")
            net = slim.conv2d(net, 1024, [3, 3], scope="conv5")
            net = slim.max_pool2d(net, [2, 2], scope="pool5")
            return classify(
                net,
                num_classes,
                inputs=inputs,
                root=sc,
                collection=collection,
                num_hidden=(3072, 4096),
                kernel_size=(6, 6),
                is_training=is_training,
                dropout_keep_prob=dropout_keep_prob,
                spatial_squeeze=spatial_squeeze,
                global_pool=global_pool,
                weights_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.005),
                hidden_biases_initializer=tf.compat.v1.constant_initializer(0.1),
            )
