"""The training step against trajectories measured on the original, in a graph of old."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim import reference

v1 = tf.compat.v1


@pytest.mark.parametrize("name", reference.OPTIMIZERS)
def test_the_steps_are_those_of_the_original(name):
    expected = reference.load("training")[name]
    with tf.Graph().as_default(), v1.Session() as session:
        images = v1.placeholder(tf.float32, [6, 12, 12, 3])
        labels = v1.placeholder(tf.int32, [6])
        logits = reference.training_net(images)
        slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels, 5))
        train_op = slim.learning.create_train_op(
            slim.losses.get_total_loss(),
            reference.optimizer(name),
            clip_gradient_norm=reference.clip_norm(name),
        )
        model = {v.op.name: v for v in slim.get_model_variables()}
        others = sorted(v.op.name for v in slim.get_variables() if v.op.name not in model)
        assert others == expected["non_model_variables"]

        session.run(v1.global_variables_initializer())
        slim.assign_from_values_fn({n: reference.weight(n, v.shape.as_list()) for n, v in model.items()})(session)
        losses = []
        for step in range(6):
            x, y = reference.training_batch(step)
            losses.append(session.run(train_op, {images: x, labels: y}))
        reference.check_trajectory(name, losses, session.run(model))
        assert session.run(slim.get_global_step()) == 6


@pytest.fixture
def step():
    """A loss of `a` = [3, 4] and `b` = [1, 0], whose gradients are [3, 4] and [1, 0], in a session."""
    with tf.Graph().as_default(), v1.Session() as session:
        a = slim.variable("a", initializer=np.array([3.0, 4.0], np.float32))
        b = slim.variable("b", initializer=np.array([1.0, 0.0], np.float32))
        loss = tf.nn.l2_loss(a) + tf.nn.l2_loss(b)

        def run(**kwargs):
            op = slim.learning.create_train_op(loss, v1.train.GradientDescentOptimizer(1.0), **kwargs)
            session.run(v1.global_variables_initializer())
            assert session.run(op) == 13.0
            return session.run([a, b])

        yield run


def test_multipliers_come_before_clipping_and_each_gradient_is_clipped_on_its_own(step):
    a, b = step(gradient_multipliers={"b": 0.5}, clip_gradient_norm=2.5)
    np.testing.assert_allclose(a, [1.5, 2.0])
    np.testing.assert_allclose(b, [0.5, 0.0])


def test_only_the_variables_to_train_change(step):
    a, b = step(variables_to_train=slim.get_variables("a"), global_step=None)
    np.testing.assert_array_equal(a, [0, 0])
    np.testing.assert_array_equal(b, [1, 0])
    assert slim.get_global_step() is None


def test_gradients_are_summarized(step):
    step(summarize_gradients=True)
    summaries = [s.name for s in v1.get_collection(v1.GraphKeys.SUMMARIES)]
    assert summaries == [
        "summarize_grads/a/gradient:0",
        "summarize_grads/a/gradient_norm:0",
        "summarize_grads/b/gradient:0",
        "summarize_grads/b/gradient_norm:0",
    ]


def test_multipliers_that_make_no_sense(step, caplog):
    with pytest.raises(ValueError, match="must be a dictionary and not empty, got 2"):
        slim.learning.multiply_gradients([], 2)
    c = slim.variable("c", [2])
    with pytest.raises(ValueError, match="takes a list of pairs of gradient and variable"):
        slim.learning.multiply_gradients((None, c), {c: 2.0})
    with pytest.raises(ValueError, match="names 'c', but the loss does not depend on that variable"):
        slim.learning.multiply_gradients([(None, c)], {c: 2.0})
    with caplog.at_level(logging.WARNING):
        step(gradient_multipliers={"typo": 2.0})
    assert "variables that are not trained: typo" in caplog.text


def test_sparse_gradients_are_multiplied_and_clipped():
    with tf.Graph().as_default(), v1.Session() as session:
        table = slim.variable("table", initializer=np.eye(3, dtype=np.float32))
        loss = 4.0 * tf.reduce_sum(tf.gather(table, [1]))
        op = slim.learning.create_train_op(
            loss,
            v1.train.GradientDescentOptimizer(1.0),
            gradient_multipliers={table: 2.0},
            clip_gradient_norm=np.sqrt(3.0),
        )
        session.run(v1.global_variables_initializer())
        session.run(op)
        np.testing.assert_allclose(session.run(table), [[1, 0, 0], [-1, 0, -1], [0, 0, 1]], atol=1e-6)
