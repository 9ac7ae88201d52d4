from __future__ import annotations

import tensorflow as tf

from slimexp import slim
from slimexp.nets.cifarnet import cifarnet, cifarnet_arg_scope
from tests.nets import checks


def test_end_points():
    assert checks.shapes(cifarnet, num_classes=10) == {
        "conv1": [32, 32, 64],
        "pool1": [16, 16, 64],
        "conv2": [16, 16, 64],
        "pool2": [8, 8, 64],
        "Flatten": [4096],
        "fc3": [384],
        "dropout3": [384],
        "fc4": [192],
        "Logits": [10],
        "Predictions": [10],
    }


def test_features():
    with tf.Graph().as_default():
        features, _ = checks.build(cifarnet, num_classes=None)
        assert features.shape == (2, 192)


def test_variables_and_weight_decay():
    with tf.Graph().as_default():
        with slim.arg_scope(cifarnet_arg_scope(weight_decay=0.1)):
            cifarnet(tf.ones([2, 32, 32, 3]))
        scopes = ("conv1", "conv2", "fc3", "fc4", "logits")
        names = [v.op.name for v in slim.get_model_variables()]
        assert names == [f"CifarNet/{s}/{v}" for s in scopes for v in ("weights", "biases")]
        losses = [loss.op.name for loss in slim.losses.get_regularization_losses()]
        assert losses == [f"CifarNet/{s}/weights/Regularizer/l2_regularizer" for s in ("fc3", "fc4")]


def test_sizes():
    checks.check_unknown_batch_size(cifarnet, 8)
    checks.check_smallest_size(cifarnet)
    checks.check_builds(cifarnet, 32, 20)
    checks.check_heads(cifarnet)
    checks.check_refused(cifarnet, 3, "cifarnet: images of 3 x 3 pixels are too small; each side needs at least 4")
