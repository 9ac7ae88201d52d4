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
    # There is no fused operation for it, and then fused=True means nothing.
    out = slim.batch_norm(IMAGES, batch_weights=[1.0, 1.0, 0.0, 0.0], fused=True)
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


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_mean_without_the_bias_of_its_beginning(session, as_tensor):
    is_training = v1.placeholder_with_default(True, []) if as_tensor else True
    slim.batch_norm(IMAGES, decay=0.9, is_training=is_training, zero_debias_moving_mean=True)
    names = [
        "beta",
        "moving_mean",
        "moving_variance",
        "BatchNorm/moving_mean/biased",
        "BatchNorm/moving_mean/local_step",
    ]
    assert [v.op.name for v in slim.get_model_variables()] == [f"BatchNorm/{name}" for name in names]
    updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    values = slim.get_variables("BatchNorm/moving_mean")[:1] + slim.get_variables("BatchNorm/BatchNorm")
    session.run(v1.global_variables_initializer())
    mean, _ = moments(IMAGES)
    for step in (1, 2):
        session.run(updates)
        if as_tensor:
            session.run(updates, {is_training: False})
        moving, biased, local_step = session.run(values)
        np.testing.assert_allclose(moving, mean, rtol=1e-5)
        np.testing.assert_allclose(biased, (1 - 0.9**step) * mean, rtol=1e-5)
        assert local_step == step


@pytest.mark.parametrize("clipping", [None, {"rmin": 0.9, "rmax": 1.1, "dmax": 0.2}])
def test_renorm_corrects_the_batch_towards_the_averages(session, clipping):
    initializers = {"moving_mean": v1.constant_initializer(0.5), "moving_variance": v1.constant_initializer(4.0)}
    out = slim.batch_norm(
        IMAGES, decay=0.9, renorm=True, renorm_clipping=clipping, renorm_decay=0.7, param_initializers=initializers
    )
    session.run(v1.global_variables_initializer())
    mean, variance = moments(IMAGES)
    stddev = np.sqrt(variance + 0.001)
    r, d = stddev / 2, (mean - 0.5) / 2
    if clipping:
        r, d = np.clip(r, 0.9, 1.1), np.clip(d, -0.2, 0.2)
    # Without limits the corrected batch is what inference makes of it.
    expected = (IMAGES - mean) / stddev * r + d
    updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    # The corrections use the averages as they were before the step, though the updates run with it.
    out, _ = session.run([out, updates])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    values = dict(zip([v.op.name for v in slim.get_variables()], session.run(slim.get_variables()), strict=True))
    np.testing.assert_allclose(values["BatchNorm/renorm_mean"], 0.7 * 0.5 + 0.3 * mean, rtol=1e-5)
    np.testing.assert_allclose(values["BatchNorm/renorm_stddev"], 0.7 * 2 + 0.3 * stddev, rtol=1e-5)
    np.testing.assert_allclose(values["BatchNorm/moving_mean"], 0.9 * 0.5 + 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(values["BatchNorm/moving_variance"], 0.9 * 4 + 0.1 * variance, rtol=1e-5)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_an_adjustment_acts_before_gamma_and_beta_and_in_training_only(session, data_format):
    def adjustment(shape):
        channels = shape[-1 if data_format == "NHWC" else 1]
        return tf.fill([channels], 2.0), tf.range(tf.cast(channels, tf.float32))

    initializers = {"gamma": v1.constant_initializer(3.0), "beta": v1.constant_initializer(1.0)}
    is_training = v1.placeholder(tf.bool, [])
    out = slim.batch_norm(
        IMAGES if data_format == "NHWC" else np.moveaxis(IMAGES, -1, 1),
        scale=True,
        is_training=is_training,
        param_initializers=initializers,
        adjustment=adjustment,
        data_format=data_format,
    )
    session.run(v1.global_variables_initializer())

    def run(training):
        value = session.run(out, {is_training: training})
        return value if data_format == "NHWC" else np.moveaxis(value, 1, -1)

    expected = 3 * (2 * normalized(IMAGES, *moments(IMAGES)) + np.arange(5)) + 1
    np.testing.assert_allclose(run(True), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run(False), 3 * normalized(IMAGES, 0, 1) + 1, rtol=1e-4, atol=1e-4)


def test_moving_averages_are_kept_whole_under_a_partitioner():
    with v1.variable_scope("net", partitioner=v1.fixed_size_partitioner(2)):
        slim.conv2d(tf.ones([1, 3, 3, 2]), 4, [2, 1], normalizer_fn=slim.batch_norm)
    names = [v.op.name for v in slim.get_variables("net/Conv")]
    assert [name.removeprefix("net/Conv/") for name in names] == [
        "weights/part_0",
        "weights/part_1",
        "BatchNorm/beta/part_0",
        "BatchNorm/beta/part_1",
        "BatchNorm/moving_mean",
        "BatchNorm/moving_variance",
    ]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"batch_weights": [1.0] * 3}, r"one number for each of 4 examples, not shape \(3,\)"),
        ({"renorm_clipping": {"rmaks": 3.0}}, r"renorm_clipping has \['rmaks'\], but there is only rmax, rmin, dmax"),
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
    with pytest.raises(ValueError, match="undefined channels dimension"):
        slim.batch_norm(v1.placeholder(tf.float32, [2, None]))
