from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets.inception_v2 import inception_v2, inception_v2_arg_scope, inception_v2_base
from tests.nets import checks


def test_end_points():
    assert checks.shapes(inception_v2, num_classes=10) == {
        "Conv2d_1a_7x7": [112, 112, 64],
        "MaxPool_2a_3x3": [56, 56, 64],
        "Conv2d_2b_1x1": [56, 56, 64],
        "Conv2d_2c_3x3": [56, 56, 192],
        "MaxPool_3a_3x3": [28, 28, 192],
        "Mixed_3b": [28, 28, 256],
        "Mixed_3c": [28, 28, 320],
        "Mixed_4a": [14, 14, 576],
        "Mixed_4b": [14, 14, 576],
        "Mixed_4c": [14, 14, 576],
        "Mixed_4d": [14, 14, 576],
        "Mixed_4e": [14, 14, 576],
        "Mixed_5a": [7, 7, 1024],
        "Mixed_5b": [7, 7, 1024],
        "Mixed_5c": [7, 7, 1024],
        "AvgPool_1a": [1, 1, 1024],
        "PreLogits": [1, 1, 1024],
        "Logits": [10],
        "Predictions": [10],
    }


def test_it_has_the_originals_number_of_parameters():
    with tf.Graph().as_default(), slim.arg_scope(inception_v2_arg_scope()):
        inception_v2_base(tf.ones([1, 224, 224, 3]))
        # What the original's own test states.
        assert sum(int(np.prod(v.shape.as_list())) for v in slim.get_model_variables()) == 10173112
        names = [v.op.name for v in slim.get_model_variables()]
        assert names[:3] == [
            f"InceptionV2/Conv2d_1a_7x7/{n}" for n in ("depthwise_weights", "pointwise_weights", "biases")
        ]


def test_depth_multiplier():
    # 64 filters halved, of which a third, at most 8, are made of each of the three colours.
    with tf.Graph().as_default():
        net, _ = inception_v2_base(tf.ones([2, 64, 64, 3]), "Mixed_3b", min_depth=20, depth_multiplier=0.5)
        assert net.shape == (2, 8, 8, 32 + 32 + 48 + 20)
        assert slim.get_unique_variable("InceptionV2/Conv2d_1a_7x7/depthwise_weights").shape == (7, 7, 3, 8)
    with tf.Graph().as_default():
        inception_v2_base(tf.ones([2, 64, 64, 3]), "Conv2d_1a_7x7", min_depth=1, depth_multiplier=0.01)
        assert slim.get_unique_variable("InceptionV2/Conv2d_1a_7x7/depthwise_weights").shape == (7, 7, 3, 1)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="depth_multiplier=-1 must be greater than 0"):
        inception_v2_base(tf.ones([2, 64, 64, 3]), depth_multiplier=-1)


def test_a_full_first_convolution_in_both_data_formats():
    with tf.Graph().as_default(), slim.arg_scope(inception_v2_arg_scope()):
        last, _ = inception_v2_base(tf.ones([2, 64, 64, 3]), "Mixed_4a", use_separable_conv=False)
        assert last.shape == (2, 4, 4, 576)
        shapes = {v.op.name: v.shape.as_list() for v in slim.get_model_variables()}
        assert shapes["InceptionV2/Conv2d_1a_7x7/weights"] == [7, 7, 3, 64]
        assert "InceptionV2/Conv2d_1a_7x7/BatchNorm/beta" in shapes
    with tf.Graph().as_default(), slim.arg_scope(inception_v2_arg_scope()):
        first, end_points = inception_v2_base(
            tf.ones([2, 3, 64, 64]), "Mixed_4a", use_separable_conv=False, data_format="NCHW"
        )
        assert first.shape == (2, 576, 4, 4)
        assert end_points["Mixed_3b"].shape == (2, 256, 8, 8)
        assert {v.op.name: v.shape.as_list() for v in slim.get_model_variables()} == shapes
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"data_format='NCHW' does not go with use_separable_conv=True"):
            inception_v2_base(tf.ones([2, 3, 64, 64]), data_format="NCHW")
        with pytest.raises(ValueError, match=r"data_format='NHW' must be NHWC or NCHW"):
            inception_v2_base(tf.ones([2, 3, 64, 64]), data_format="NHW")


def test_features_and_final_end_point():
    with tf.Graph().as_default():
        features, end_points = checks.build(inception_v2, 64, num_classes=None, global_pool=True)
        assert features.shape == (2, 1, 1, 1024)
        assert list(end_points)[-1] == "global_pool"
    with tf.Graph().as_default():
        net, end_points = inception_v2_base(tf.ones([2, 28, 28, 192]), "Mixed_4a", include_root_block=False)
        assert list(end_points) == ["Mixed_3b", "Mixed_3c", "Mixed_4a"]
        assert net.shape == (2, 14, 14, 576)
        with pytest.raises(
            ValueError, match=r"inception_v2: there is no final_endpoint 'Mixed_6a'; it is one of Conv2d"
        ):
            inception_v2_base(tf.ones([2, 64, 64, 3]), final_endpoint="Mixed_6a")


@pytest.mark.slow
def test_sizes():
    checks.check_unknown_batch_size(inception_v2, 32)
    checks.check_smallest_size(inception_v2)
    checks.check_builds(inception_v2, 224, 96)
    checks.check_heads(inception_v2, size=32)
    # The window's stride is 2, as in the original: a map that is one larger still gives one vector.
    checks.check_refused(inception_v2, 288, r"give a map of 2 x 2 logits.*global_pool=True")
