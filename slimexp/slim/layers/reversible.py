"""Spare memory in training: compute activations again for the gradient, instead of keeping them.

`recompute_grad` calls any function a second time. Reversible residual layers (Gomez et al., arXiv 1707.04585) need not
even their inputs, which they compute back from their outputs. Both need the operations of a graph or `tf.function`.

The functions must give the same twice, so they must not draw random numbers, as dropout does.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.slim.arg_scopes import arg_scope, current_arg_scope

__all__ = ["RevBlock", "recompute_grad", "rev_block"]

_Function = Callable[..., Any]


class RevBlock:
    """A series of reversible residual layers, each of which adds y1 = x1 + f(x2) and y2 = x2 + g(y1).

    Its first use makes the variables, in the scopes `revlayer_<i>/f` and `revlayer_<i>/g`; further uses share them.

    Args:
        f: A function of a tensor, and of a list with the side inputs if there are any, that keeps the tensor's shape;
            or a list of one for each layer. It must get all tensors that it uses through its arguments.
        g: Likewise.
        num_layers: The number of layers.
        f_side_input: Further tensors for `f`.
        g_side_input: Further tensors for `g`.
        use_efficient_backprop: Compute the activations again for the gradient; else keep them.
        name: Name of the block's variable scope, made unique.

    Raises:
        ValueError: If a list of functions has another length than `num_layers`.
    """

    def __init__(
        self,
        f: _Function | Sequence[_Function],
        g: _Function | Sequence[_Function],
        num_layers: int = 1,
        f_side_input: Sequence[Any] | None = None,
        g_side_input: Sequence[Any] | None = None,
        use_efficient_backprop: bool = True,
        name: str = "revblock",
    ) -> None:
        self.num_layers = num_layers
        self.f = _per_layer("f", f, num_layers)
        self.g = _per_layer("g", g, num_layers)
        self.f_side_input = list(f_side_input or [])
        self.g_side_input = list(g_side_input or [])
        self._efficient = use_efficient_backprop
        self._name = name
        self._scope: Any = None

    def forward(self, x1: Any, x2: Any) -> tuple[Any, Any]:
        """Returns the outputs (y1, y2) of the inputs, two tensors that f and g take."""
        x1, x2 = tf.convert_to_tensor(x1), tf.convert_to_tensor(x2)
        sides = [*self.f_side_input, *self.g_side_input]
        with self._opened() as reopened:
            if self._efficient:

                def with_gradient(*inputs: Any) -> tuple[tuple[Any, Any], Any]:
                    return self._with_gradient(reopened, *inputs)

                return tf.custom_gradient(with_gradient)(x1, x2, *sides)
            return self._through(x1, x2, self.f_side_input, self.g_side_input)

    def backward(self, y1: Any, y2: Any) -> tuple[Any, Any]:
        """Returns the inputs (x1, x2) of the outputs."""
        with self._opened():
            for i in reversed(range(self.num_layers)):
                y2 = y2 - self._call(self.g, "g", i, y1, self.g_side_input)
                y1 = y1 - self._call(self.f, "f", i, y2, self.f_side_input)
            return y1, y2

    def __call__(self, inputs: Sequence[Any], forward: bool = True) -> tuple[Any, Any]:
        """Calls `forward`, or `backward`, with the two tensors of a list."""
        return self.forward(*inputs) if forward else self.backward(*inputs)

    apply = __call__

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Callable[[], contextlib.AbstractContextManager[Any]]]:
        """Opens the block's variable scope, and yields what opens it again later."""
        if self._scope is not None:
            scope = tf.compat.v1.variable_scope(self._scope, reuse=True)
        elif tf.compat.v1.get_variable_scope().reuse:
            # There are such variables already, so the name is meant as it is.
            scope = tf.compat.v1.variable_scope(self._name, use_resource=True)
        else:
            scope = tf.compat.v1.variable_scope(None, self._name, use_resource=True)
        with scope as self._scope:
            yield _reopening(self._scope)

    def _call(self, functions: list[_Function], name: str, layer: int, x: Any, side_inputs: list[Any]) -> Any:
        with tf.compat.v1.variable_scope(f"revlayer_{layer}/{name}", use_resource=True):
            return functions[layer](x, side_inputs) if side_inputs else functions[layer](x)

    def _through(self, x1: Any, x2: Any, f_side: list[Any], g_side: list[Any]) -> tuple[Any, Any]:
        for i in range(self.num_layers):
            x1 = x1 + self._call(self.f, "f", i, x2, f_side)
            x2 = x2 + self._call(self.g, "g", i, x1, g_side)
        return x1, x2

    def _with_gradient(self, reopened: Any, x1: Any, x2: Any, *sides: Any) -> tuple[tuple[Any, Any], Any]:
        # A tensor may be given twice; each of its places has a gradient of its own.
        sides = tuple(tf.identity(side) for side in sides)
        num_f = len(self.f_side_input)
        outputs = self._through(x1, x2, list(sides[:num_f]), list(sides[num_f:]))

        def gradient(*grads: Any, variables: Sequence[Any] | None = None) -> Any:
            others = [*(variables or []), *sides]
            sums: list[Any] = [None] * len(others)
            with reopened(), tf.control_dependencies(grads):
                y1, y2, d1, d2 = (tf.identity(v) for v in (*outputs, *grads))
                for i in reversed(range(self.num_layers)):
                    f_side, g_side = list(sides[:num_f]), list(sides[num_f:])
                    y1 = tf.stop_gradient(y1)
                    added = self._call(self.g, "g", i, y1, g_side)
                    from_g, *others_g = tf.gradients(added, [y1, *others], d2, unconnected_gradients="none")
                    d1 = d1 if from_g is None else d1 + from_g
                    y2 = tf.stop_gradient(y2 - added)
                    added = self._call(self.f, "f", i, y2, f_side)
                    from_f, *others_f = tf.gradients(added, [y2, *others], d1, unconnected_gradients="none")
                    d2 = d2 if from_f is None else d2 + from_f
                    y1 = y1 - added
                    sums = [_sum(parts) for parts in zip(sums, others_g, others_f, strict=True)]
                    # All of a layer before any of the next, else activations of several layers are there at once.
                    y1, y2, d1, d2, *sums = tf.tuple([y1, y2, d1, d2, *sums])
            num_variables = len(variables or [])
            inputs = [d1, d2, *sums[num_variables:]]
            return (inputs, sums[:num_variables]) if variables else inputs

        return outputs, gradient


