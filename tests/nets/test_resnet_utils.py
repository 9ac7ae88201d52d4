from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.nets import resnet_v1, resnet_v2
from slimexp.nets.resnet_utils import (
    Block,
    bottleneck_block,
    conv2d_same,
    resnet_arg_scope,
    stack_blocks_dense,
    subsample,
)

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        v1.set_random_seed(0)
        yield


def evaluated(*tensors):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(tensors)


def image(height, width, channels=1):
    return tf.reshape(tf.range(height * width * channels, dtype=tf.float32), [1, height, width, channels])


def test_subsample_takes_every_nth_pixel():
    (taken,) = evaluated(subsample(image(5, 6), 2))
    np.testing.assert_array_equal(taken[0, :, :, 0], np.arange(30.0).reshape(5, 6)[::2, ::2])
    pixels = image(3, 3)
    assert subsample(pixels, 1) is pixels


@pytest.mark.parametrize(("size", "rate"), [(5, 1), (6, 1), (7, 2), (8, 3)])
def test_a_strided_convolution_is_the_plain_one_subsampled(size, rate):
    ones = tf.compat.v1.ones_initializer()
    with slim.arg_scope([slim.conv2d], weights_initializer=ones, activation_fn=None):
        dense = conv2d_same(image(size, size), 1, 3, stride=1, rate=rate, scope="a")
        # TensorFlow takes no stride together with a rate.
        strided = conv2d_same(image(size, size), 1, 3, stride=2 if rate == 1 else 1, rate=rate, scope="b")
    dense, strided = evaluated(dense, strided)
    np.testing.assert_array_equal(strided, dense[:, ::2, ::2] if rate == 1 else dense)


def blocks(module, strides=(2, 2, 2)):
    block = module.resnet_v1_block if module is resnet_v1 else module.resnet_v2_block
    return [block(f"block{i}", 2**i, 2, stride) for i, stride in enumerate(strides, start=1)]


def test_a_block_is_strided_in_its_last_unit():
    block = bottleneck_block("block1", resnet_v1.bottleneck, 4, 3, 2)
    assert block.args == [{"depth": 16, "depth_bottleneck": 4, "stride": s} for s in (1, 1, 2)]
    assert (block.scope, block.unit_fn) == ("block1", resnet_v1.bottleneck)


@pytest.mark.parametrize("module", [resnet_v1, resnet_v2])
@pytest.mark.parametrize("store", [False, True])
def test_a_dense_map_holds_the_sparse_one(module, store):
    images = tf.random.stateless_normal([1, 33, 33, 3], seed=[0, 1])
    with slim.arg_scope(resnet_arg_scope()), slim.arg_scope([slim.batch_norm], is_training=False):
        nominal = stack_blocks_dense(images, blocks(module), store_non_strided_activations=store)
        maps = [nominal]
        for output_stride in (1, 2, 4, 8):
            with v1.variable_scope(v1.get_variable_scope(), reuse=True):
                maps.append(
                    stack_blocks_dense(images, blocks(module), output_stride, store_non_strided_activations=store)
                )
    nominal, *maps = evaluated(*maps)
    for output_stride, dense in zip((1, 2, 4, 8), maps, strict=True):
        step = 8 // output_stride
        np.testing.assert_allclose(dense[:, ::step, ::step], nominal, rtol=1e-4, atol=1e-5)


def test_block_outputs_before_their_stride():
    for store, sides in ((False, [8, 4, 2]), (True, [16, 8, 4])):
        with v1.variable_scope(f"net_{store}"), slim.arg_scope(resnet_arg_scope()):
            net = stack_blocks_dense(
                tf.ones([1, 16, 16, 3]),
                blocks(resnet_v1),
                store_non_strided_activations=store,
                outputs_collections=f"outputs_{store}",
            )
        outputs = slim.utils.convert_collection_to_dict(f"outputs_{store}")
        assert {name: output.shape[1] for name, output in outputs.items()} == {
            f"net_{store}/block{i}": side for i, side in enumerate(sides, start=1)
        }
        assert net.shape == (1, 2, 2, 32)


@pytest.mark.parametrize(
    ("output_stride", "message"),
    [
        (3, "output_stride=3 cannot be reached: their strides multiply to 4, past it"),
        (16, "output_stride=16 cannot be reached: their strides multiply to 8."),
    ],
)
def test_a_stride_that_cannot_be_reached(output_stride, message):
    with slim.arg_scope(resnet_arg_scope()), pytest.raises(ValueError, match=message):
        stack_blocks_dense(tf.ones([1, 16, 16, 3]), blocks(resnet_v1), output_stride)


def test_own_units():
    def unit(net, depth, stride, rate):
        return slim.conv2d(net, depth, [3, 3], stride=stride, rate=rate, scope="only")

    net = stack_blocks_dense(
        tf.ones([1, 16, 16, 3]), [Block("b", unit, [{"depth": 4, "stride": 4}, {"depth": 5, "stride": 2}])], 4
    )
    assert net.shape == (1, 4, 4, 5)
    assert [v.op.name for v in slim.get_model_variables()][::2] == ["b/unit_1/only/weights", "b/unit_2/only/weights"]


def test_arg_scope_without_batch_norm():
    with slim.arg_scope(resnet_arg_scope(use_batch_norm=False, weight_decay=0.0, activation_fn=None)):
        slim.conv2d(tf.ones([1, 8, 8, 3]), 4, [3, 3], scope="conv")
    assert [v.op.name for v in slim.get_model_variables()] == ["conv/weights", "conv/biases"]
    assert slim.losses.get_regularization_losses() == []
