from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
IMAGE = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_values_by_hand(session):
    maximum = session.run(slim.max_pool2d(IMAGE, 2))
    same = session.run(slim.max_pool2d(IMAGE, [2, 2], padding="SAME"))
    mean = session.run(slim.avg_pool2d(IMAGE, [3, 1], stride=1))
    padded = session.run(slim.avg_pool2d(IMAGE, 3, 1, "SAME"))
    np.testing.assert_array_equal(maximum[0, :, :, 0], [[4]])
    np.testing.assert_array_equal(same[0, :, :, 0], [[4, 5], [7, 8]])
    np.testing.assert_array_equal(mean[0, :, :, 0], [[3, 4, 5]])
    assert padded[0, 0, 0, 0] == np.mean([0, 1, 3, 4])


def test_names_and_aliases():
    with v1.variable_scope("net"), slim.arg_scope([slim.max_pool2d, slim.avg_pool2d], outputs_collections="out"):
        first = slim.max_pool2d(IMAGE, 2, scope="pool1")
        slim.avg_pool2d(IMAGE, 2)
        slim.avg_pool2d(IMAGE, 2)
    assert first.op.name == "net/pool1/MaxPool"
    # The same variable scope in another name scope, as a second tower has it: the aliases stay.
    with v1.name_scope("tower_1"), v1.variable_scope("net"):
        slim.max_pool2d(IMAGE, 2, scope="pool1", outputs_collections="tower")
    assert list(slim.utils.convert_collection_to_dict("out")) == ["net/pool1", "net/AvgPool2D", "net/AvgPool2D_1"]
    assert list(slim.utils.convert_collection_to_dict("tower")) == ["net/pool1"]


def test_channels_first_gives_the_static_shape():
    assert slim.max_pool2d(tf.ones([1, 3, 4, 6]), 2, data_format="NCHW").shape == (1, 3, 2, 3)


def test_what_they_refuse():
    with pytest.raises(ValueError, match=r"max_pool2d: the inputs must have rank 4, not shape \(3, 3\)"):
        slim.max_pool2d(tf.ones([3, 3]), 2)
    with pytest.raises(ValueError, match="avg_pool2d: padding='FULL' must be SAME or VALID"):
        slim.avg_pool2d(IMAGE, 2, padding="FULL")
    with pytest.raises(ValueError, match="avg_pool2d: data_format='CHWN' must be NHWC or NCHW"):
        slim.avg_pool2d(IMAGE, 2, data_format="CHWN")
    with pytest.raises(ValueError, match=r"max_pool2d: stride=\[2, 2, 2\] must be one integer or 2"):
        slim.max_pool2d(IMAGE, 2, [2, 2, 2])


def test_volumes(session):
    volume = np.random.RandomState(0).normal(size=[2, 4, 4, 6, 3]).astype(np.float32)
    blocks = volume.reshape(2, 2, 2, 2, 2, 3, 2, 3)
    inputs = v1.placeholder(tf.float32, [None, 4, 4, 6, 3])
    first = tf.transpose(inputs, [0, 4, 1, 2, 3])
    maximum = slim.max_pool3d(inputs, 2, outputs_collections="out")
    mean = slim.avg_pool3d(first, [2, 2, 2], padding="same", data_format="NCDHW", outputs_collections="out")
    assert maximum.shape.as_list() == [None, 2, 2, 3, 3]
    assert mean.shape.as_list() == [None, 3, 2, 2, 3]
    assert list(slim.utils.convert_collection_to_dict("out")) == ["MaxPool3D", "AvgPool3D"]
    maximum, mean = session.run([maximum, mean], {inputs: volume})
    np.testing.assert_allclose(maximum, blocks.max((2, 4, 6)), rtol=1e-6)
    np.testing.assert_allclose(np.moveaxis(mean, 1, -1), blocks.mean((2, 4, 6)), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="max_pool3d: data_format='NHWC' must be NDHWC or NCDHW"):
        slim.max_pool3d(inputs, 2, data_format="NHWC")


def test_pool_in_any_number_of_dimensions(session):
    line = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    mean = slim.pool(line, 2, "AVG", stride=2)
    gaps = slim.pool(line, 2, "MAX", dilation_rate=3)
    image = slim.pool(np.moveaxis(IMAGE, -1, 1), [3, 1], "MAX", data_format="NCHW", outputs_collections="out")
    assert image.op.name == "max_pool_1"
    assert list(slim.utils.convert_collection_to_dict("out")) == ["max_pool_1"]
    mean, gaps, image = session.run([mean, gaps, image])
    np.testing.assert_array_equal(mean[0, :, 0], [0.5, 2.5, 4.5, 6.5])
    np.testing.assert_array_equal(gaps[0, :, 0], [3, 4, 5, 6, 7])
    np.testing.assert_array_equal(image, [[[[6, 7, 8]]]])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"pooling_type": "MIN"}, "pool: pooling_type='MIN' must be AVG or MAX"),
        ({"padding": "FULL"}, "pool: padding='FULL' must be SAME or VALID"),
        ({"data_format": "NWC"}, "pool: data_format='NWC' must be NHWC or NCHW"),
        ({"stride": 2, "dilation_rate": 2}, "pool: stride=2 and dilation_rate=2 cannot both exceed 1"),
    ],
)
def test_what_pool_refuses(kwargs, message):
    with pytest.raises(ValueError, match=message):
        slim.pool(**{"inputs": IMAGE, "kernel_size": 2, "pooling_type": "AVG", **kwargs})
