from __future__ import annotations

import random

import numpy as np
import pytest

from slimexp.dataset.listfile_repeats import Repeats, find_repeats, hash_paths
from slimexp.dataset.split import Split


def by_hand(split: Split) -> Repeats:
    """The plain twin of find_repeats."""
    last: dict[bytes, int] = {}
    num_repeats, conflicts, first = 0, set(), None
    for i, path in enumerate(split.paths):
        if path in last:
            num_repeats += 1
            if not np.array_equal(split.labels[last[path]], split.labels[i]):
                conflicts.add(path)
                first = first or (last[path], i)
        last[path] = i
    return Repeats(num_repeats, len(conflicts), first)


def test_finds_the_first_of_two_conflicts() -> None:
    split = Split("train", [b"a", b"b", b"a", b"b", b"a", b"c", b"b"], np.array([0, 1, 0, 2, 1, 0, 1], np.int32), "x")
    assert find_repeats(split, hash_paths(split)) == Repeats(4, 2, (1, 3))


@pytest.mark.parametrize("rows", [2, 1 << 16])
@pytest.mark.parametrize("columns", [None, 3])
def test_finds_what_a_plain_search_finds(rows: int, columns: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimexp.dataset.listfile_repeats._ROWS", rows)
    rng = random.Random(0)
    for num_examples in (0, 1, 2, 5, 20, 200):
        for spread in (3, 50, 5000):
            paths = [b"%d" % rng.randrange(spread) for _ in range(num_examples)]
            shape = num_examples if columns is None else (num_examples, columns)
            labels = np.random.default_rng(spread).integers(-1, 2, shape).astype(np.int8 if columns else np.int32)
            split = Split("train", paths, labels, "train.txt")
            assert find_repeats(split, hash_paths(split)) == by_hand(split)
