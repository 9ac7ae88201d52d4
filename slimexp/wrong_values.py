"""Says in our words what OmegaConf finds wrong with a value: the key, the value, what it must be, the way out."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any

from omegaconf.errors import OmegaConfBaseException, ValidationError

from slimexp.config import show

__all__ = ["explain_value"]

_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def explain_value(error: OmegaConfBaseException, prefix: str = "") -> str:
    """Rewrites OmegaConf's account of a value that its schema does not take.

    Args:
        error: Of any kind; one that is about something else keeps its first line.
        prefix: What the error's key lies below.

    Returns:
        One line, beginning with the key.
    """
    key = ".".join(part for part in (prefix, error.full_key) if part)
    kind = _kind(error, key.rpartition(".")[2]) if isinstance(error, ValidationError) else None
    words = None if kind is None else _in_words(kind)
    if words is None:
        return f"{key}: {str(error).splitlines()[0]}"
    if error.value is None:
        return f"{key}=null: must be {words}; null is not possible. Leave it out for its default."
    return f"{key}={_shown(error.value)}: must be {words}."


def _kind(error: OmegaConfBaseException, name: str) -> Any:
    """Returns the type that the schema asks for; None if it cannot be told."""
    if name.endswith("]"):  # One of a list: export.formats[0]
        return next(iter(typing.get_args(error.ref_type)), None)
    schema = error.object_type
    return typing.get_type_hints(schema).get(name) if dataclasses.is_dataclass(schema) else None


def _in_words(kind: Any) -> str | None:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        words = [_in_words(argument) for argument in arguments if argument is not types.NoneType]
        known = [word for word in words if word is not None]
        return f"{' or '.join(known)}, or null" if len(known) == len(words) else None
    if origin is list:
        inside = _in_words(arguments[0])
        return "a list, e.g. [a,b]" if inside is None else f"a list, [a,b,...], and each in it {inside}"
    if origin is dict:
        return "a group of keys, e.g. {a: 1}"
    if dataclasses.is_dataclass(kind):
        return f"a group of keys: {', '.join(field.name for field in dataclasses.fields(kind))}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        *names, last = (member.value for member in kind)
        return f"{', '.join(names)} or {last}" if names else str(last)
    return _WORDS.get(kind)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else show(value)
