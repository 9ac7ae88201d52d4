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


def test_maxout_takes_the_maximum_of_each_group(session):
    values = np.array([[1, 5, 3, 2, 9, 0]], np.float32)
    inputs = v1.placeholder(tf.float32, [None, 6])
    out = slim.maxout(inputs, 2)
    assert out.shape.as_list() == [None, 2]
    middle = slim.maxout(tf.transpose(inputs)[tf.newaxis], 3, axis=1)
    out, middle = session.run([out, middle], {inputs: values})
    np.testing.assert_array_equal(out, [[5, 9]])
    np.testing.assert_array_equal(middle, [[[5], [3], [9]]])
    with pytest.raises(ValueError, match="the number of features, 6, is no multiple of num_units=4"):
        slim.maxout(inputs, 4)
    with pytest.raises(ValueError, match=r"maxout: axis=2 is no dimension of the inputs, whose shape is \(None, 6\)"):
        slim.maxout(inputs, 4, axis=2)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_spatial_softmax_is_the_expected_place(session, data_format):
    values = np.random.RandomState(0).normal(size=[2, 3, 4, 5]).astype(np.float32)
    inputs = tf.constant(values if data_format == "NHWC" else np.moveaxis(values, -1, 1))
    out = slim.spatial_softmax(inputs, temperature=0.5, data_format=data_format)
    assert [v.op.name for v in slim.get_trainable_variables()] == ["spatial_softmax/temperature"]
    session.run(v1.global_variables_initializer())
    weights = np.exp(2 * values)
    weights /= weights.sum((1, 2), keepdims=True)
    rows = np.einsum("bhwc,h->bc", weights, np.linspace(-1, 1, 3))
    columns = np.einsum("bhwc,w->bc", weights, np.linspace(-1, 1, 4))
    np.testing.assert_allclose(session.run(out), np.stack([rows, columns], -1).reshape(2, 10), rtol=1e-4, atol=1e-6)


def test_dense_to_sparse_leaves_the_end_token_out(session):
    sparse = slim.dense_to_sparse(tf.constant([[4, 0, 5], [0, 0, 6]]), outputs_collections="out")
    assert v1.get_collection("out") == [sparse]
    indices, values, shape = session.run(sparse)
    np.testing.assert_array_equal(indices, [[0, 0], [0, 2], [1, 2]])
    np.testing.assert_array_equal(values, [4, 5, 6])
    np.testing.assert_array_equal(shape, [2, 3])


def test_poincare_normalize_shortens_only_long_vectors(session):
    out = session.run(slim.poincare_normalize(tf.constant([[3.0, 4.0], [0.3, 0.4]]), epsilon=0.1))
    np.testing.assert_allclose(out, [[0.54, 0.72], [0.3, 0.4]], rtol=1e-5)


def test_bucketize_counts_the_boundaries(session):
    out = slim.bucketize(tf.constant([[-5.0, 0.0], [10.0, 99.0]]), boundaries=[0.0, 10.0])
    np.testing.assert_array_equal(session.run(out), [[0, 1], [2, 2]])
    with pytest.raises(TypeError, match=r"boundaries must be a list of floats, not 3\.0"):
        slim.bucketize(tf.constant([1.0]), boundaries=3.0)
