from __future__ import annotations

import functools

import pytest
import tensorflow as tf

from slimexp import slim


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def weights():
    return [v.op.name for v in slim.get_variables_by_name("weights")]


def test_repeat():
    images = tf.ones([1, 4, 4, 3])
    out = slim.repeat(images, 3, slim.conv2d, 8, [3, 3], scope="conv3")
    slim.repeat(images, 1, slim.conv2d, 8, [3, 3])
    slim.repeat(images, 1, functools.partial(slim.conv2d, kernel_size=1), 8, scope=None)
    assert out.shape == (1, 4, 4, 8)
    assert weights() == [
        *[f"conv3/conv3_{i}/weights" for i in (1, 2, 3)],
        "Repeat/convolution2d_1/weights",
        "Repeat_1/convolution2d_1/weights",
    ]
    assert slim.repeat(images, 0, slim.conv2d, 8, [3, 3]) is not None


def test_repeat_within_a_scope_given_as_object():
    with tf.compat.v1.variable_scope("outer") as outer:
        pass
    slim.repeat(tf.ones([1, 2]), 2, slim.fully_connected, 2, scope=outer)
    assert weights() == ["outer/outer_1/weights", "outer/outer_2/weights"]


def test_stack():
    images = tf.ones([1, 4, 4, 3])
    out = slim.stack(images, slim.conv2d, [(32, [3, 3]), (64, [1, 1])], scope="core")
    assert out.shape == (1, 4, 4, 64)
    slim.stack(tf.ones([1, 2]), slim.fully_connected, [8, 4])
    assert weights() == [
        "core/core_1/weights",
        "core/core_2/weights",
        "Stack/fully_connected_1/weights",
        "Stack/fully_connected_2/weights",
    ]
    with pytest.raises(ValueError, match="stack_args must be a list or tuple, not 8"):
        slim.stack(images, slim.conv2d, 8)
