"""Apply a layer several times in a row, each time in a scope of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.arg_scopes import add_arg_scope

__all__ = ["repeat", "stack"]


@add_arg_scope
def repeat(inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Applies the same layer several times in a row.

        net = slim.repeat(net, 3, slim.conv2d, 256, [3, 3], scope="conv3")

    adds the layers `conv3/conv3_1`, `conv3/conv3_2` and `conv3/conv3_3`.

    Args:
        inputs: A tensor.
        repetitions: How often, 0 or more.
        layer: A function of a tensor that takes `scope`.
        *args: Further positional arguments of `layer`.
        **kwargs: Keyword arguments of `layer`. `scope` names the scope around all, and with `_1`, `_2`, ... the
            scope of each; by default `Repeat`, and the name of the layer.

    Returns:
        The last output.
    """
    scope = kwargs.pop("scope", None)
    with tf.compat.v1.variable_scope(scope, "Repeat", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        name = scope_name(scope) or layer_name(layer)
        outputs = inputs
        for i in range(repetitions):
            outputs = layer(outputs, *args, scope=f"{name}_{i + 1}", **kwargs)
        return outputs


@add_arg_scope
def stack(inputs: Any, layer: Callable[..., Any], stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Applies a layer several times in a row, with other arguments each time.

        net = slim.stack(net, slim.conv2d, [(32, [3, 3]), (64, [1, 1])], scope="core")

    adds the layers `core/core_1` and `core/core_2`.

    Args:
        inputs: A tensor.
        layer: A function of a tensor that takes `scope`.
        stack_args: For each time the further positional arguments: a list or tuple, or a single argument.
        **kwargs: Keyword arguments of every time. `scope` is used as in `repeat`; by default `Stack`.

    Returns:
        The last output.

    Raises:
        ValueError: If `stack_args` is not a list or tuple.
    """
    scope = kwargs.pop("scope", None)
    if not isinstance(stack_args, (list, tuple)):
        raise ValueError(f"stack: stack_args must be a list or tuple, not {stack_args!r}.")
    with tf.compat.v1.variable_scope(scope, "Stack", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        name = scope_name(scope) or layer_name(layer)
        outputs = inputs
        for i, args in enumerate(stack_args):
            args = args if isinstance(args, (list, tuple)) else [args]
            outputs = layer(outputs, *args, scope=f"{name}_{i + 1}", **kwargs)
        return outputs


def scope_name(scope: Any) -> str:
    """Returns the last component of a scope given as a string or a variable scope; empty for None."""
    if scope is None:
        return ""
    return scope if isinstance(scope, str) else scope.name.rpartition("/")[2]


def layer_name(layer: Any) -> str:
    """Returns the name of a layer function, of the one behind it if it is a partial function."""
    function = getattr(layer, "func", layer)
    return str(getattr(function, "__name__", "repeat"))
