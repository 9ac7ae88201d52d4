from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets.inception_v3 import inception_v3, inception_v3_arg_scope, inception_v3_base
from tests.nets import checks


def test_end_points():
    assert checks.shapes(inception_v3, num_classes=10) == {
        "Conv2d_1a_3x3": [149, 149, 32],
        "Conv2d_2a_3x3": [147, 147, 32],
        "Conv2d_2b_3x3": [147, 147, 64],
        "MaxPool_3a_3x3": [73, 73, 64],
        "Conv2d_3b_1x1": [73, 73, 80],
        "Conv2d_4a_3x3": [71, 71, 192],
        "MaxPool_5a_3x3": [35, 35, 192],
        "Mixed_5b": [35, 35, 256],
        "Mixed_5c": [35, 35, 288],
        "Mixed_5d": [35, 35, 288],
        "Mixed_6a": [17, 17, 768],
        "Mixed_6b": [17, 17, 768],
        "Mixed_6c": [17, 17, 768],
        "Mixed_6d": [17, 17, 768],
        "Mixed_6e": [17, 17, 768],
        "Mixed_7a": [8, 8, 1280],
        "Mixed_7b": [8, 8, 2048],
        "Mixed_7c": [8, 8, 2048],
        "AuxLogits": [10],
        "AvgPool_1a": [1, 1, 2048],
        "PreLogits": [1, 1, 2048],
        "Logits": [10],
        "Predictions": [10],
    }


def test_it_is_that_of_the_original():
    checks.check_reference(inception_v3, extra_end_points={"AvgPool_1a"})


def test_output_node_is_named_as_in_published_graphs():
    with tf.Graph().as_default():
        _, end_points = checks.build(inception_v3, 75, num_classes=3, depth_multiplier=0.1)
        assert end_points["Predictions"].op.name == "InceptionV3/Predictions/Reshape_1"
        assert end_points["Mixed_7c"].shape == (2, 1, 1, 32 + 4 * 38 + 19)


def test_features_and_final_end_point():
    with tf.Graph().as_default():
        features, end_points = checks.build(inception_v3, 75, num_classes=0)
        assert features.shape == (2, 1, 1, 2048)
        assert "AuxLogits" not in end_points
    with tf.Graph().as_default():
        images = tf.ones([2, 75, 75, 3])
        net, end_points = inception_v3_base(images, final_endpoint="Mixed_5d", depth_multiplier=0.5, min_depth=40)
        assert list(end_points)[-1] == "Mixed_5d"
        # 64, 64, 96 and 64 filters halved, but 40 at least.
        assert net.shape == (2, 7, 7, 40 + 40 + 48 + 40)
        with pytest.raises(ValueError, match="inception_v3: there is no final_endpoint 'Mixed_7d'"):
            inception_v3_base(images, final_endpoint="Mixed_7d")
        with pytest.raises(ValueError, match="depth_multiplier=0 must be greater than 0"):
            inception_v3_base(images, depth_multiplier=0)


@pytest.mark.parametrize(("size", "global_pool"), [(107, False), (380, True)])
def test_auxiliary_head_fits_its_map(size, global_pool):
    kwargs = {"num_classes": 3, "depth_multiplier": 0.1, "global_pool": global_pool}
    table = checks.shapes(inception_v3, size, **kwargs)
    assert table["AuxLogits"] == table["Logits"] == [3]


def test_arg_scope():
    with tf.Graph().as_default():
        scope = inception_v3_arg_scope(use_batch_norm=False, weight_decay=0.0, activation_fn=None)
        with slim.arg_scope(scope):
            inception_v3_base(tf.ones([2, 75, 75, 3]), final_endpoint="Conv2d_1a_3x3")
        assert [v.op.name for v in slim.get_model_variables()] == [
            "InceptionV3/Conv2d_1a_3x3/weights",
            "InceptionV3/Conv2d_1a_3x3/biases",
        ]
        assert slim.losses.get_regularization_losses() == []
    with tf.Graph().as_default():
        scope = inception_v3_arg_scope(batch_norm_scale=True, batch_norm_updates_collections=None)
        with slim.arg_scope(scope):
            inception_v3_base(tf.ones([2, 75, 75, 3]), final_endpoint="Conv2d_1a_3x3")
        assert slim.get_variables_by_suffix("gamma")
        assert tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS) == []


@pytest.mark.slow
def test_sizes():
    checks.check_unknown_batch_size(inception_v3, 75)
    checks.check_smallest_size(inception_v3)
    checks.check_builds(inception_v3, 299, 139)
    checks.check_heads(inception_v3, size=75)
    checks.check_refused(inception_v3, 74, "inception_v3: images of 74 x 74 pixels are too small; each side needs at")
    checks.check_refused(
        inception_v3,
        380,
        r"give a map of 2 x 2 logits.*global_pool=True",
        depth_multiplier=0.1,
        create_aux_logits=False,
    )
