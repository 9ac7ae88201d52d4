"""The native op for the tests of this folder."""

from __future__ import annotations

import pytest

from slimexp.pipeline.native import build, ops


@pytest.fixture(scope="session")
def native() -> None:
    """Loads the op, built into the program's cache unless it is there; skips with the reason if it can't be."""
    path, reason = build.ensure()
    if path is None:
        pytest.skip(f"no native decoder: {reason}")
    ops.load(path)
