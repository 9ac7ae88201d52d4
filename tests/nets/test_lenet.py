from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets.lenet import lenet, lenet_arg_scope
from tests.nets import checks


def test_end_points():
    assert checks.shapes(lenet, num_classes=10) == {
        "conv1": [28, 28, 32],
        "pool1": [14, 14, 32],
        "conv2": [14, 14, 64],
        "pool2": [7, 7, 64],
        "Flatten": [3136],
        "fc3": [1024],
        "dropout3": [1024],
        "Logits": [10],
        "Predictions": [10],
    }


@pytest.mark.parametrize("num_classes", [0, None])
def test_features(num_classes):
    with tf.Graph().as_default():
        features, end_points = checks.build(lenet, num_classes=num_classes)
        assert features.shape == (2, 1024)
        assert list(end_points)[-1] == "fc3"


def test_variables_and_weight_decay():
    with tf.Graph().as_default():
        with slim.arg_scope(lenet_arg_scope(weight_decay=0.1)):
            lenet(tf.ones([2, 28, 28, 1]))
        names = [v.op.name for v in slim.get_model_variables()]
        assert names == [f"LeNet/{s}/{v}" for s in ("conv1", "conv2", "fc3", "fc4") for v in ("weights", "biases")]
        assert len(slim.losses.get_regularization_losses()) == 4


def test_sizes():
    checks.check_unknown_batch_size(lenet, 8)
    checks.check_smallest_size(lenet)
    checks.check_builds(lenet, 28, 32)
    checks.check_heads(lenet)
    checks.check_refused(lenet, 3, "lenet: images of 3 x 3 pixels are too small; each side needs at least 4")
    with pytest.raises(ValueError, match=r"lenet: the images must be \[batch, height, width, channels\]"):
        lenet(tf.ones([28, 28, 1]))
