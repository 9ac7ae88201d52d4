"""Slots have TF-Slim's names and can be set before the first step."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp.training import optimizers

CASES = {
    "sgd": ({}, []),
    "momentum": ({"momentum": 0.9}, ["w/Momentum"]),
    "rmsprop": ({"decay": 0.9, "momentum": 0.9, "epsilon": 1.0}, ["w/RMSProp", "w/RMSProp_1"]),
    "adam": (
        {"beta1": 0.9, "beta2": 0.999, "epsilon": 1.0},
        ["w/Adam", "w/Adam_1", "beta1_power", "beta2_power"],
    ),
    "adagrad": ({"initial_accumulator_value": 0.1}, ["w/Adagrad"]),
    "adadelta": ({"rho": 0.95, "epsilon": 1.0}, ["w/Adadelta", "w/Adadelta_1"]),
    "ftrl": (
        {"learning_rate_power": -0.5, "initial_accumulator_value": 0.1, "l1": 0.0, "l2": 0.0},
        ["w/Ftrl", "w/Ftrl_1"],
    ),
}


def made(name):
    settings, _ = CASES[name]
    return getattr(optimizers, name)(lambda: tf.constant(0.1), **settings)


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_a_v1_graph(name):
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("w", [2])
        before = len(tf.compat.v1.global_variables())
        made(name).minimize(tf.reduce_sum(variable**2), var_list=[variable])
        in_graph = {v.op.name for v in tf.compat.v1.global_variables()[before:]}
    variable = tf.Variable([1.0, 2.0], name="w")
    optimizer = made(name)
    optimizers.create_slots(optimizer, [variable])
    ours = dict(optimizers.named_slots(optimizer, [variable]))
    assert set(ours) == in_graph == set(CASES[name][1])


def test_rmsprop_tells_its_two_slots_apart():
    variable = tf.Variable([1.0, 2.0], name="w")
    optimizer = made("rmsprop")
    optimizers.create_slots(optimizer, [variable])
    slots = dict(optimizers.named_slots(optimizer, [variable]))
    # TF-Slim's first slot is the mean square, which starts at one; the second is the momentum, which starts at zero.
    assert slots["w/RMSProp"].numpy().tolist() == [1, 1]
    assert slots["w/RMSProp_1"].numpy().tolist() == [0, 0]


@pytest.mark.parametrize("name", CASES)
def test_the_step_uses_the_slots_that_were_created(name):
    variable = tf.Variable([1.0, 2.0], name="w")
    optimizer = made(name)
    optimizers.create_slots(optimizer, [variable])
    before = {key: slot.numpy().copy() for key, slot in optimizers.named_slots(optimizer, [variable])}

    @tf.function
    def step():
        gradients = optimizer.compute_gradients(tf.reduce_sum(variable**2), [variable])
        optimizer.apply_gradients(gradients)

    step()
    step()
    after = dict(optimizers.named_slots(optimizer, [variable]))
    assert after.keys() == before.keys()
    assert all((after[key].numpy() != before[key]).any() for key in before)
    assert (variable.numpy() < [1.0, 2.0]).all()
