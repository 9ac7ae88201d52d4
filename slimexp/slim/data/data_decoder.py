"""What turns an encoded record into tensors."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

__all__ = ["DataDecoder"]


class DataDecoder(abc.ABC):
    """Decodes records into items, e.g. an image and its label."""

    @abc.abstractmethod
    def decode(self, data: Any, items: Sequence[str]) -> list[Any]:
        """Decodes a record.

        Args:
            data: The record as its reader gives it, usually a scalar string tensor.
            items: The names of the items that are wanted.

        Returns:
            Their tensors, in the order of `items`.

        Raises:
            ValueError: If there is no such item.
        """

    @abc.abstractmethod
    def list_items(self) -> list[str]:
        """Returns the names of the items that it can decode."""
