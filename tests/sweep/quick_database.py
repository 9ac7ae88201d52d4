"""A fixture for tests that make many small SQLite files: nobody pulls the plug within a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

__all__ = ["quick_database"]


@pytest.fixture
def quick_database() -> Iterator[None]:
    """Spares SQLite the wait for the disk at each of its hundreds of commits."""

    def hurry(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", hurry)
    yield
    event.remove(Engine, "connect", hurry)
