"""What the schemas check their fields with."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.errors import UserError

__all__ = [
    "at_least",
    "at_most",
    "fraction",
    "path_field",
    "require",
    "show",
]


def require(ok: bool, key: str, value: object, rule: str) -> None:
    if not ok:
        raise UserError(f"{key}={show(value)}: {rule}")


def show(value: object) -> str:
    """Returns a value as it is written in the configuration."""
    if value is None:
        return "null"
    return value.value if isinstance(value, enum.Enum) else str(value)


def at_most(owner: object, prefix: str, most: int, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            require(value <= most, f"{prefix}.{name}", value, f"must be {most:,} or less.")


def at_least(owner: object, prefix: str, least: float, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            require(value >= least, f"{prefix}.{name}", value, f"must be {least:g} or more.")


def fraction(owner: object, prefix: str, *names: str, zero: bool = False, one: bool = False) -> None:
    low, high = "[" if zero else "(", "]" if one else ")"
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            ok = (value >= 0 if zero else value > 0) and (value <= 1 if one else value < 1)
            require(ok, f"{prefix}.{name}", value, f"must lie in {low}0, 1{high}.")


def path_field() -> Any:
    """Declares a path: relative ones count from the folder the user started in."""
    return dataclasses.field(default=MISSING, metadata={"path": True})
