"""CifarNet, the small network for 32-pixel images of the CIFAR-10 tutorial.

A. Krizhevsky: Learning multiple layers of features from tiny images. Technical report, University of Toronto, 2009, and
cuda-convnet (before arXiv).

    with slim.arg_scope(cifarnet_arg_scope(weight_decay=0.004)):
        logits, end_points = cifarnet(images, num_classes=10, is_training=True)

Departures: two fully connected layers instead of locally connected ones, and dropout, as in TF-Slim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.network import check_images, network

__all__ = ["cifarnet", "cifarnet_arg_scope"]


def _truncated_normal(stddev: float) -> Any:
    return tf.compat.v1.truncated_normal_initializer(stddev=stddev)


def cifarnet_arg_scope(weight_decay: float = 0.004) -> Any:
    """Returns the arg scope to build CifarNet in.

    Args:
        weight_decay: Scale of the l2 penalty on the weights of the fully connected layers, the logits left out.
    """
    with (
        slim.arg_scope([slim.conv2d], weights_initializer=_truncated_normal(5e-2), activation_fn=tf.nn.relu),
        slim.arg_scope(
            [slim.fully_connected],
            biases_initializer=tf.compat.v1.constant_initializer(0.1),
            weights_initializer=_truncated_normal(0.04),
            weights_regularizer=slim.l2_regularizer(float(weight_decay)),
            activation_fn=tf.nn.relu,
        ) as scope,
    ):
        return scope


@network(default_image_size=32, min_image_size=4, arg_scope=cifarnet_arg_scope, head_scopes=("CifarNet/logits",))
def cifarnet(
    images: Any,
    num_classes: int | None = 10,
    is_training: Any = False,
    dropout_keep_prob: Any = 0.5,
    prediction_fn: Callable[..., Any] = slim.softmax,
    scope: Any = "CifarNet",
) -> tuple[Any, dict[str, Any]]:
    """Builds CifarNet.

    Args:
        images: float32 [batch, height, width, channels], of a fixed size of 4 pixels a side or more.
        num_classes: The number of classes; 0 or None for the features before the logits.
        is_training: Whether dropout is on.
        dropout_keep_prob: The probability that dropout keeps a unit.
        prediction_fn: Turns logits into predictions.
        scope: Name of the root scope.

    Returns:
        The logits, [batch, num_classes] (or features, [batch, 192]), and the end points by name.

    Raises:
        ValueError: If the images are too small.
    """
    check_images(cifarnet, images)
    end_points: dict[str, Any] = {}

    def normalized(net: Any, name: str) -> Any:
        # The constants of cuda-convnet's response normalization over 9 channels.
        # In float32, as there is no other on every device.
        return tf.cast(
            tf.nn.lrn(tf.cast(net, tf.float32), 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name=name), net.dtype
        )

    with tf.compat.v1.variable_scope(scope, "CifarNet", [images]):
        net = end_points["conv1"] = slim.conv2d(images, 64, [5, 5], scope="conv1")
        net = end_points["pool1"] = slim.max_pool2d(net, [2, 2], 2, scope="pool1")
        net = normalized(net, "norm1")
        net = end_points["conv2"] = slim.conv2d(net, 64, [5, 5], scope="conv2")
        net = normalized(net, "norm2")
        net = end_points["pool2"] = slim.max_pool2d(net, [2, 2], 2, scope="pool2")
        net = end_points["Flatten"] = slim.flatten(net)
        net = end_points["fc3"] = slim.fully_connected(net, 384, scope="fc3")
        net = end_points["dropout3"] = slim.dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout3")
        net = end_points["fc4"] = slim.fully_connected(net, 192, scope="fc4")
        if not num_classes:
            return net, end_points
        logits = slim.fully_connected(
            net,
            num_classes,
            biases_initializer=tf.compat.v1.zeros_initializer(),
            weights_initializer=_truncated_normal(1 / 192.0),
            weights_regularizer=None,
            activation_fn=None,
            scope="logits",
        )
        end_points["Logits"] = logits
        end_points["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, end_points
