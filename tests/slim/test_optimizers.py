from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
train = v1.train


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def model(value=3.0):
    """The loss x * v ** 2 / 2 of a variable, whose gradient is x * v."""
    var = v1.get_variable("v", [], initializer=v1.constant_initializer(value))
    x = v1.placeholder_with_default(1.0, [])
    return x, var, x * tf.square(var) / 2, slim.create_global_step()


def value_after(session, step, var, feeds=({},)):
    session.run(v1.global_variables_initializer())
    for feed in feeds:
        session.run(step, feed)
    return session.run(var)


@pytest.mark.parametrize(
    ("rate", "optimizer"),
    [
        (0.1, "SGD"),
        (0.1, train.GradientDescentOptimizer),
        (0.1, lambda rate: train.GradientDescentOptimizer(rate)),
        (None, lambda: train.GradientDescentOptimizer(0.1)),
        (None, train.GradientDescentOptimizer(0.1)),
    ],
)
def test_optimizers_can_be_given_in_many_ways(session, rate, optimizer):
    _, var, loss, global_step = model()
    step = slim.optimize_loss(loss, None, rate, optimizer)
    assert value_after(session, step, var) == np.float32(3 - 0.1 * 3)
    assert session.run(global_step) == 1
    assert [v.op.name for v in slim.get_variables("OptimizeLoss")] == (
        ["OptimizeLoss/learning_rate"] if rate is not None else []
    )


@pytest.mark.parametrize(
    ("kwargs", "gradient"),
    [
        ({"clip_gradients": 2.0}, 2.0),
        ({"clip_gradients": lambda pairs: [(g * 5, v) for g, v in pairs]}, 15.0),
        ({"gradient_multipliers": {"v:0": 0.5}}, 1.5),
        ({"learning_rate_decay_fn": lambda rate, step: rate * 10}, 30.0),
        ({"gradient_noise_scale": 0.0}, 3.0),
    ],
)
def test_what_is_done_to_gradients_and_rate(session, kwargs, gradient):
    _, var, loss, global_step = model()
    step = slim.optimize_loss(loss, global_step, 0.1, "SGD", increment_global_step=False, **kwargs)
    np.testing.assert_allclose(value_after(session, step, var), 3 - 0.1 * gradient, rtol=1e-6)
    assert session.run(global_step) == 0


def test_updates_run_before_the_loss_and_noise_is_added(session):
    _, var, loss, global_step = model()
    count = v1.get_variable("count", [], initializer=v1.zeros_initializer(), trainable=False)
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, count.assign_add(1.0))
    step = slim.optimize_loss(loss, global_step, 0.1, "SGD", gradient_noise_scale=0.5)
    assert value_after(session, step, var) != np.float32(2.7)
    assert session.run(count) == 1


def test_sparse_gradients(session):
    var = v1.get_variable("v", [3, 1], initializer=v1.ones_initializer())
    loss = tf.reduce_sum(tf.gather(var, [0, 2]))
    step = slim.optimize_loss(
        loss, slim.create_global_step(), 1.0, "SGD", gradient_multipliers={"v:0": 0.25}, clip_gradients=1e9
    )
    np.testing.assert_allclose(value_after(session, step, var), [[0.75], [1], [0.75]])


def test_summaries():
    _, _, loss, global_step = model()
    slim.optimize_loss(loss, global_step, 0.1, "SGD", clip_gradients=1.0, summaries=slim.OPTIMIZER_SUMMARIES)
    tags = [op.name.removeprefix("OptimizeLoss/") for op in tf.compat.v1.get_default_graph().get_operations()]
    tags = [tag for tag in tags if (not tag.endswith(("tags", "tag")) and "/" in tag) or tag == "loss"]
    for tag in ("loss", "gradients/v_0", "gradient_norm/v_0", "global_norm/gradient_norm"):
        assert tag in tags
    assert len(v1.get_collection(v1.GraphKeys.SUMMARIES)) == 5


def test_long_gradients_are_brought_down_to_the_average(session):
    x, var, loss, global_step = model()
    clip = slim.adaptive_clipping_fn(std_factor=0.5, decay=0.5, global_step=global_step, report_summary=True)
    ((gradient, same),) = clip(train.GradientDescentOptimizer(1.0).compute_gradients(loss))
    assert same is var
    session.run(v1.global_variables_initializer())
    # The variable stays 3. The first norm is the average, and so it is kept; the second one is e ** 4 times as long.
    first = session.run(gradient, {x: 1.0})
    session.run(global_step.assign(1))
    second = session.run(gradient, {x: np.exp(4.0)})
    np.testing.assert_allclose(first, 3.0, rtol=1e-5)
    np.testing.assert_allclose(second, 3 * np.exp(2.0), rtol=1e-4)


def test_a_static_limit_holds_always(session):
    _, _, loss, _ = model()
    clip = slim.adaptive_clipping_fn(static_max_norm=0.5)
    ((gradient, _),) = clip(train.GradientDescentOptimizer(1.0).compute_gradients(loss))
    session.run(v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(gradient), 0.5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"optimizer": "Adamm"}, "optimizer has 'Adamm', but there is only Adagrad, Adam,"),
        ({"optimizer": 3}, "optimizer=3 must be a name, an optimizer, its class, or a function"),
        ({"optimizer": lambda rate: rate}, "which is no optimizer"),
        ({"learning_rate": None}, "optimizer='SGD' needs a learning_rate"),
        ({"learning_rate": -0.1}, r"learning_rate=-0\.1 must be a number of 0 or more"),
        ({"clip_gradients": "norm"}, "clip_gradients='norm' must be a number or a function"),
        ({"summaries": ["los"]}, "summaries has 'los', but there is only learning_rate, loss"),
        ({"loss": [1.0, 2.0]}, r"the loss must be a scalar, not a tensor of shape \(2,\)"),
    ],
)
def test_what_it_refuses(kwargs, message):
    _, _, loss, global_step = model()
    args = {"loss": loss, "global_step": global_step, "learning_rate": 0.1, "optimizer": "SGD", **kwargs}
    with pytest.raises(ValueError, match=message):
        slim.optimize_loss(**args)


def test_a_decay_needs_a_global_step():
    var = v1.get_variable("v", [])
    with pytest.raises(ValueError, match="learning_rate_decay_fn needs a global step"):
        slim.optimize_loss(tf.square(var), None, 0.1, "SGD", learning_rate_decay_fn=lambda rate, step: rate)
