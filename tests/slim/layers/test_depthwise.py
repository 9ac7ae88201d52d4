from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
IMAGES = np.random.RandomState(0).normal(size=[2, 5, 6, 3]).astype(np.float32)


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def variables():
    return {v.op.name: v.shape.as_list() for v in slim.get_model_variables()}


def filtered(images, kernels):
    """[b, h, w, c], [kh, kw, c, m] -> [b, h - kh + 1, w - kw + 1, c, m], without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(images, kernels.shape[:2], axis=(1, 2))
    return np.einsum("bhwcij,ijcm->bhwcm", windows, kernels)


def test_separable_values_and_names(session):
    out = slim.separable_conv2d(
        IMAGES, 4, [2, 3], 2, padding="VALID", activation_fn=None, variables_collections={"weights": ["w"]}
    )
    assert variables() == {
        "SeparableConv2d/depthwise_weights": [2, 3, 3, 2],
        "SeparableConv2d/pointwise_weights": [1, 1, 6, 4],
        "SeparableConv2d/biases": [4],
    }
    assert len(v1.get_collection("w")) == 2
    session.run(v1.global_variables_initializer())
    out, depthwise, pointwise = session.run([out, *slim.get_variables_by_suffix("weights")])
    expected = filtered(IMAGES, depthwise).reshape(2, 4, 4, 6) @ pointwise[0, 0]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_without_the_pointwise_stage(session):
    out = slim.separable_conv2d(IMAGES, None, 3, 2, padding="VALID", activation_fn=None, scope="depth")
    strided = slim.separable_conv2d(IMAGES, None, 3, stride=2, normalizer_fn=slim.batch_norm, scope="norm")
    assert strided.shape == (2, 3, 3, 3)
    assert list(variables())[:3] == ["depth/depthwise_weights", "depth/biases", "norm/depthwise_weights"]
    session.run(v1.global_variables_initializer())
    out, depthwise = session.run([out, slim.get_variables("depth/depthwise_weights")[0]])
    np.testing.assert_allclose(out, filtered(IMAGES, depthwise).reshape(2, 3, 4, 6), rtol=1e-4, atol=1e-5)


def test_channels_first_and_rate(session):
    inputs = v1.placeholder(tf.float32, [None, None, None, 3])
    last = slim.separable_conv2d(inputs, 4, 3, rate=2, scope="s")
    first = slim.separable_conv2d(
        tf.transpose(inputs, [0, 3, 1, 2]), 4, 3, rate=2, data_format="NCHW", scope="s", reuse=True
    )
    assert last.shape.as_list() == [None, None, None, 4]
    session.run(v1.global_variables_initializer())
    last, first = session.run([last, first], {inputs: IMAGES})
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), last, rtol=1e-4, atol=1e-5)


def test_one_filter_for_all_channels(session):
    kernel = np.array([[-1.0, 1.0]], np.float32).reshape(1, 2, 1, 1)
    out = slim.conv2d_in_plane(
        IMAGES, [1, 2], 1, "VALID", activation_fn=None, weights_initializer=v1.constant_initializer(kernel)
    )
    assert variables() == {"ConvInPlane/weights": [1, 2, 1, 1], "ConvInPlane/biases": [3]}
    session.run(v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(out), np.diff(IMAGES, axis=2), rtol=1e-5, atol=1e-6)


def test_what_they_refuse():
    with pytest.raises(ValueError, match=r"separable_conv2d: stride=\[1, 2\] must be the same in both dimensions"):
        slim.separable_conv2d(IMAGES, 4, 3, stride=[1, 2])
    with pytest.raises(ValueError, match="separable_conv2d: stride=2 and rate=2 cannot both be greater than 1"):
        slim.separable_conv2d(IMAGES, 4, 3, stride=2, rate=2)
    with pytest.raises(ValueError, match=r"conv2d_in_plane: the inputs must have rank 4, not shape \(5, 6, 3\)"):
        slim.conv2d_in_plane(IMAGES[0], 3)
