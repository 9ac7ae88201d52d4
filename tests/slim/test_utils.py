from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim

utils = slim.utils


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_outputs_are_listed_by_alias():
    a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
    assert utils.collect_named_outputs("out", "net/a/", a) is a
    utils.collect_named_outputs(collections=["out", "more"], alias=None, outputs=b)
    assert list(utils.convert_collection_to_dict("out").items()) == [("net/a", a), ("b", b)]
    utils.append_tensor_alias(a, "second")
    assert utils.gather_tensors_aliases([a, b]) == ["net/a", "second", "b"]
    assert list(utils.convert_collection_to_dict("more", clear_collection=True)) == ["b"]
    assert utils.convert_collection_to_dict("more") == {}


def test_collections_of_variables():
    assert utils.get_variable_collections(["a"], "weights") == ["a"]
    assert utils.get_variable_collections({"weights": ["a"]}, "biases") is None


def test_sizes_given_once_or_for_each_dimension():
    assert utils.two_element_tuple(3) == utils.two_element_tuple(tf.TensorShape([3, 3])) == (3, 3)
    assert utils.n_positive_integers(3, 2) == utils.n_positive_integers(3, [2, 2, 2]) == (2, 2, 2)
    assert utils.channel_dimension(tf.TensorShape([None, 3, 5]), "channels_first") == 3
    assert utils.last_dimension(tf.TensorShape([None, 3, 5])) == 5
    for call, message in (
        (lambda: utils.two_element_tuple([1, 2, 3]), r"must be one integer or two, not \[1, 2, 3\]"),
        (lambda: utils.n_positive_integers(2, [1, 0]), r"Expected one positive integer or 2 of them, not \[1, 0\]"),
        (lambda: utils.n_positive_integers(0, 1), "must be a positive integer, not 0"),
        (lambda: utils.channel_dimension(tf.TensorShape([2]), "channels_last", 2), "must have rank 2 or more"),
        (lambda: utils.channel_dimension(tf.TensorShape([2, None]), "x"), "The channels dimension .* must be known"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_constant_values():
    assert utils.constant_value(tf.constant(3)) == utils.constant_value(3) == 3
    assert utils.constant_value(tf.compat.v1.placeholder(tf.int32, [])) is None
    assert utils.constant_value(tf.compat.v1.get_variable("v", [])) is None
    with pytest.raises(ValueError, match=r"has the type .*int32.*, not .*float32"):
        utils.constant_value(tf.constant(3), tf.float32)
    with pytest.raises(ValueError, match="must be a value, not None"):
        utils.constant_value(None)


def test_conditions_known_and_unknown():
    assert utils.smart_cond(True, lambda: 1, lambda: 2) == 1
    assert utils.smart_cond(tf.constant(False), lambda: 1, lambda: 2) == 2
    unknown = tf.compat.v1.placeholder(tf.bool, [])
    out = utils.smart_cond(unknown, lambda: tf.constant(1), lambda: tf.constant(2))
    with tf.compat.v1.Session() as session:
        assert [session.run(out, {unknown: value}) for value in (True, False)] == [1, 2]
    with pytest.raises(TypeError, match="must be callable, not 2"):
        utils.smart_cond(True, lambda: 1, 2)
