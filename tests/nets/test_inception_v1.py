from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets.inception_v1 import inception_v1, inception_v1_arg_scope, inception_v1_base
from tests.nets import checks
from tests.slim import reference


def test_end_points():
    assert checks.shapes(inception_v1, num_classes=10) == {
        "Conv2d_1a_7x7": [112, 112, 64],
        "MaxPool_2a_3x3": [56, 56, 64],
        "Conv2d_2b_1x1": [56, 56, 64],
        "Conv2d_2c_3x3": [56, 56, 192],
        "MaxPool_3a_3x3": [28, 28, 192],
        "Mixed_3b": [28, 28, 256],
        "Mixed_3c": [28, 28, 480],
        "MaxPool_4a_3x3": [14, 14, 480],
        "Mixed_4b": [14, 14, 512],
        "Mixed_4c": [14, 14, 512],
        "Mixed_4d": [14, 14, 512],
        "Mixed_4e": [14, 14, 528],
        "Mixed_4f": [14, 14, 832],
        "MaxPool_5a_2x2": [7, 7, 832],
        "Mixed_5b": [7, 7, 832],
        "Mixed_5c": [7, 7, 1024],
        "AvgPool_0a_7x7": [1, 1, 1024],
        "Logits": [10],
        "Predictions": [10],
    }


def test_it_is_that_of_the_original():
    checks.check_reference(inception_v1, extra_end_points={"AvgPool_0a_7x7"})


@pytest.mark.slow
def test_it_is_that_of_the_original_in_a_function():
    expected = reference.load("inception_v1")
    store = slim.VariableStore(seed=0)

    def net(images, is_training=False):
        with slim.arg_scope(inception_v1_arg_scope()):
            return inception_v1(images, num_classes=expected["num_classes"], is_training=is_training)[0]

    store.build(lambda images: net(images, is_training=True), tf.TensorSpec([None, 224, 224, 3]))
    store.freeze()
    assert [[n, v.shape.as_list()] for n, v in store.variables.items()] == expected["model_variables"]
    assert list(store.trainable_variables) == expected["trainable_variables"]
    for name, variable in store.variables.items():
        variable.assign(reference.weight(name, variable.shape.as_list()))

    @tf.function
    def infer(images):
        with store.in_use(), slim.collected() as own:
            logits = net(images)
        assert len(own.regularization_losses) == expected["regularization_losses_training"]
        assert own.update_ops == []
        return logits

    checks.check_logits(inception_v1, infer(reference.inputs(expected["input_shape"])).numpy())


def test_features_and_final_end_point():
    with tf.Graph().as_default():
        features, _ = checks.build(inception_v1, 64, num_classes=None, global_pool=True)
        assert features.shape == (2, 1, 1, 1024)
    with tf.Graph().as_default():
        net, end_points = inception_v1_base(tf.ones([2, 64, 64, 3]), final_endpoint="Mixed_3c")
        assert list(end_points)[-1] == "Mixed_3c"
        assert net is end_points["Mixed_3c"]
        with pytest.raises(
            ValueError, match=r"inception_v1: there is no final_endpoint 'Mixed_9z'; it is one of Conv2d"
        ):
            inception_v1_base(tf.ones([2, 64, 64, 3]), final_endpoint="Mixed_9z")
    with tf.Graph().as_default():
        net, end_points = inception_v1_base(tf.ones([2, 28, 28, 192]), "Mixed_3c", include_root_block=False)
        assert list(end_points) == ["Mixed_3b", "Mixed_3c"]
        assert net.shape == (2, 28, 28, 480)


@pytest.mark.slow
def test_sizes():
    checks.check_unknown_batch_size(inception_v1, 32)
    checks.check_smallest_size(inception_v1)
    checks.check_builds(inception_v1, 224, 96)
    checks.check_heads(inception_v1, size=32)
    checks.check_refused(inception_v1, 256, r"give a map of 2 x 2 logits.*global_pool=True")
