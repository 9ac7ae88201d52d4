from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
VALUES = np.random.RandomState(0).uniform(-1, 3, [3, 4, 2, 6]).astype(np.float32)


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def normalized(values, axes, epsilon):
    mean, variance = values.mean(axes, keepdims=True), values.var(axes, keepdims=True)
    return (values - mean) / np.sqrt(variance + epsilon)


def names():
    return [v.op.name for v in slim.get_model_variables()]


def test_layer_norm(session):
    inputs = v1.placeholder(tf.float32, [None, 4, 2, 6])
    whole = slim.layer_norm(inputs, outputs_collections="out")
    last = slim.layer_norm(inputs, begin_norm_axis=-1, begin_params_axis=2, center=False, activation_fn=tf.nn.relu)
    assert names() == ["LayerNorm/beta", "LayerNorm/gamma", "LayerNorm_1/gamma"]
    assert [v.shape.as_list() for v in slim.get_model_variables()] == [[6], [6], [2, 6]]
    assert list(slim.utils.convert_collection_to_dict("out")) == ["LayerNorm"]
    session.run(v1.global_variables_initializer())
    whole, last = session.run([whole, last], {inputs: VALUES})
    np.testing.assert_allclose(whole, normalized(VALUES, (1, 2, 3), 1e-12), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, np.maximum(normalized(VALUES, 3, 1e-12), 0), rtol=1e-4, atol=1e-5)


def test_instance_norm(session):
    initializers = {"gamma": v1.constant_initializer(2.0), "beta": v1.constant_initializer(1.0)}
    last = slim.instance_norm(VALUES, param_initializers=initializers, scope="n")
    first = slim.instance_norm(np.moveaxis(VALUES, -1, 1), data_format="NCHW", scope="n", reuse=True)
    assert names() == ["n/beta", "n/gamma"]
    session.run(v1.global_variables_initializer())
    last, first = session.run([last, first])
    np.testing.assert_allclose(last, 2 * normalized(VALUES, (1, 2), 1e-6) + 1, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mean_close_to_zero", [False, True])
def test_group_norm(session, mean_close_to_zero):
    inputs = v1.placeholder(tf.float32, [None, 4, 2, 6])
    last = slim.group_norm(inputs, 3, scope="n", mean_close_to_zero=mean_close_to_zero)
    first = slim.group_norm(
        tf.transpose(inputs, [0, 3, 1, 2]), 3, channels_axis=1, reduction_axes=[2, 3], scope="n", reuse=True
    )
    assert last.shape.as_list() == [None, 4, 2, 6]
    session.run(v1.global_variables_initializer())
    last, first = session.run([last, first], {inputs: VALUES})
    grouped = normalized(VALUES.reshape(3, 4, 2, 3, 2), (1, 2, 4), 1e-6)
    np.testing.assert_allclose(last, grouped.reshape(VALUES.shape), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), last, rtol=1e-3, atol=1e-4)


def test_as_normalizers_of_other_layers():
    images = tf.ones([2, 4, 4, 3])
    for normalizer, params in ((slim.layer_norm, None), (slim.instance_norm, None), (slim.group_norm, {"groups": 4})):
        slim.conv2d(images, 8, 3, normalizer_fn=normalizer, normalizer_params=params)
    assert names()[1::3] == ["Conv/LayerNorm/beta", "Conv_1/InstanceNorm/beta", "Conv_2/GroupNorm/beta"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: slim.layer_norm(VALUES, begin_norm_axis=4), r"begin_norm_axis=4 must be < rank\(inputs\), which is 4"),
        (
            lambda: slim.layer_norm(v1.placeholder(tf.float32, [2, None])),
            "axis=-1 on is not fully defined",
        ),
        (lambda: slim.layer_norm(v1.placeholder(tf.float32)), "layer_norm: the inputs have an undefined rank"),
        (lambda: slim.instance_norm(VALUES, data_format="NC"), "data_format='NC' must be NHWC or NCHW"),
        (lambda: slim.instance_norm(VALUES[0, 0]), "instance_norm: the inputs must have rank 3 or more"),
        (lambda: slim.group_norm(VALUES, 4), "groups=4 must divide the number of channels, 6"),
        (lambda: slim.group_norm(VALUES, 3, 4), "axis 4 is out of bounds: the inputs have rank 4"),
        (lambda: slim.group_norm(VALUES, 3, -2), "must be mutually exclusive"),
        (lambda: slim.group_norm(v1.placeholder(tf.float32, [2, None, 2, 6]), 3), r"undefined dimensions \[1\]"),
        (lambda: slim.group_norm(VALUES, 3, param_initializers={"moving_mean": 0}), r"has \['moving_mean'\]"),
    ],
)
def test_what_they_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()
