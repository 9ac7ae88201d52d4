from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets.resnet_v1 import (
    bottleneck,
    resnet_v1,
    resnet_v1_50,
    resnet_v1_101,
    resnet_v1_152,
    resnet_v1_200,
    resnet_v1_block,
)
from tests.nets import checks

v1 = tf.compat.v1

UNITS = {
    resnet_v1_50: (3, 4, 6, 3),
    resnet_v1_101: (3, 4, 23, 3),
    resnet_v1_152: (3, 8, 36, 3),
    resnet_v1_200: (3, 24, 36, 3),
}


def end_points(name, units):
    """The table of a network's end points at 224 pixels."""
    table = {f"{name}/conv1": [112, 112, 64]}
    side = 56
    for block, (num_units, filters) in enumerate(zip(units, (64, 128, 256, 512), strict=True), start=1):
        for unit in range(1, num_units + 1):
            scope = f"{name}/block{block}/unit_{unit}/bottleneck_v1"
            if unit == 1:
                table[f"{scope}/shortcut"] = [side, side, 4 * filters]
            table[f"{scope}/conv1"] = [side, side, filters]
            if unit == num_units and block < 4:
                side //= 2
            table[f"{scope}/conv2"] = [side, side, filters]
            table[f"{scope}/conv3"] = [side, side, 4 * filters]
            table[scope] = [side, side, 4 * filters]
        table[f"{name}/block{block}"] = [side, side, 4 * filters]
    table["global_pool"] = [1, 1, 2048]
    table[f"{name}/logits"] = [1, 1, 10]
    table[f"{name}/spatial_squeeze"] = [10]
    table["predictions"] = [10]
    return table


@pytest.mark.parametrize(
    "net",
    [
        resnet_v1_50,
        *(pytest.param(net, marks=pytest.mark.slow) for net in (resnet_v1_101, resnet_v1_152, resnet_v1_200)),
    ],
    ids=lambda net: net.__name__,
)
def test_end_points(net):
    assert checks.shapes(net, num_classes=10, is_training=False) == end_points(net.__name__, UNITS[net])


def test_the_number_of_parameters():
    with tf.Graph().as_default():
        checks.build(resnet_v1_50, 32, num_classes=1000)
        trainable = sum(int(np.prod(v.shape.as_list())) for v in slim.get_trainable_variables())
        # Convolutions 23,454,912, batch norm 2 x 26,560, logits 2,049,000.
        assert trainable == 23454912 + 2 * 26560 + 2049000


def test_features_and_maps():
    with tf.Graph().as_default():
        features, table = checks.build(resnet_v1_50, 64, num_classes=None)
        assert features.shape == (2, 1, 1, 2048)
        assert list(table)[-1] == "global_pool"
    with tf.Graph().as_default():
        logits, table = checks.build(
            resnet_v1_50, 97, num_classes=21, global_pool=False, spatial_squeeze=False, output_stride=8
        )
        assert logits.shape == (2, 13, 13, 21)
        assert table["predictions"].shape == (2, 13, 13, 21)
    with tf.Graph().as_default():
        images = v1.placeholder(tf.float32, [None, None, None, 3])
        with slim.arg_scope(resnet_v1_50.arg_scope()):
            maps, _ = resnet_v1_50(images, global_pool=False)
        assert maps.shape.as_list() == [None, None, None, 2048]


def test_smaller_than_by_default_and_without_root():
    with tf.Graph().as_default():
        blocks = [resnet_v1_block("block1", 2, 2, 2), resnet_v1_block("block2", 4, 1, 1)]
        with slim.arg_scope(resnet_v1_50.arg_scope()):
            net, table = resnet_v1(
                tf.ones([2, 8, 8, 3]),
                blocks,
                5,
                include_root_block=False,
                store_non_strided_activations=True,
                scope="tiny",
            )
        assert net.shape == (2, 5)
        assert table["tiny/block1"].shape == (2, 8, 8, 8)
        assert table["tiny/block2"].shape == (2, 4, 4, 16)
        assert "tiny/conv1" not in table
    with tf.Graph().as_default():
        _, table = checks.build(resnet_v1_50, 32, num_classes=5, depth_multiplier=0.25, min_base_depth=20)
        assert table["resnet_v1_50/block1"].shape[-1] == 4 * 20
        assert table["resnet_v1_50/block4"].shape[-1] == 4 * 128
    with tf.Graph().as_default(), pytest.raises(ValueError, match="resnet_v1_50: depth_multiplier=0 must be greater"):
        resnet_v1_50(tf.ones([1, 32, 32, 3]), depth_multiplier=0)


def test_bounded_activations_stay_within_6():
    with tf.Graph().as_default(), v1.Session() as session:
        loud = v1.constant_initializer(100.0)
        with slim.arg_scope([slim.conv2d], weights_initializer=loud):
            net = bottleneck(tf.ones([1, 4, 4, 3]), 8, 2, stride=1, use_bounded_activations=True)
        session.run(v1.global_variables_initializer())
        assert session.run(tf.reduce_max(net)) == 6


def test_evaluation_follows_is_training():
    with tf.Graph().as_default(), v1.Session() as session:
        images = tf.random.stateless_normal([2, 32, 32, 3], seed=[0, 1])
        with slim.arg_scope(resnet_v1_50.arg_scope()):
            trained, _ = resnet_v1_50(images, 3)
            given, _ = resnet_v1_50(images, 3, is_training=False, reuse=True)
            with slim.arg_scope([slim.batch_norm], is_training=False):
                from_scope, _ = resnet_v1_50(images, 3, is_training=None, reuse=True)
        session.run(v1.global_variables_initializer())
        trained, given, from_scope = session.run([trained, given, from_scope])
        np.testing.assert_array_equal(given, from_scope)
        assert np.abs(trained - given).max() > 1e-3


@pytest.mark.slow
def test_sizes():
    checks.check_smallest_size(resnet_v1_50)
    checks.check_builds(resnet_v1_50, 224, 97)
    checks.check_heads(resnet_v1_50, size=32)
    with tf.Graph().as_default(), slim.arg_scope(resnet_v1_50.arg_scope()):
        with pytest.raises(ValueError, match=r"output_stride=6 must be a multiple of 4"):
            resnet_v1_50(tf.ones([1, 64, 64, 3]), output_stride=6)
        with pytest.raises(ValueError, match=r"The blocks' target output_stride=16 cannot be reached"):
            resnet_v1_50(tf.ones([1, 64, 64, 3]), output_stride=64, scope="other")
    checks.check_refused(
        resnet_v1_50, 64, r"resnet_v1_50: images of 64 x 64 .* map of 2 x 2", num_classes=3, global_pool=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("net", [resnet_v1_101, resnet_v1_152, resnet_v1_200], ids=lambda net: net.__name__)
def test_the_deeper_ones_build_at_two_sizes(net):
    checks.check_builds(net, 224, 64)
    checks.check_heads(net, size=32)
