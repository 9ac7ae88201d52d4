from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
IMAGES = np.random.RandomState(0).uniform(-1, 3, [4, 3, 2, 5]).astype(np.float32)


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def normalized(values, mean, variance, epsilon=0.001):
    return (values - mean) / np.sqrt(variance + epsilon)


def moments(values, ddof=0):
    axes = tuple(range(values.ndim - 1))
    return values.mean(axes), values.var(axes, ddof=ddof) if ddof == 0 else values.var(axes, ddof=1)


@pytest.mark.parametrize("fused", [None, False])
def test_training_uses_the_batch_and_updates_the_averages(session, fused):
    out = slim.batch_norm(IMAGES, decay=0.9, fused=fused)
    assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == 2
    session.run(v1.global_variables_initializer())
    mean, variance = moments(IMAGES)
    np.testing.assert_allclose(session.run(out), normalized(IMAGES, mean, variance), rtol=1e-4, atol=1e-5)
    session.run(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
    moving_mean, moving_variance = session.run(slim.get_variables("BatchNorm/moving"))
    np.testing.assert_allclose(moving_mean, 0.1 * mean, rtol=1e-5)
    # The fused kernel gives the variance of the population.
    variance = moments(IMAGES, ddof=0 if fused is False else 1)[1]
    np.testing.assert_allclose(moving_variance, 0.9 + 0.1 * variance, rtol=1e-5)


@pytest.mark.parametrize("fused", [None, False])
def test_inference_uses_the_averages(session, fused):
    initializers = {
        "moving_mean": v1.constant_initializer(0.5),
        "moving_variance": v1.constant_initializer(4.0),
        "gamma": v1.constant_initializer(3.0),
        "beta": v1.constant_initializer(2.0),
    }
    out = slim.batch_norm(
        IMAGES,
        scale=True,
        epsilon=0.01,
        is_training=False,
        fused=fused,
        param_initializers=initializers,
        param_regularizers={"gamma": slim.l2_regularizer(1.0)},
        activation_fn=tf.nn.relu,
    )
    session.run(v1.global_variables_initializer())
    expected = np.maximum(3 * normalized(IMAGES, 0.5, 4.0, 0.01) + 2, 0)
    np.testing.assert_allclose(session.run(out), expected, rtol=1e-4, atol=1e-5)
    assert v1.get_collection(v1.GraphKeys.UPDATE_OPS) == []
    names = [v.op.name for v in slim.get_model_variables()]
    assert names == [f"BatchNorm/{v}" for v in ("gamma", "beta", "moving_mean", "moving_variance")]
    assert [v.op.name for v in slim.get_trainable_variables()] == names[:2]
    (loss,) = session.run(slim.losses.get_regularization_losses())
    assert loss == 5 * 9 / 2


@pytest.mark.parametrize("updates_collections", [v1.GraphKeys.UPDATE_OPS, None])
def test_a_tensor_may_choose_the_mode(session, updates_collections):
    is_training = v1.placeholder(tf.bool, [])
    out = slim.batch_norm(IMAGES, decay=0.9, is_training=is_training, updates_collections=updates_collections)
    updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    session.run(v1.global_variables_initializer())
    mean, variance = moments(IMAGES)

    def run(training):
        value, _ = session.run([out, updates], {is_training: training})
        return value, session.run(slim.get_variables("BatchNorm/moving_mean")[0])

    value, moving = run(False)
    np.testing.assert_allclose(value, normalized(IMAGES, 0, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(moving, np.zeros(5))
    value, moving = run(True)
    np.testing.assert_allclose(value, normalized(IMAGES, mean, variance), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moving, 0.1 * mean, rtol=1e-5)


def test_other_ranks_and_channels_first(session):
    mean, variance = moments(IMAGES)
    expected = normalized(IMAGES, mean, variance)
    volume = slim.batch_norm(IMAGES[:, None])
    first = slim.batch_norm(np.moveaxis(IMAGES, -1, 1), data_format="NCHW", fused=False)
    flat = IMAGES.reshape(-1, 5)
    matrix = slim.batch_norm(flat)
    session.run(v1.global_variables_initializer())
    volume, first, matrix = session.run([volume, first, matrix])
    np.testing.assert_allclose(volume[:, 0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(matrix, expected.reshape(-1, 5), rtol=1e-4, atol=1e-5)


def test_examples_without_weight_do_not_count(session):
    out = slim.batch_norm(IMAGES, batch_weights=[1.0, 1.0, 0.0, 0.0])
    session.run(v1.global_variables_initializer())
    mean, variance = moments(IMAGES[:2])
    np.testing.assert_allclose(session.run(out), normalized(IMAGES, mean, variance), rtol=1e-4, atol=1e-5)


def test_half_precision_keeps_its_averages_in_single(session):
    out = slim.batch_norm(tf.cast(IMAGES, tf.bfloat16))
    assert out.dtype == tf.bfloat16
    assert {v.dtype.base_dtype for v in slim.get_model_variables()} == {tf.float32}
    session.run(v1.global_variables_initializer())
    value = tf.cast(out, tf.float32)
    np.testing.assert_allclose(session.run(value), normalized(IMAGES, *moments(IMAGES)), atol=0.02)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"fused": True, "batch_weights": [1.0] * 4}, "fused=True is for inputs of rank 2 or 4 without batch_weights"),
        ({"data_format": "NC"}, "data_format='NC' must be NHWC or NCHW"),
        ({"decay": 1.5}, r"decay=1\.5 must be in 0\.\.1"),
        ({"param_initializers": {"weights": None}}, r"param_initializers has \['weights'\], but there is only beta"),
        ({"param_regularizers": {"moving_mean": None}}, "param_regularizers has"),
    ],
)
def test_what_it_refuses(kwargs, message):
    with pytest.raises(ValueError, match=message):
        slim.batch_norm(IMAGES, **kwargs)


def test_shapes_it_refuses():
    with pytest.raises(ValueError, match="rank 2 or more"):
        slim.batch_norm(tf.ones([3]))
    with pytest.raises(ValueError, match="number of channels must be known"):
        slim.batch_norm(v1.placeholder(tf.float32, [2, None]))
