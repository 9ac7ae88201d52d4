"""A network that costs next to nothing, for tests in which the network does not matter."""

from __future__ import annotations

import tensorflow as tf

from slimexp import slim

__all__ = ["MODEL", "tiny"]

MODEL = ["model.network._target_=tests.jobs.tiny.tiny", "model.image_size=12"]


def tiny(images, num_classes, is_training):
    """One convolution with batch norm, the mean over the image, one layer."""
    with tf.compat.v1.variable_scope("tiny", values=[images]):
        norm = {"is_training": is_training, "decay": 0.5}
        net = slim.conv2d(images, 4, [3, 3], 2, normalizer_fn=slim.batch_norm, normalizer_params=norm, scope="conv")
        net = tf.reduce_mean(net, [1, 2])
        return slim.fully_connected(net, num_classes, activation_fn=None, scope="logits"), {}
