"""A network with all that training and inference do differently, and little else."""

from __future__ import annotations

import tensorflow as tf

from slimexp import slim


def small_net(images, num_classes=10, is_training=False, dropout_keep_prob=0.5, scope="Small"):
    norm = {"is_training": is_training, "decay": 0.5, "scale": True}
    with tf.compat.v1.variable_scope(scope, "Small", [images]):
        net = slim.conv2d(
            images, 6, [3, 3], stride=2, normalizer_fn=slim.batch_norm, normalizer_params=norm, scope="conv1"
        )
        net = slim.dropout(tf.reduce_mean(net, [1, 2]), dropout_keep_prob, is_training=is_training, scope="dropout")
        logits = slim.fully_connected(net, num_classes, activation_fn=None, scope="logits")
        end_points = {"Logits": logits, "Predictions": slim.softmax(logits, scope="Predictions")}
    return logits, end_points
