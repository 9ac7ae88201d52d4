"""LeNet, in the variant that TensorFlow's tutorials made known.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition. Proceedings of the
IEEE 86(11), 1998 (before arXiv).

    with slim.arg_scope(lenet_arg_scope(weight_decay=5e-4)):
        logits, end_points = lenet(images, num_classes=10, is_training=True)

Departures from the paper: ReLU, maximum pooling, dropout, more filters, and one hidden layer of 1024 units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.network import check_images, network

__all__ = ["lenet", "lenet_arg_scope"]


def lenet_arg_scope(weight_decay: float = 0.0) -> Any:
    """Returns the arg scope to build LeNet in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights.
    """
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        weights_regularizer=slim.l2_regularizer(float(weight_decay)),
        weights_initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.1),
        activation_fn=tf.nn.relu,
    ) as scope:
        return scope


@network(default_image_size=28, min_image_size=4, arg_scope=lenet_arg_scope, head_scopes=("LeNet/fc4",))
def lenet(
    images: Any,
    num_classes: int | None = 10,
    is_training: Any = False,
    dropout_keep_prob: Any = 0.5,
    prediction_fn: Callable[..., Any] = slim.softmax,
    scope: Any = "LeNet",
) -> tuple[Any, dict[str, Any]]:
    """Builds LeNet.

    Args:
        images: float32 [batch, height, width, channels], of a fixed size of 4 pixels a side or more.
        num_classes: The number of classes; 0 or None for the features before the logits.
        is_training: Whether dropout is on.
        dropout_keep_prob: The probability that dropout keeps a unit.
        prediction_fn: Turns logits into predictions.
        scope: Name of the root scope.

    Returns:
        The logits, [batch, num_classes] (or features, [batch, 1024]), and the end points by name.

    Raises:
        ValueError: If the images are too small.
    """
    check_images(lenet, images)
    end_points: dict[str, Any] = {}
    with tf.compat.v1.variable_scope(scope, "LeNet", [images]):
        net = end_points["conv1"] = slim.conv2d(images, 32, [5, 5], scope="conv1")
        net = end_points["pool1"] = slim.max_pool2d(net, [2, 2], 2, scope="pool1")
        net = end_points["conv2"] = slim.conv2d(net, 64, [5, 5], scope="conv2")
        net = end_points["pool2"] = slim.max_pool2d(net, [2, 2], 2, scope="pool2")
        net = end_points["Flatten"] = slim.flatten(net)
        net = end_points["fc3"] = slim.fully_connected(net, 1024, scope="fc3")
        if not num_classes:
            return net, end_points
        net = end_points["dropout3"] = slim.dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout3")
        logits = slim.fully_connected(net, num_classes, activation_fn=None, scope="fc4")
        end_points["Logits"] = logits
        end_points["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, end_points
