"""The fully connected layers at the end of AlexNet, OverFeat and VGG, as convolutions.

So written they take larger images, for which they give a map of logits. Where the feature map is smaller than that of
the images a network was designed for, the kernel of fc6 is as small.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.nets.network import reduced_kernel_size, squeezed

__all__ = ["classify"]


def classify(
    net: Any,
    num_classes: int | None,
    *,
    inputs: Any,
    root: Any,
    collection: str,
    num_hidden: tuple[int, int],
    kernel_size: tuple[int, int],
    padding: str = "VALID",
    is_training: Any,
    dropout_keep_prob: Any,
    spatial_squeeze: bool,
    global_pool: bool,
    weights_initializer: Any = None,
    hidden_biases_initializer: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Adds fc6, fc7 and fc8 to the last feature map.

    Args:
        net: The last feature map, [batch, height, width, channels].
        num_classes: The number of classes; 0 or None stops after fc7.
        inputs: The images, for messages.
        root: The network's variable scope.
        collection: Where the layers' outputs are collected.
        num_hidden: The numbers of units of fc6 and fc7.
        kernel_size: Kernel of fc6 for images of the network's own size.
        padding: Padding of fc6.
        is_training: Whether dropout is on.
        dropout_keep_prob: The probability that dropout keeps a unit of fc6 and fc7.
        spatial_squeeze: Return [batch, num_classes] instead of [batch, 1, 1, num_classes].
        global_pool: Average over the map before the logits.
        weights_initializer: Initializer of the three layers' weights; None for that of the arg scope.
        hidden_biases_initializer: Initializer of the biases of fc6 and fc7; fc8 then starts from zeros. None for that
            of the arg scope.

    Returns:
        The logits (or features), and the end points by full scope name.

    Raises:
        ValueError: If a map of logits is to be squeezed.
    """
    dense: dict[str, Any] = {} if weights_initializer is None else {"weights_initializer": weights_initializer}
    hidden, last = dict(dense), dict(dense)
    if hidden_biases_initializer is not None:
        hidden["biases_initializer"] = hidden_biases_initializer
        last["biases_initializer"] = tf.compat.v1.zeros_initializer()
    kernel = reduced_kernel_size(net, kernel_size)
    net = slim.conv2d(net, num_hidden[0], kernel, padding=padding, scope="fc6", **hidden)
    net = slim.dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout6")
    net = slim.conv2d(net, num_hidden[1], [1, 1], scope="fc7", **hidden)
    end_points = slim.utils.convert_collection_to_dict(collection)
    if global_pool:
        net = tf.reduce_mean(net, [1, 2], keepdims=True, name="global_pool")
        end_points["global_pool"] = net
    if not num_classes:
        return net, end_points
    net = slim.dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout7")
    net = slim.conv2d(net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="fc8", **last)
    if spatial_squeeze:
        net = squeezed(root.name, net, inputs, "fc8/squeezed")
    end_points[root.name + "/fc8"] = net
    return net, end_points
