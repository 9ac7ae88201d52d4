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
    utils.collect_named_outputs(["out", "more"], None, b)
    assert list(utils.convert_collection_to_dict("out").items()) == [("net/a", a), ("b", b)]
    utils.append_tensor_alias(a, "second")
    assert utils.gather_tensors_aliases([a, b]) == ["net/a", "second", "b"]
    assert list(utils.convert_collection_to_dict("more", clear_collection=True)) == ["b"]
    assert utils.convert_collection_to_dict("more") == {}


def test_collections_of_variables():
    assert utils.get_variable_collections(["a"], "weights") == ["a"]
    assert utils.get_variable_collections({"weights": ["a"]}, "biases") is None


def test_conditions_known_and_unknown():
    assert utils.smart_cond(True, lambda: 1, lambda: 2) == 1
    assert utils.smart_cond(tf.constant(False), lambda: 1, lambda: 2) == 2
    unknown = tf.compat.v1.placeholder(tf.bool, [])
    out = utils.smart_cond(unknown, lambda: tf.constant(1), lambda: tf.constant(2))
    with tf.compat.v1.Session() as session:
        assert [session.run(out, {unknown: value}) for value in (True, False)] == [1, 2]
    with pytest.raises(TypeError, match="must be callable, not 2"):
        utils.smart_cond(True, lambda: 1, 2)
