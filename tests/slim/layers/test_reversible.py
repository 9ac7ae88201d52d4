from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
X1, X2 = np.random.RandomState(0).normal(size=[2, 6, 4]).astype(np.float32)


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def f(x, side_inputs=()):
    x = slim.fully_connected(x, 4, activation_fn=tf.nn.tanh)
    return sum(side_inputs, x)


def g(x, side_inputs=()):
    return slim.batch_norm(slim.fully_connected(x, 4, activation_fn=None), scale=True)


def test_a_block_can_be_undone(session):
    block = slim.RevBlock(f, [f, f, g], num_layers=3)
    y1, y2 = block.forward(X1, X2)
    back = block([y1, y2], forward=False)
    # One batch norm's updates, though it was called three times: its variables are shared.
    assert len(slim.get_variables_by_suffix("moving_mean")) == 1
    assert slim.get_variables_by_name("weights")[1].op.name == "revblock/revlayer_0/g/fully_connected/weights"
    session.run(v1.global_variables_initializer())
    x1, x2 = session.run(back)
    np.testing.assert_allclose(x1, X1, atol=1e-5)
    np.testing.assert_allclose(x2, X2, atol=1e-5)


@pytest.mark.parametrize("side", [False, True])
def test_outputs_and_gradients_are_those_of_plain_layers(session, side):
    x1, x2 = tf.constant(X1), tf.constant(X2)
    sides = [tf.ones([6, 4]), tf.fill([6, 4], 2.0)] if side else []
    arguments = {"num_layers": 3, "f_side_input": sides, "g_side_input": sides[:1]}

    def both(is_training):
        return tf.concat(slim.rev_block(x1, x2, f, g, is_training=is_training, **arguments), axis=1)

    with v1.variable_scope("net"), slim.arg_scope([slim.fully_connected], biases_initializer=None):
        spared = both(True)
    updates = len(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
    with v1.variable_scope("net", reuse=True), slim.arg_scope([slim.fully_connected], biases_initializer=None):
        plain = both(False)
    variables = slim.get_trainable_variables()
    # Taken outside of the scopes, which the second computation opens again.
    wanted = [x1, x2, *sides, *variables]
    grads = [tf.gradients(tf.reduce_sum(tf.square(y)), wanted) for y in (spared, plain)]
    assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == 2 * updates
    assert "net/revblock/revlayer_0/f/fully_connected/biases" not in [v.op.name for v in variables]
    session.run(v1.global_variables_initializer())
    (spared, plain), (first, second) = session.run([[spared, plain], grads])
    np.testing.assert_allclose(spared, plain, rtol=1e-5, atol=1e-6)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_in_a_traced_function_with_a_store():
    store = slim.VariableStore(seed=0)

    def gradients(is_training):
        @tf.function(autograph=False)
        def step(x1, x2):
            with store.in_use(), v1.variable_scope("net"):
                y1, y2 = slim.rev_block(x1, x2, f, f, num_layers=2, is_training=is_training)
                return tf.gradients(tf.reduce_sum(y1 * y2), [x1, x2, *store.variables.values()])

        return step(tf.constant(X1), tf.constant(X2))

    for a, b in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"use_data_dep": True}, {"tupleize_grads": True}])
def test_recomputed_gradients_are_the_same(session, options):
    told = []

    @slim.recompute_grad(**options)
    def spared(x, is_recomputing=False):
        """Two layers."""
        told.append(is_recomputing)
        return f(f(x))

    x = tf.constant(X1)
    with v1.variable_scope("net") as scope:
        y = spared(x)
    with v1.variable_scope("net", reuse=True):
        plain = f(f(x))
    variables = scope.trainable_variables()
    grads = [tf.gradients(tf.reduce_sum(tf.square(out)), [x, *variables]) for out in (y, plain)]
    assert told == [False, True]
    assert spared.__doc__ == "Two layers."
    session.run(v1.global_variables_initializer())
    first, second = session.run(grads)
    assert len(first) == 5
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_they_refuse(session):
    with pytest.raises(ValueError, match="RevBlock: g has 1 functions for 2 layers"):
        slim.RevBlock(f, [g], num_layers=2)
    x = tf.constant(X1)

    with pytest.raises(ValueError, match="closes over 'x', a tensor"):

        @slim.recompute_grad
        def closes_over(y):
            return x * y

    spared = slim.recompute_grad(f)
    with pytest.raises(ValueError, match="all arguments must be tensors, not 3"):
        spared(3)
    with v1.variable_scope("net"):
        twice = spared(spared(x))
    with pytest.raises(ValueError, match="open a variable scope around each call"):
        tf.gradients(twice, x)
