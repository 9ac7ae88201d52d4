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


@pytest.mark.parametrize(("known", "flat"), [([4, 3, 2], [4, 6]), ([None, 3, 2], [None, 6]), ([4, None, 2], [4, None])])
def test_flatten(session, known, flat):
    inputs = v1.placeholder(tf.float32, known)
    out = slim.flatten(inputs, outputs_collections="out")
    assert out.shape.as_list() == flat
    values = np.arange(24.0).reshape(4, 3, 2)
    np.testing.assert_array_equal(session.run(out, {inputs: values}), values.reshape(4, 6))
    assert list(slim.utils.convert_collection_to_dict("out")) == ["Flatten"]


def test_flatten_of_no_elements(session):
    assert session.run(slim.flatten(tf.zeros([3, 0, 2]))).shape == (3, 0)
    assert slim.flatten(tf.zeros([3])).shape == (3, 1)
    with pytest.raises(ValueError, match=r"flatten: the inputs must have rank 1 or more, not shape \(\)"):
        slim.flatten(tf.zeros([]))


def test_one_hot_encoding(session):
    out = slim.one_hot_encoding(tf.constant([2, 0]), 3, on_value=5.0, off_value=-1.0)
    np.testing.assert_array_equal(session.run(out), [[-1, -1, 5], [5, -1, -1]])
    assert slim.one_hot_encoding([1], 3).dtype == tf.float32


def test_softmax(session):
    logits = np.log(np.array([[[1.0, 3.0]], [[2.0, 2.0]]], np.float32))
    out = slim.softmax(logits, scope="Predictions")
    np.testing.assert_allclose(session.run(out), [[[0.25, 0.75]], [[0.5, 0.5]]], rtol=1e-6)
    # The name that published graphs have for their output.
    assert out.op.name == "Predictions/Reshape_1"
    assert slim.softmax(v1.placeholder(tf.float32, [None, 3])).shape.as_list() == [None, 3]


def test_unit_norm(session):
    out = slim.unit_norm(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), dim=1)
    np.testing.assert_allclose(session.run(out), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    with pytest.raises(ValueError, match="dim=2 must be a dimension of the inputs"):
        slim.unit_norm(tf.ones([2, 2]), dim=2)


def test_scale_gradient(session):
    x = tf.constant([1.0, 2.0])
    y = slim.scale_gradient(x, -0.5)
    value, (gradient,) = session.run([y, tf.gradients(y * y, [x])])
    np.testing.assert_array_equal(value, [1, 2])
    np.testing.assert_array_equal(gradient, [-1, -2])
