from __future__ import annotations

import functools
import threading

import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim import reference


@slim.add_arg_scope
def layer(inputs, size, stride=1, padding="SAME", *, scope=None):
    """Says what it got."""
    return inputs, size, stride, padding, scope


@slim.add_arg_scope
def other(inputs, stride=1, **kwargs):
    return inputs, stride, kwargs


def test_scopes_nest_and_the_innermost_value_wins():
    with slim.arg_scope([layer, other], stride=2):
        with slim.arg_scope([layer], padding="VALID", stride=3):
            assert layer("x", 5) == ("x", 5, 3, "VALID", None)
            assert other("x") == ("x", 2, {})
        assert layer("x", 5) == ("x", 5, 2, "SAME", None)
    assert layer("x", 5) == ("x", 5, 1, "SAME", None)


def test_what_the_call_says_wins_by_keyword_and_by_position():
    with slim.arg_scope([layer], stride=2, padding="VALID", size=7):
        assert layer("x", 5, stride=4) == ("x", 5, 4, "VALID", None)
        assert layer("x", 5, 4) == ("x", 5, 4, "VALID", None)
        assert layer("x") == ("x", 7, 2, "VALID", None)


def test_a_positional_stride_overrides_that_of_the_scope():
    with tf.Graph().as_default(), slim.arg_scope([slim.conv2d], stride=1, padding="SAME"):
        images = tf.compat.v1.placeholder(tf.float32, [None, 224, 224, 3])
        assert slim.conv2d(images, 64, [11, 11], 4, padding="VALID").shape.as_list() == [None, 54, 54, 64]
        assert slim.conv2d(images, 8, [3, 3]).shape.as_list() == [None, 224, 224, 8]


def test_a_scope_can_be_entered_again():
    with slim.arg_scope([layer], stride=2) as scope:
        pass
    with slim.arg_scope([layer], padding="VALID"), slim.arg_scope(scope) as again:
        assert layer("x", 5) == ("x", 5, 2, "SAME", None)
        assert again == scope == slim.current_arg_scope()


def test_the_outer_scope_survives_a_failure_in_an_inner_one():
    with slim.arg_scope([layer], stride=2):
        with pytest.raises(KeyError), slim.arg_scope([layer], stride=3):
            raise KeyError
        assert layer("x", 5)[2] == 2
    assert slim.current_arg_scope() == {}


def test_an_argument_that_the_function_lacks_is_refused_where_the_scope_is_opened():
    def refused(message, functions, **kwargs):
        with pytest.raises(TypeError, match=message), slim.arg_scope(functions, **kwargs):
            pass

    refused(r"layer\(\) has no argument 'paddin'\. Did you mean 'padding'\?", [other, layer], paddin="VALID")
    refused(r"convolution2d\(\) has no argument 'is_training'\. It has inputs", [slim.conv2d], is_training=True)
    with slim.arg_scope([other], anything=1):
        assert other("x") == ("x", 1, {"anything": 1})


def test_what_is_no_list_of_decorated_functions_is_refused():
    def refused(error, message, functions, **kwargs):
        with pytest.raises(error, match=message), slim.arg_scope(functions, **kwargs):
            pass

    refused(TypeError, "takes a list or tuple of functions, or a scope", layer)
    refused(ValueError, "len is not decorated with @add_arg_scope", [len], x=1)
    partial = functools.partial(layer, stride=2)
    refused(ValueError, r"A functools\.partial is not: name the function behind it", [partial], stride=1)
    refused(ValueError, r"came with \['stride'\]", slim.current_arg_scope(), stride=3)


def test_functions_tell_what_a_scope_may_set():
    assert slim.has_arg_scope(layer)
    assert not slim.has_arg_scope(len)
    assert slim.arg_scoped_arguments(layer) == ("stride", "padding", "scope")
    assert slim.arg_scope_func_key(layer) != slim.arg_scope_func_key(other)
    assert layer.__doc__ == "Says what it got."
    with pytest.raises(ValueError, match="len is not decorated"):
        slim.arg_scoped_arguments(len)


def test_replica_threads_begin_with_the_scopes_open_where_the_strategy_runs():
    strategy = reference.two_replicas()
    seen = []

    def replica():
        context = tf.distribute.get_replica_context()
        outer = layer("x", 1)[2:4]
        with slim.arg_scope([layer], padding="VALID"):
            # Here the first replica waits for the second one, which must not begin in this inner scope.
            context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))
            inner = layer("x", 1)[2:4]
        seen.append((outer, inner, layer("x", 1)[2:4]))

    @tf.function
    def step():
        strategy.run(replica)

    with slim.arg_scope([layer], stride=2):
        step()
    assert seen == [((2, "SAME"), (2, "VALID"), (2, "SAME"))] * 2


def test_other_threads_have_scopes_of_their_own():
    seen = []
    with slim.arg_scope([layer], stride=2):
        thread = threading.Thread(target=lambda: seen.append(layer("x", 5)[2]))
        thread.start()
        thread.join()
    assert seen == [1]