def rev_block(
    x1: Any,
    x2: Any,
    f: _Function | Sequence[_Function],
    g: _Function | Sequence[_Function],
    num_layers: int = 1,
    f_side_input: Sequence[Any] | None = None,
    g_side_input: Sequence[Any] | None = None,
    is_training: bool = True,
) -> tuple[Any, Any]:
    """Sends two tensors through a new `RevBlock`, whose arguments these are.

    Args:
        x1: The first tensor.
        x2: The second tensor.
        f: As in `RevBlock`.
        g: As in `RevBlock`.
        num_layers: The number of layers.
        f_side_input: Further tensors for `f`.
        g_side_input: Further tensors for `g`.
        is_training: Spare memory in the computation of gradients.
    """
    return RevBlock(f, g, num_layers, f_side_input, g_side_input, use_efficient_backprop=is_training).forward(x1, x2)


def recompute_grad(fn: _Function | None = None, use_data_dep: bool = False, tupleize_grads: bool = False) -> Any:
    """Makes a function keep no activations for its gradient, but compute them again. A decorator.

    Args:
        fn: A function of tensors that returns one or several. Each call must have a variable scope of its own. If it
            takes `is_recomputing`, it is told when it is called for the gradient.
        use_data_dep: Make the second computation wait for the gradients by their values. Control dependencies, the
            usual way, mean nothing to XLA. Needs floating point inputs.
        tupleize_grads: Hold all gradients of the function back until the last one is there.

    Returns:
        The function, or a decorator if `fn` is left out.

    Raises:
        ValueError: If `fn` uses tensors or variables of the functions around it, for which there would be no gradient.
    """
    if fn is None:
        return functools.partial(recompute_grad, use_data_dep=use_data_dep, tupleize_grads=tupleize_grads)
    function = fn
    for name, cell in zip(
        getattr(getattr(fn, "__code__", None), "co_freevars", ()), getattr(fn, "__closure__", None) or (), strict=True
    ):
        if isinstance(cell.cell_contents, (tf.Tensor, tf.Variable)):
            raise ValueError(f"recompute_grad: the function closes over {name!r}, a tensor. Make it an argument.")
    tells = "is_recomputing" in inspect.signature(fn).parameters

    def call(recomputing: bool, inputs: Sequence[Any]) -> tuple[Any, set[Any]]:
        with tf.GradientTape() as tape:
            outputs = function(*inputs, **({"is_recomputing": recomputing} if tells else {}))
        return outputs, {variable.ref() for variable in tape.watched_variables()}

    def with_gradient(*inputs: Any) -> tuple[Any, Any]:
        reopened = _reopening(tf.compat.v1.get_variable_scope())
        outputs, used = call(False, inputs)

        def gradient(*grads: Any, variables: Sequence[Any] | None = None) -> Any:
            present = [grad for grad in grads if grad is not None]
            with reopened(), tf.control_dependencies(present):
                again = [tf.identity(v) for v in inputs]
                if use_data_dep:
                    again = [v + _almost_zero(present, v.dtype) for v in again]
                recomputed, used_again = call(True, again)
            if used_again != used:
                raise ValueError(
                    "recompute_grad: for the gradient the function found other variables than before. This happens "
                    "when it opens a scope by default name and is called twice in the same enclosing scope: open a "
                    "variable scope around each call."
                )
            found = tf.gradients(
                tf.nest.flatten(recomputed), [*again, *(variables or [])], list(grads), stop_gradients=again
            )
            if tupleize_grads:
                found = tf.tuple(found)
            of_inputs, of_variables = found[: len(inputs)], found[len(inputs) :]
            return (of_inputs, of_variables) if variables else of_inputs

        return outputs, gradient

    def wrapped(*inputs: Any) -> Any:
        for value in inputs:
            if not isinstance(value, (tf.Tensor, tf.Variable)):
                raise ValueError(f"recompute_grad: all arguments must be tensors, not {value!r}.")
        return tf.custom_gradient(with_gradient)(*inputs)

    return wrapped if isinstance(fn, functools.partial) else functools.wraps(fn)(wrapped)


