"""Finds what a `_target_` of the configuration names, and calls it; says which key is wrong when it cannot."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
from collections.abc import Callable, Container, Mapping
from typing import Any

from slimexp.errors import UserError
from slimexp.validation import nearest

__all__ = ["arguments", "call", "locate"]


def locate(key: str, target: str) -> Callable[..., Any]:
    """Imports what `target` names.

    Args:
        key: The configuration key, for messages, e.g. `model.network._target_`.
        target: `package.module.name`.

    Raises:
        UserError: If there is no such module or name, with the nearest one, or if importing the module fails.
    """
    module_name, _, name = target.rpartition(".")
    if not module_name:
        raise UserError(f"{key}={target}: must be MODULE.NAME, e.g. slimexp.nets.vgg.vgg_16.")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{key}={target}: cannot import {module_name}: {error}.") from error
    except Exception as error:
        raise UserError(f"{key}={target}: importing {module_name} fails: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        close = f" The nearest is {module_name}.{nearest(name, public)}." if public else ""
        raise UserError(f"{key}={target}: {module_name} has no function or class {name}.{close}")
    return found


def arguments(option: Any, ignore: Container[str] = ()) -> dict[str, Any]:
    """Returns a checked option, a schema's instance or a user's own mapping, as keyword arguments for its builder."""
    if isinstance(option, Mapping):
        items = dict(option)
    else:
        items = {field.name: getattr(option, field.name) for field in dataclasses.fields(option)}
    return {
        key: value.value if isinstance(value, enum.Enum) else value
        for key, value in items.items()
        if key != "_target_" and key not in ignore
    }


def call(group: str, option: Any, *args: Any, ignore: Container[str] = (), **further: Any) -> Any:
    """Calls an option's `_target_` with its keys, but for those to `ignore`, and further arguments.

    Raises:
        UserError: If it cannot be found or does not take these arguments.
    """
    target = option["_target_"] if isinstance(option, Mapping) else option._target_
    builder = locate(f"{group}._target_", target)
    keywords = {**arguments(option, ignore), **further}
    try:
        inspect.signature(builder).bind(*args, **keywords)
    except TypeError as error:
        raise UserError(f"{group}._target_={target}: {error}. The keys of {group} are its arguments.") from error
    return builder(*args, **keywords)
