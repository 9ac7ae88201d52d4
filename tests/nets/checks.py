"""What the tests of all networks check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim import reference

v1 = tf.compat.v1


def build(net: Any, size: int | None = None, *, batch: int | None = 2, channels: int = 3, **kwargs: Any) -> Any:
    """Builds a network in its arg scope, in the current graph."""
    size = net.default_image_size if size is None else size
    images = v1.placeholder(tf.float32, [batch, size, size, channels], name="input")
    with slim.arg_scope(net.arg_scope()):
        return net(images, **kwargs)


def shapes(net: Any, size: int | None = None, **kwargs: Any) -> dict[str, list[int | None]]:
    """Returns the shape of each end point, without the batch."""
    with tf.Graph().as_default():
        _, end_points = build(net, size, **kwargs)
        return {name: end_point.shape.as_list()[1:] for name, end_point in end_points.items()}


def check_unknown_batch_size(net: Any, size: int, num_classes: int = 5) -> None:
    """Feeds batches of two sizes to a graph that knows neither."""
    with tf.Graph().as_default(), v1.Session() as session:
        logits, _ = build(net, size, batch=None, num_classes=num_classes, is_training=False)
        assert logits.shape.as_list() == [None, num_classes]
        session.run(v1.global_variables_initializer())
        for batch in (1, 3):
            images = np.ones([batch, size, size, 3], np.float32)
            assert session.run(logits, {"input:0": images}).shape == (batch, num_classes)


def check_builds(net: Any, *sizes: int, **kwargs: Any) -> None:
    """Builds training and evaluation for images of several sizes and an unknown number of them, without running."""
    for size in sizes:
        for is_training in (True, False):
            with tf.Graph().as_default():
                logits, _ = build(net, size, batch=None, num_classes=5, is_training=is_training, **kwargs)
                assert logits.shape.as_list() == [None, 5]
                moves = is_training and bool(slim.get_variables_by_suffix("moving_mean"))
                assert bool(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == moves


def check_smallest_size(net: Any) -> None:
    """Builds a training step on the smallest images, and checks the message for smaller ones."""
    least = net.min_image_size
    with tf.Graph().as_default():
        logits, end_points = build(net, least, num_classes=3, is_training=True)
        assert logits.shape.as_list() == [2, 3]
        slim.losses.softmax_cross_entropy(logits, tf.one_hot([0, 1], 3))
        if "AuxLogits" in end_points:
            slim.losses.softmax_cross_entropy(end_points["AuxLogits"], tf.one_hot([0, 1], 3))
        slim.learning.create_train_op(slim.losses.get_total_loss(), v1.train.GradientDescentOptimizer(0.1))


def check_heads(net: Any, **kwargs: Any) -> None:
    """Checks that just the variables in the head scopes have shapes that depend on the number of classes."""

    def shape_of_variables(num_classes: int) -> dict[str, list[int]]:
        with tf.Graph().as_default():
            build(net, num_classes=num_classes, is_training=True, **kwargs)
            return {v.op.name: v.shape.as_list() for v in slim.get_model_variables()}

    a, b = shape_of_variables(3), shape_of_variables(4)
    assert a.keys() == b.keys()
    changed = {name for name in a if a[name] != b[name]}
    assert changed
    assert all(name.startswith(tuple(f"{scope}/" for scope in net.head_scopes)) for name in changed)
    assert all(any(name.startswith(f"{scope}/") for name in changed) for scope in net.head_scopes)


def check_reference(net: Any, extra_end_points: set[str]) -> None:
    """Compares a network in a graph with what was measured on the original."""
    expected = reference.load(net.__name__)
    args = {"size": expected["image_size"], "num_classes": expected["num_classes"]}
    with tf.Graph().as_default():
        build(net, is_training=True, **args)
        assert len(slim.losses.get_regularization_losses()) == expected["regularization_losses_training"]
        assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == expected["update_ops_training"]
    with tf.Graph().as_default(), v1.Session() as session:
        logits, end_points = build(net, is_training=False, **args)
        variables = slim.get_model_variables()
        assert [[v.op.name, v.shape.as_list()] for v in variables] == expected["model_variables"]
        assert [v.op.name for v in slim.get_trainable_variables()] == expected["trainable_variables"]
        assert end_points.keys() == {*expected["end_points_eval"], *extra_end_points}
        for name, shape in expected["end_points_eval"].items():
            assert end_points[name].shape.as_list() == shape, name
        values = {v.op.name: reference.weight(v.op.name, v.shape.as_list()) for v in variables}
        slim.assign_from_values_fn(values)(session)
        means = {name: tf.reduce_mean(end_points[name]) for name in expected["end_points_eval"]}
        feeds = {"input:0": reference.inputs(expected["input_shape"])}
        logits, means = session.run([logits, means], feeds)
    check_logits(net, logits)
    for name, mean in expected["end_point_means_eval"].items():
        np.testing.assert_allclose(means[name], mean, rtol=1e-4, atol=1e-6, err_msg=name)


def check_logits(net: Any, logits: np.ndarray) -> None:
    """Compares logits with those of the original."""
    expected = reference.logits(net.__name__)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def check_refused(net: Any, size: int, message: str, **kwargs: Any) -> None:
    """Checks the message for images of a size that does not do."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        build(net, size, **kwargs)
