from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def names(variables):
    return [variable.op.name for variable in variables]


def test_variables_go_into_their_collections(graph):
    v = slim.variable("v", [2])
    m = slim.model_variable("m", [2], trainable=False, collections=["mine"])
    local = slim.local_variable(0.0, name="local")
    saved = slim.global_variable(0.0, name="saved")
    assert names(slim.get_variables()) == ["v", "m", "saved"]
    assert names(slim.get_model_variables()) == ["m"]
    assert names(slim.get_trainable_variables()) == ["v"]
    assert names(slim.get_local_variables()) == ["local"]
    assert v1.get_collection("mine") == [m]
    slim.add_model_variable(v)
    slim.add_model_variable(v)
    assert names(slim.get_model_variables()) == ["m", "v"]
    assert slim.get_variable_full_name(v) == "v"
    assert local is slim.get_local_variables()[0]
    assert saved.dtype.base_dtype == tf.float32


def test_a_variable_is_gotten_again_under_reuse(graph):
    with v1.variable_scope("A") as scope:
        a = slim.model_variable("a", [2], regularizer=slim.l2_regularizer(0.5))
    with v1.variable_scope(scope, reuse=True):
        assert slim.model_variable("a", [2], regularizer=slim.l2_regularizer(0.5)) is a
    assert len(slim.losses.get_regularization_losses()) == 1


def test_lookup_by_scope_suffix_and_name(graph):
    for scope in ("A", "A/B", "C"):
        with v1.variable_scope(scope):
            slim.variable("weights", [2])
            slim.variable("biases", [2])
    assert names(slim.get_variables("A/B")) == ["A/B/weights", "A/B/biases"]
    with v1.variable_scope("C") as scope:
        assert names(slim.get_variables(scope)) == ["C/weights", "C/biases"]
    assert names(slim.get_variables_by_suffix("ases")) == ["A/biases", "A/B/biases", "C/biases"]
    assert names(slim.get_variables_by_suffix("ases", "A")) == ["A/biases", "A/B/biases"]
    assert slim.get_variables_by_name("ases") == []
    assert names(slim.get_variables_by_name("biases", "C")) == ["C/biases"]
    assert names(slim.get_variables_to_restore()) == names(slim.get_variables())
    assert names(slim.get_variables_to_restore(include=["A", "A/B"], exclude=["A/b"])) == [
        "A/weights",
        "A/B/weights",
        "A/B/biases",
    ]
    with pytest.raises(TypeError, match="exclude must be a list or tuple of scopes, not 'A'"):
        slim.get_variables_to_restore(exclude="A")
    assert slim.get_unique_variable("A/B/biases").op.name == "A/B/biases"
    with pytest.raises(ValueError, match="There is no variable 'D'"):
        slim.get_unique_variable("D")
    with pytest.raises(ValueError, match=r"the beginning of A/weights, A/biases"):
        slim.get_unique_variable("A")
    variables = slim.get_variables()
    assert names(slim.filter_variables(variables, ["B", "C"], ["weights$"])) == ["A/B/biases", "C/biases"]
    assert names(slim.filter_variables(variables, ["B"], reg_search=False)) == []
    assert slim.filter_variables(variables, exclude_patterns=["A", "C"]) == []


def test_a_device_chooser_takes_parameter_servers_in_turn(graph):
    chooser = slim.VariableDeviceChooser(num_tasks=2)
    with slim.arg_scope([slim.variable], device=chooser):
        devices = [slim.variable(name, [1]).device for name in "abc"]
    assert devices == [f"/job:ps/task:{task}/device:CPU:0" for task in (0, 1, 0)]
    with slim.arg_scope([slim.variable], device=slim.VariableDeviceChooser()):
        assert slim.variable("d", [1]).device == "/device:CPU:0"


def test_a_custom_getter_takes_the_place_of_get_variable(graph):
    def getter(name, **kwargs):
        return name, kwargs["shape"], kwargs["reuse"]

    assert slim.variable("v", [2], custom_getter=getter) == ("v", [2], False)


def test_eager_creation_is_refused():
    with pytest.raises(RuntimeError, match=r"cannot create the variable 'weights' eagerly.*tf\.Graph"):
        slim.conv2d(tf.zeros([1, 4, 4, 1]), 2, 3)


def test_global_step(graph):
    assert slim.get_global_step() is None
    step = slim.get_or_create_global_step()
    assert step.dtype.base_dtype == tf.int64
    assert slim.get_or_create_global_step() is step is slim.get_global_step()
    assert slim.assert_or_get_global_step() is step is slim.assert_or_get_global_step(None, step)
    with pytest.raises(ValueError, match="already exists"):
        slim.create_global_step()
    with pytest.raises(TypeError, match="integer"):
        slim.assert_global_step(slim.variable("v", [], tf.float32))


def test_in_a_function_without_a_store_the_error_names_it():
    @tf.function(autograph=False)
    def step(images):
        return slim.conv2d(images, 3, [3, 3], scope="lonely")

    with pytest.raises(RuntimeError, match=r"cannot get the variable '.*weights' in this tf\.function.*VariableStore"):
        step(tf.ones([1, 4, 4, 3]))
