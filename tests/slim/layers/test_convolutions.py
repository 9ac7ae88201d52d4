from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(tensors):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(tensors)


def names():
    return [v.op.name for v in slim.get_model_variables()]


def test_scopes_variables_and_operations_are_named_as_in_tf_slim(graph):
    images = tf.ones([2, 5, 7, 3])
    net = slim.conv2d(images, 4, [3, 3])
    net = slim.conv2d(net, 4, 3, biases_initializer=None)
    net = slim.conv2d(net, 4, [3, 3], normalizer_fn=slim.batch_norm, scope="norm")
    slim.convolution(net, 4, [3, 3])
    assert names() == [
        "Conv/weights",
        "Conv/biases",
        "Conv_1/weights",
        "norm/weights",
        "norm/BatchNorm/beta",
        "norm/BatchNorm/moving_mean",
        "norm/BatchNorm/moving_variance",
        "Conv_2/weights",
        "Conv_2/biases",
    ]
    assert {"Conv/Conv2D", "Conv/BiasAdd", "Conv/Relu"} <= {op.name for op in graph.get_operations()}


def test_values_by_hand():
    images = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    ones, two = v1.ones_initializer(), v1.constant_initializer(-20.0)
    same = slim.conv2d(images, 1, 3, weights_initializer=ones, biases_initializer=two)
    valid = slim.conv2d(images, 1, 3, 1, "VALID", weights_initializer=ones, activation_fn=None)
    strided = slim.conv2d(images, 1, 1, stride=2, weights_initializer=ones)
    dilated = slim.conv2d(images, 1, [2, 2], padding="VALID", rate=2, weights_initializer=ones)
    same, valid, strided, dilated = run([same, valid, strided, dilated])
    # The middle row of sums over neighbours is 12+9, 36, 33-... : 0+1+3+4+6+7, all, 1+2+4+5+7+8.
    np.testing.assert_array_equal(same[0, 1, :, 0], [1, 16, 7])
    np.testing.assert_array_equal(valid, [[[[36]]]])
    np.testing.assert_array_equal(strided[0, :, :, 0], [[0, 2], [6, 8]])
    np.testing.assert_array_equal(dilated, [[[[0 + 2 + 6 + 8]]]])


def test_sequences_and_volumes():
    sequence = np.array([[[1.0], [2.0], [4.0]]], np.float32)
    ones = v1.ones_initializer()
    out1 = slim.conv1d(sequence, 1, 2, padding="VALID", weights_initializer=ones)
    out3 = slim.conv3d(np.ones([1, 2, 2, 2, 1], np.float32), 5, 2, padding="VALID", weights_initializer=ones)
    out1, out3 = run([out1, out3])
    np.testing.assert_array_equal(out1, [[[3], [6]]])
    np.testing.assert_array_equal(out3, np.full([1, 1, 1, 1, 5], 8.0))


def test_a_dilated_convolution_has_gradients():
    weights_gradient = tf.gradients(slim.conv2d(tf.ones([1, 5, 5, 1]), 1, 3, rate=2), slim.get_variables("Conv/w"))
    assert run(weights_gradient)[0].shape == (3, 3, 1, 1)


def test_channels_first_gives_the_static_shape():
    images = tf.ones([2, 3, 8, 8])
    out = slim.conv2d(images, 6, 3, stride=2, data_format="NCHW")
    assert out.shape == (2, 6, 4, 4)
    assert slim.get_variables("Conv/weights")[0].shape == (3, 3, 3, 6)


