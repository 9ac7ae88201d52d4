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
    with pytest.raises(ValueError, match="avg_pool2d: padding='valid' must be SAME or VALID"):
        slim.avg_pool2d(IMAGE, 2, padding="valid")
    with pytest.raises(ValueError, match="avg_pool2d: data_format='CHWN' must be NHWC or NCHW"):
        slim.avg_pool2d(IMAGE, 2, data_format="CHWN")
    with pytest.raises(ValueError, match=r"max_pool2d: stride=\[2, 2, 2\] must be one integer or 2"):
        slim.max_pool2d(IMAGE, 2, [2, 2, 2])
