from __future__ import annotations

import tensorflow as tf

from slimexp import slim
from slimexp.nets.alexnet import alexnet_v2, alexnet_v2_arg_scope
from tests.nets import checks


def test_end_points():
    assert checks.shapes(alexnet_v2, num_classes=10) == {
        "alexnet_v2/conv1": [54, 54, 64],
        "alexnet_v2/pool1": [26, 26, 64],
        "alexnet_v2/conv2": [26, 26, 192],
        "alexnet_v2/pool2": [12, 12, 192],
        "alexnet_v2/conv3": [12, 12, 384],
        "alexnet_v2/conv4": [12, 12, 384],
        "alexnet_v2/conv5": [12, 12, 256],
        "alexnet_v2/pool5": [5, 5, 256],
        "alexnet_v2/fc6": [1, 1, 4096],
        "alexnet_v2/fc7": [1, 1, 4096],
        "alexnet_v2/fc8": [10],
    }


def test_it_is_that_of_the_original():
    checks.check_reference(alexnet_v2, extra_end_points=set())


def test_biases_start_at_a_tenth_but_those_of_the_logits_at_nought():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        checks.build(alexnet_v2, 67, num_classes=3)
        session.run(tf.compat.v1.global_variables_initializer())
        biases = session.run({v.op.name: v for v in slim.get_variables_by_suffix("biases")})
    for name, value in biases.items():
        assert set(value.tolist()) == ({0.0} if name == "alexnet_v2/fc8/biases" else {0.10000000149011612}), name


def test_features_and_maps():
    with tf.Graph().as_default():
        features, table = checks.build(alexnet_v2, 100, num_classes=0)
        assert features.shape == (2, 1, 1, 4096)
        assert list(table)[-1] == "alexnet_v2/fc7"
    with tf.Graph().as_default():
        logits, _ = checks.build(alexnet_v2, 300, num_classes=3, spatial_squeeze=False)
        assert logits.shape == (2, 4, 4, 3)
    with tf.Graph().as_default():
        logits, table = checks.build(alexnet_v2, 300, num_classes=3, global_pool=True)
        assert logits.shape == (2, 3)
        assert table["global_pool"].shape == (2, 1, 1, 4096)


def test_a_second_tower_shares_variables_and_has_the_same_keys():
    with tf.Graph().as_default(), slim.arg_scope(alexnet_v2_arg_scope(weight_decay=0.1)):
        images = tf.ones([1, 67, 67, 3])
        _, first = alexnet_v2(images, num_classes=3)
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
            _, second = alexnet_v2(images, num_classes=3)
        assert list(first) == list(second)
        assert first["alexnet_v2/fc7"] is not second["alexnet_v2/fc7"]
        assert len(slim.get_model_variables()) == 16
        assert len(slim.losses.get_regularization_losses()) == 8


def test_sizes():
    checks.check_unknown_batch_size(alexnet_v2, 67)
    checks.check_smallest_size(alexnet_v2)
    checks.check_builds(alexnet_v2, 224, 100)
    checks.check_heads(alexnet_v2)
    checks.check_refused(
        alexnet_v2, 66, "alexnet_v2: images of 66 x 66 pixels are too small; each side needs at least 67"
    )
    checks.check_refused(alexnet_v2, 300, r"alexnet_v2: images of 300 x 300 .* map of 4 x 4 logits.*global_pool")
