"""Finds images that a list names more than once, and those whose lines then disagree about the labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slimexp.dataset.split import Split

__all__ = ["Repeats", "find_repeats", "hash_paths"]

# Rows compared at a time, so that the copies stay small beside the labels themselves.
_ROWS = 1 << 16


class Repeats(NamedTuple):
    """The repeated images of a split.

    Attributes:
        num_repeats: How many examples name an image that an earlier one names.
        num_conflicts: How many images are there with different labels.
        first_conflict: The two examples, by index, of the first such image in the order of the list.
    """

    num_repeats: int
    num_conflicts: int
    first_conflict: tuple[int, int] | None


def hash_paths(split: Split) -> np.ndarray:
    """Hashes the paths, int64 [n]; equal only for equal paths, but for once in 30 million lists of a million lines."""
    return np.fromiter(map(hash, split.paths), np.int64, len(split))


def find_repeats(split: Split, hashes: np.ndarray) -> Repeats:
    """Finds what a split names more than once.

    Args:
        split: The examples.
        hashes: Those of the split's paths, from `hash_paths`.
    """
    # Sorting alone is many times faster than the order it takes to tell the examples, and than np.unique's hash table.
    alone = np.sort(hashes)
    num_repeats = int(np.count_nonzero(alone[1:] == alone[:-1]))
    if not num_repeats:
        return Repeats(0, 0, None)
    # Stable, so that the examples of an image keep the order of the list.
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    before, after = order[again], order[again + 1]
    differs = np.zeros(len(again), bool)
    for begin in range(0, len(again), _ROWS):
        rows = slice(begin, begin + _ROWS)
        pairs = split.labels[before[rows]] != split.labels[after[rows]]
        differs[rows] = pairs if pairs.ndim == 1 else pairs.any(axis=1)
    if not differs.any():
        return Repeats(num_repeats, 0, None)
    of_conflicts = ordered[again[differs]]
    num_conflicts = 1 + int(np.count_nonzero(of_conflicts[1:] != of_conflicts[:-1]))
    first = int(np.argmin(np.where(differs, after, len(hashes))))
    return Repeats(num_repeats, num_conflicts, (int(before[first]), int(after[first])))
