from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def run(session, tensor):
    session.run(v1.global_variables_initializer())
    return session.run(tensor)


def test_the_last_dimension_is_multiplied(session):
    inputs = np.array([[1.0, 2.0], [3.0, -4.0]], np.float32)
    kwargs = {"weights_initializer": v1.ones_initializer(), "biases_initializer": v1.constant_initializer(-2.0)}
    flat = slim.fully_connected(inputs, 3, **kwargs)
    deep = slim.fully_connected(inputs[:, None, :], 3, activation_fn=None, **kwargs)
    assert deep.shape == (2, 1, 3)
    flat, deep = run(session, [flat, deep])
    np.testing.assert_array_equal(flat, [[1] * 3, [0] * 3])
    np.testing.assert_array_equal(deep, [[[1] * 3], [[-3] * 3]])
    names = [v.op.name for v in slim.get_model_variables()]
    assert names == [f"fully_connected{i}/{v}" for i in ("", "_1") for v in ("weights", "biases")]


def test_partial_layers(session):
    inputs = np.array([[-9.0, 9.0]], np.float32)
    kwargs = {"weights_initializer": v1.constant_initializer(np.eye(2))}
    layers = [slim.linear(inputs, 2, **kwargs), slim.relu(inputs, 2, **kwargs), slim.relu6(inputs, 2, **kwargs)]
    linear, relu, relu6 = run(session, layers)
    assert (linear.tolist(), relu.tolist(), relu6.tolist()) == ([[-9, 9]], [[0, 9]], [[0, 6]])


def test_unknown_batch_and_middle_sizes():
    inputs = v1.placeholder(tf.float32, [None, None, 2])
    assert slim.fully_connected(inputs, 3).shape.as_list() == [None, None, 3]


def test_bias_add(session):
    inputs = np.zeros([1, 2, 2, 3], np.float32)
    initializer = v1.constant_initializer([1.0, 2.0, 3.0])
    out = slim.bias_add(inputs, initializer=initializer, activation_fn=tf.negative, outputs_collections="out")
    first = slim.bias_add(np.ones([1, 3, 2, 2], np.float32), initializer=initializer, data_format="NCHW")
    out, first = run(session, [out, first])
    np.testing.assert_array_equal(out[0, 0, 0], [-1, -2, -3])
    np.testing.assert_array_equal(first[0, :, 0, 0], [2, 3, 4])
    assert list(slim.utils.convert_collection_to_dict("out")) == ["BiasAdd"]


def test_what_they_refuse():
    with pytest.raises(ValueError, match=r"must have rank 2 or more, but their shape is \(3,\)"):
        slim.fully_connected(tf.ones([3]), 2)
    with pytest.raises(ValueError, match=r"last dimension of the inputs must be known"):
        slim.fully_connected(v1.placeholder(tf.float32, [2, None]), 2)
    with pytest.raises(ValueError, match="rank of the inputs must be known"):
        slim.fully_connected(v1.placeholder(tf.float32), 2)
    with pytest.raises(TypeError, match="fully_connected: the inputs are of a non-floating point type, int32"):
        slim.fully_connected(tf.ones([2, 2], tf.int32), 2)
    with pytest.raises(ValueError, match="NCHW: the inputs must have rank 4"):
        slim.bias_add(tf.ones([2, 3]), data_format="NCHW")
    with pytest.raises(ValueError, match="undefined channels dimension"):
        slim.bias_add(v1.placeholder(tf.float32, [2, None, 3, 3]), data_format="NCHW")
