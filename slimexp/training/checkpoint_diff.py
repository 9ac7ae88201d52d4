"""What two checkpoints do not have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from slimexp.training.checkpoint_file import CheckpointFile, Variable

__all__ = ["DIFFERENCES", "Difference", "compare"]

ONLY_FIRST, ONLY_SECOND, SHAPE, VALUE, EQUAL = DIFFERENCES = (
    "only in the first",
    "only in the second",
    "shape or type differs",
    "value differs",
    "equal",
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one variable is in two checkpoints.

    Attributes:
        name: Its name.
        status: One of `DIFFERENCES`.
        first, second: Its entries; None where it is missing.
        max_abs_difference: Over all elements, if the value differs; nan if one of the two is no number where the other
            is one.
    """

    name: str
    status: str
    first: Variable | None
    second: Variable | None
    max_abs_difference: float | None = None


def compare(first: CheckpointFile, second: CheckpointFile) -> Iterator[Difference]:
    """Yields each variable of either checkpoint in the order of their names; two are in memory at a time."""
    comparable = [n for n, v in first.variables.items() if n in second.variables and _alike(v, second.variables[n])]
    values = zip(first.read(comparable), second.read(comparable), strict=True)
    for name in sorted(first.variables.keys() | second.variables.keys()):
        ours, theirs = first.variables.get(name), second.variables.get(name)
        if ours is None or theirs is None:
            yield Difference(name, ONLY_SECOND if ours is None else ONLY_FIRST, ours, theirs)
        elif not _alike(ours, theirs):
            yield Difference(name, SHAPE, ours, theirs)
        else:
            (_, a), (_, b) = next(values)
            most = _max_abs_difference(a, b)
            yield Difference(name, EQUAL if most == 0 else VALUE, ours, theirs, None if most == 0 else most)


def _alike(first: Variable, second: Variable) -> bool:
    return (first.shape, first.dtype) == (second.shape, second.dtype)


def _max_abs_difference(first: np.ndarray, second: np.ndarray) -> float | None:
    """Returns 0 if the values are the same, None if they differ and are no numbers."""
    if first.dtype.kind not in "fiuV":  # V: bfloat16 and its kin.
        return 0.0 if np.array_equal(first, second) else None
    if first.dtype.kind != "f" or first.dtype.itemsize < 4:
        first, second = first.astype(np.float64), second.astype(np.float64)
    unequal = (first != second) & ~(np.isnan(first) & np.isnan(second))
    if not unequal.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        return float(np.abs(first[unequal] - second[unequal]).max())
