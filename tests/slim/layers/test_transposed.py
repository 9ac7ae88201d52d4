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


def test_values_by_hand(session):
    image = np.array([[1, 2]], np.float32).reshape(1, 1, 2, 1)
    ones = v1.ones_initializer()
    # Each pixel adds its value to all that a kernel of ones at its place covers.
    valid = slim.conv2d_transpose(image, 1, [1, 3], [1, 2], "valid", weights_initializer=ones)
    gaps = slim.conv2d_transpose(image, 1, 1, 2, "VALID", weights_initializer=ones)
    volume = slim.conv3d_transpose(image[:, None], 1, [1, 1, 3], [1, 1, 2], "VALID", weights_initializer=ones)
    session.run(v1.global_variables_initializer())
    valid, gaps, volume = session.run([valid, gaps, volume])
    np.testing.assert_array_equal(valid[0, 0, :, 0], [1, 1, 3, 2, 2])
    np.testing.assert_array_equal(gaps[0, :, :, 0], [[1, 0, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(volume[0, 0, 0, :, 0], [1, 1, 3, 2, 2])


@pytest.mark.parametrize("n", [2, 3])
def test_names_shapes_and_channels_first(session, n):
    layer = {2: slim.conv2d_transpose, 3: slim.conv3d_transpose}[n]
    values = np.random.RandomState(0).normal(size=[2, *[4] * n, 3]).astype(np.float32)
    inputs = v1.placeholder(tf.float32, [None, *[4] * (n - 1), None, 3])
    last = layer(inputs, 5, 3, 2, scope="up", outputs_collections="out", variables_collections={"weights": ["w"]})
    assert last.shape.as_list() == [None, *[8] * (n - 1), None, 5]
    assert last.op.name == "up/Relu"
    assert list(slim.utils.convert_collection_to_dict("out")) == ["up"]
    assert [v.op.name for v in v1.get_collection("w")] == ["up/weights"]
    assert slim.get_variables_by_name("weights")[0].shape == (*[3] * n, 5, 3)
    first = layer(
        tf.transpose(inputs, [0, n + 1, *range(1, n + 1)]),
        5,
        3,
        2,
        data_format={2: "NCHW", 3: "NCDHW"}[n],
        scope="up",
        reuse=True,
    )
    session.run(v1.global_variables_initializer())
    last, first = session.run([last, first], {inputs: values})
    assert last.shape == (2, *[8] * n, 5)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), last, rtol=1e-5, atol=1e-6)


def test_default_scopes_and_normalizer():
    images = tf.ones([2, 4, 4, 3])
    slim.convolution2d_transpose(images, 5, 3, normalizer_fn=slim.batch_norm, activation_fn=None)
    slim.convolution3d_transpose(images[:, None], 5, 3, biases_initializer=None)
    names = [v.op.name for v in slim.get_model_variables()]
    assert [name for name in names if "moving" not in name] == [
        "Conv2d_transpose/weights",
        "Conv2d_transpose/BatchNorm/beta",
        "Conv3d_transpose/weights",
    ]


def test_what_they_refuse():
    with pytest.raises(ValueError, match=r"conv2d_transpose: the inputs must have rank 4, not shape \(2, 3\)"):
        slim.conv2d_transpose(tf.ones([2, 3]), 5, 3)
    with pytest.raises(ValueError, match="conv3d_transpose: data_format='NHWC' must be NDHWC or NCDHW"):
        slim.conv3d_transpose(tf.ones([1, 2, 2, 2, 3]), 5, 3, data_format="NHWC")
    with pytest.raises(ValueError, match="conv2d_transpose: padding='FULL' must be SAME or VALID"):
        slim.conv2d_transpose(tf.ones([1, 2, 2, 3]), 5, 3, padding="FULL")
    with pytest.raises(TypeError, match="conv2d_transpose: the inputs are of a non-floating point type, int32"):
        slim.conv2d_transpose(tf.ones([1, 2, 2, 3], tf.int32), 5, 3)