def _reopening(scope: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns what opens a variable scope and the arg scopes of now again, for a second call of the same functions."""
    defaults = current_arg_scope()

    @contextlib.contextmanager
    def reopened() -> Iterator[None]:
        updates = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.UPDATE_OPS)
        before = list(updates)
        with arg_scope(defaults), tf.compat.v1.variable_scope(scope, reuse=True):
            yield
        # Moving averages are updated once a step, not once more for the gradient.
        updates[:] = before

    return reopened


def _per_layer(name: str, functions: _Function | Sequence[_Function], num_layers: int) -> list[_Function]:
    if callable(functions):
        return [functions] * num_layers
    if len(functions) != num_layers:
        raise ValueError(f"RevBlock: {name} has {len(functions)} functions for {num_layers} layers.")
    return list(functions)


def _sum(parts: Sequence[Any]) -> Any:
    present = [part for part in parts if part is not None]
    return tf.add_n(present) if present else None


def _almost_zero(grads: Sequence[Any], dtype: tf.DType) -> Any:
    """Returns a number too small to matter that cannot be computed before the gradients."""
    firsts = [tf.cast(tf.reshape(grad, [-1])[0], dtype) for grad in grads]
    return tf.stop_gradient(np.finfo(dtype.as_numpy_dtype).tiny * tf.add_n(firsts))
