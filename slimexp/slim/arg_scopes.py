"""Give functions default arguments for a block of code: `arg_scope` and its family.

    @add_arg_scope
    def conv2d(inputs, num_outputs, kernel_size, stride=1, padding="SAME"): ...

    with arg_scope([conv2d], padding="VALID"):
        net = conv2d(net, 64, 3)                    # padding="VALID"
        net = conv2d(net, 64, 3, padding="SAME")    # what the call says wins, by keyword or by position

Unlike TF-Slim's, a positional argument overrides a scope's default (there it is an error), an argument that the
function does not have is refused where the scope is opened, and each thread has scopes of its own: a thread that
a `tf.distribute` strategy starts for a replica begins with the scopes that were open where the strategy ran.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import tensorflow as tf

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "current_arg_scope",
    "has_arg_scope",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Scope = dict[str, dict[str, Any]]


class _Arguments(NamedTuple):
    """What `add_arg_scope` knows of a function."""

    names: tuple[str, ...]
    optional: tuple[str, ...]
    takes_any: bool


# Functions made ready by `add_arg_scope`, by their key.
_scopable: dict[str, _Arguments] = {}


# The scopes that are open in threads which run no replica, the latest last.
_open_outside_replicas: list[_Scope] = []


def _in_replica_of_strategy() -> bool:
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


class _Stack(threading.local):
    """The open scopes of one thread, the innermost last."""

    def __init__(self) -> None:
        # The thread that calls Strategy.run waits while its replica threads build, so the latest scope open outside
        # replicas is that thread's. What another replica has open must not be taken over: replicas pause for each
        # other in the middle of their nets.
        inherits = _in_replica_of_strategy() and _open_outside_replicas
        self.scopes: list[_Scope] = [_open_outside_replicas[-1] if inherits else {}]

    @contextlib.contextmanager
    def opened(self, scope: _Scope) -> Iterator[None]:
        publish = not _in_replica_of_strategy()
        self.scopes.append(scope)
        if publish:
            _open_outside_replicas.append(scope)
        try:
            yield
        finally:
            self.scopes.pop()
            if publish:
                # By identity and from the end: scopes of other threads may lie above.
                at = max(i for i, other in enumerate(_open_outside_replicas) if other is scope)
                del _open_outside_replicas[at]


_stack = _Stack()


def arg_scope_func_key(op: Callable[..., Any]) -> str:
    """Returns the key under which a scope keeps the defaults of `op`."""
    return getattr(op, "_key_op", None) or str(op)


def has_arg_scope(func: Callable[..., Any]) -> bool:
    """Tells whether `func` was made ready by `add_arg_scope`."""
    return arg_scope_func_key(func) in _scopable


def arg_scoped_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of the arguments of `func` that have a default, which a scope may replace.

    A scope may set the others as well, for calls that leave them out.

    Args:
        func: A function decorated with `add_arg_scope`.

    Raises:
        ValueError: If it is not decorated.
    """
    _require_arg_scope(func)
    return _scopable[arg_scope_func_key(func)].optional


def current_arg_scope() -> _Scope:
    """Returns the innermost open scope: key of a function -> its defaults. Not to be changed in place."""
    return _stack.scopes[-1]


def add_arg_scope(func: _Function) -> _Function:
    """Makes a function take its defaults from the enclosing `arg_scope`s.

    Args:
        func: The function. Any of its arguments may be set by a scope.

    Returns:
        The decorated function.
    """
    parameters = inspect.signature(func).parameters.values()
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    key = f"{func.__module__}.{func.__qualname__} at {id(func):#x}"

    @functools.wraps(func)
    def func_with_scope(*args: Any, **kwargs: Any) -> Any:
        defaults = current_arg_scope().get(key)
        if defaults:
            given = by_position[: len(args)]
            kwargs = {**{k: v for k, v in defaults.items() if k not in given}, **kwargs}
        return func(*args, **kwargs)

    # setattr, as a function type has no such attribute for a type checker.
    setattr(func_with_scope, "_key_op", key)  # noqa: B010
    _scopable[key] = _Arguments(
        names=tuple(p.name for p in named),
        optional=tuple(p.name for p in named if p.default is not p.empty),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )
    return cast(_Function, func_with_scope)


@contextlib.contextmanager
def arg_scope(
    list_ops_or_scope: Sequence[Callable[..., Any]] | Mapping[str, Mapping[str, Any]], **kwargs: Any
) -> Iterator[_Scope]:
    """Opens a scope in which functions have the given default arguments.

    Scopes nest: the innermost value of an argument wins, the others of the outer scopes stay.

    Args:
        list_ops_or_scope: A list or tuple of functions decorated with `add_arg_scope`; or a scope, caught earlier by
            `with arg_scope(...) as scope`, which takes the place of the current one as a whole.
        **kwargs: The defaults; none together with a scope.

    Yields:
        The scope, to be entered again later.

    Raises:
        TypeError: If `list_ops_or_scope` is neither, or a function has no argument of a given name.
        ValueError: If a function is not decorated, or a scope comes together with keyword arguments.
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise ValueError(
                f"arg_scope: a scope is entered again as it was, but it came with {sorted(kwargs)}. "
                "Open a second arg_scope([functions], ...) inside it for these."
            )
        scope = {key: dict(defaults) for key, defaults in list_ops_or_scope.items()}
    else:
        if not isinstance(list_ops_or_scope, (list, tuple)):
            raise TypeError(
                "arg_scope takes a list or tuple of functions, or a scope that was opened before, "
                f"not {list_ops_or_scope!r}."
            )
        scope = dict(current_arg_scope())
        for op in list_ops_or_scope:
            _require_arg_scope(op)
            _require_arguments(op, kwargs)
            key = arg_scope_func_key(op)
            scope[key] = {**scope.get(key, {}), **kwargs}
    with _stack.opened(scope):
        yield scope


def _name(op: Callable[..., Any]) -> str:
    return getattr(op, "__name__", None) or str(op)


def _require_arg_scope(op: Callable[..., Any]) -> None:
    if not has_arg_scope(op):
        hint = " A functools.partial is not: name the function behind it." if hasattr(op, "func") else ""
        raise ValueError(f"arg_scope: {_name(op)} is not decorated with @add_arg_scope.{hint}")


def _require_arguments(op: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    names, _, takes_any = _scopable[arg_scope_func_key(op)]
    for name in kwargs:
        if name not in names and not takes_any:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(names)}."
            raise TypeError(f"arg_scope: {_name(op)}() has no argument {name!r}.{hint}")