@pytest.mark.parametrize(
    "layer",
    [
        lambda x, **kwargs: slim.conv2d(x, 4, 3, 2, "same", **kwargs),
        lambda x, **kwargs: slim.conv2d(x, 4, 3, rate=2, padding="valid", **kwargs),
        lambda x, **kwargs: slim.batch_norm(x, scale=True, **kwargs),
        lambda x, **kwargs: slim.bias_add(x, initializer=v1.ones_initializer(), **kwargs),
        lambda x, **kwargs: slim.max_pool2d(x, 3, scope=kwargs["scope"], data_format=kwargs["data_format"]),
        lambda x, **kwargs: slim.avg_pool2d(x, 2, scope=kwargs["scope"], data_format=kwargs["data_format"]),
    ],
)
def test_channels_first_gives_the_same_values_and_gradients_on_the_cpu(layer):
    last = tf.constant(np.random.RandomState(0).normal(size=[2, 8, 8, 3]), tf.float32)
    first = tf.transpose(last, [0, 3, 1, 2])
    outs = [layer(last, scope="s", data_format="NHWC")]
    outs.append(layer(first, scope="s", data_format="NCHW", **({"reuse": True} if names() else {})))
    grads = [tf.gradients(tf.reduce_sum(tf.square(out)), x)[0] for out, x in zip(outs, (last, first), strict=True)]
    (out, other), (grad, other_grad) = run([outs, grads])
    np.testing.assert_allclose(np.moveaxis(other, 1, -1), out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.moveaxis(other_grad, 1, -1), grad, rtol=1e-3, atol=1e-4)


def test_variables_are_reused_by_scope():
    images = tf.ones([2, 5, 5, 3])
    slim.conv2d(images, 4, 3, scope="c", weights_regularizer=slim.l2_regularizer(0.1))
    slim.conv2d(images, 4, 3, scope="c", weights_regularizer=slim.l2_regularizer(0.1), reuse=True)
    assert names() == ["c/weights", "c/biases"]
    assert len(slim.losses.get_regularization_losses()) == 1
    with pytest.raises(ValueError, match="c/weights already exists"):
        slim.conv2d(images, 4, 3, scope="c")


def test_collections():
    slim.conv2d(
        tf.ones([2, 5, 5, 3]),
        4,
        3,
        scope="c",
        trainable=False,
        variables_collections={"biases": ["mine"]},
        outputs_collections="outputs",
    )
    assert [v.op.name for v in v1.get_collection("mine")] == ["c/biases"]
    assert list(slim.utils.convert_collection_to_dict("outputs")) == ["c"]
    assert slim.get_trainable_variables() == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"kernel_size": [3, 3, 3]}, r"conv2d: kernel_size=\[3, 3, 3\] must be one integer or 2"),
        ({"stride": 0}, "conv2d: stride=0 must be 1 or more"),
        ({"num_outputs": 0}, "num_outputs=0 must be 1 or more"),
        ({"padding": "FULL"}, "padding='FULL' must be SAME or VALID"),
        ({"stride": 2, "rate": 2}, "stride=2 and rate=2 cannot both be greater than 1"),
        ({"data_format": "HWC"}, "data_format='HWC' must be NHWC or NCHW"),
        ({"inputs": tf.TensorSpec([2, 5, 5, None])}, "undefined channels dimension"),
        ({"inputs": tf.TensorSpec([2, 5, 3])}, r"conv2d: the inputs must have rank 4, not shape \(2, 5, 3\)"),
    ],
)
def test_what_it_refuses(kwargs, message):
    spec = kwargs.pop("inputs", tf.TensorSpec([2, 5, 5, 3]))
    kwargs = {"num_outputs": 4, "kernel_size": 3, **kwargs}
    with pytest.raises(ValueError, match=message):
        slim.conv2d(v1.placeholder(spec.dtype, spec.shape), **kwargs)


def test_ranks_and_types_that_no_convolution_takes():
    with pytest.raises(ValueError, match=r"must have rank 3\.\.5, not shape \(2, 3\)"):
        slim.convolution(tf.ones([2, 3]), 4, 3)
    with pytest.raises(TypeError, match="non-floating point type, uint8"):
        slim.conv2d(tf.ones([2, 5, 5, 3], tf.uint8), 4, 3)
