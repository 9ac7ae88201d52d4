"""What a network is made of: variables by hand, and the costs that the papers give."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets import inception_v3, vgg_16
from slimexp.training.classifier import Classifier
from slimexp.training.model_table import model_table


def net(images, num_classes, is_training):
    with tf.compat.v1.variable_scope("net", values=[images]):
        norm = {"is_training": is_training}
        layers = slim.conv2d(
            images, 4, [3, 5], stride=2, normalizer_fn=slim.batch_norm, normalizer_params=norm, scope="c"
        )
        layers = slim.separable_conv2d(layers, None, [3, 3], depth_multiplier=2, scope="d")
        layers = slim.conv2d_transpose(layers, 6, [2, 2], stride=2, scope="t")
        aux = slim.fully_connected(slim.flatten(layers), num_classes, activation_fn=None, scope="aux")
        layers = tf.reduce_mean(layers, [1, 2])
        return slim.fully_connected(layers, num_classes, activation_fn=None, scope="logits"), {"AuxLogits": aux}


def test_variables_and_costs_by_hand():
    table = model_table(Classifier(net, num_classes=7, image_size=8))
    rows = {row.name: row for row in table.rows}
    assert rows["net/c/weights"].shape == (3, 5, 3, 4)
    assert rows["net/c/weights"].flops == 2 * (4 * 4 * 4) * (3 * 5 * 3)
    assert rows["net/d/depthwise_weights"].flops == 2 * (4 * 4 * 8) * (3 * 3)
    assert rows["net/t/weights"].flops == 2 * (4 * 4 * 8) * (2 * 2 * 6)
    assert rows["net/logits/weights"].flops == 2 * 6 * 7
    assert rows["net/aux/weights"].flops == 2 * (8 * 8 * 6) * 7
    assert rows["net/c/BatchNorm/beta"].flops == 0
    assert rows["net/c/BatchNorm/beta"].is_trainable
    assert not rows["net/c/BatchNorm/moving_mean"].is_trainable
    assert table.num_values == sum(row.num_elements for row in table.rows)
    assert table.num_bytes == 4 * table.num_values
    # The auxiliary head is not on the way to the logits.
    assert table.flops == sum(row.flops for row in table.rows) - rows["net/aux/weights"].flops


@pytest.mark.parametrize(
    ("network", "size", "parameters", "billions"),
    [
        (vgg_16, 224, 138_357_544, 30.94),  # 15.47 billion multiplications and additions.
        (inception_v3, 299, 27_161_264, 11.43),  # Without its auxiliary head.
    ],
)
def test_known_networks(network, size, parameters, billions):
    table = model_table(Classifier(network, num_classes=1000, image_size=size))
    trained = sum(row.num_elements for row in table.rows if row.is_trainable)
    assert trained == pytest.approx(parameters, rel=0.01)
    assert table.flops / 1e9 == pytest.approx(billions, abs=0.01)
