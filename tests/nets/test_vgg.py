from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets.vgg import vgg_16, vgg_19, vgg_a, vgg_arg_scope
from tests.nets import checks


def end_points(name, layers):
    """The table of a VGG's end points at 224 pixels."""
    table = {}
    sides = (224, 112, 56, 28, 14)
    for block, (num_layers, filters) in enumerate(zip(layers, (64, 128, 256, 512, 512), strict=True), start=1):
        side = sides[block - 1]
        for i in range(1, num_layers + 1):
            table[f"{name}/conv{block}/conv{block}_{i}"] = [side, side, filters]
        table[f"{name}/pool{block}"] = [side // 2, side // 2, filters]
    return {**table, f"{name}/fc6": [1, 1, 4096], f"{name}/fc7": [1, 1, 4096], f"{name}/fc8": [10]}


@pytest.mark.parametrize(
    ("net", "layers"), [(vgg_a, (1, 1, 2, 2, 2)), (vgg_16, (2, 2, 3, 3, 3)), (vgg_19, (2, 2, 4, 4, 4))]
)
def test_end_points(net, layers):
    assert checks.shapes(net, num_classes=10) == end_points(net.__name__, layers)


def test_vgg_16_is_that_of_the_original():
    checks.check_reference(vgg_16, extra_end_points=set())


def test_fc6_follows_the_feature_map():
    with tf.Graph().as_default():
        checks.build(vgg_a, 96, num_classes=3)
        shape = slim.get_unique_variable("vgg_a/fc6/weights").shape
        assert shape == (3, 3, 512, 4096)


def test_features_and_maps():
    with tf.Graph().as_default():
        features, table = checks.build(vgg_a, 64, num_classes=None)
        assert features.shape == (2, 1, 1, 4096)
        assert list(table)[-1] == "vgg_a/fc7"
    with tf.Graph().as_default():
        logits, _ = checks.build(vgg_a, 256, num_classes=3, spatial_squeeze=False)
        assert logits.shape == (2, 2, 2, 3)
    with tf.Graph().as_default():
        logits, table = checks.build(vgg_a, 256, num_classes=3, global_pool=True)
        assert logits.shape == (2, 3)
        assert table["global_pool"].shape == (2, 1, 1, 4096)
        assert logits.op.name == "vgg_a/fc8/squeezed"
    with tf.Graph().as_default():
        logits, _ = checks.build(vgg_a, 64, num_classes=3, fc_conv_padding="SAME", spatial_squeeze=False)
        assert logits.shape == (2, 2, 2, 3)


def test_a_second_tower_shares_variables_and_has_the_same_keys():
    with tf.Graph().as_default(), slim.arg_scope(vgg_arg_scope(weight_decay=0.1)):
        images = tf.ones([1, 32, 32, 3])
        _, first = vgg_a(images, num_classes=3)
        _, second = vgg_a(images, num_classes=3, reuse=True)
        assert list(first) == list(second)
        assert first["vgg_a/fc7"] is not second["vgg_a/fc7"]
        assert len(slim.get_model_variables()) == 22
        assert len(slim.losses.get_regularization_losses()) == 11


def test_sizes():
    checks.check_unknown_batch_size(vgg_a, 32)
    checks.check_smallest_size(vgg_a)
    for net in (vgg_a, vgg_16, vgg_19):
        checks.check_builds(net, 224, 64)
    checks.check_builds(vgg_a, 256, global_pool=True)
    checks.check_heads(vgg_a)
    checks.check_refused(vgg_a, 31, "vgg_a: images of 31 x 31 pixels are too small; each side needs at least 32")
    checks.check_refused(vgg_a, 256, r"vgg_a: images of 256 x 256 pixels give a map of 2 x 2 logits.*global_pool")
