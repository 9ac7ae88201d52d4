"""What hands a script the tensors of a dataset by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["DataProvider"]


class DataProvider:
    """Tensors by the names of their items; a base class, whose subclasses know where the tensors come from."""

    def __init__(self, items_to_tensors: Mapping[str, Any], num_samples: int) -> None:
        """Keeps the tensors.

        Args:
            items_to_tensors: Item name -> tensor.
            num_samples: The number of examples of the dataset.
        """
        self._items_to_tensors = dict(items_to_tensors)
        self._num_samples = num_samples

    def get(self, items: Sequence[str]) -> list[Any]:
        """Returns the tensors of items, in their order.

        Raises:
            ValueError: If `items` is not a list or tuple, or there is no such item.
        """
        if not isinstance(items, (list, tuple)):
            raise ValueError(f"The items must be a list or tuple of names, not {items!r}.")
        for item in items:
            if item not in self._items_to_tensors:
                raise ValueError(f"There is no item {item!r}; there is {', '.join(self._items_to_tensors)}.")
        return [self._items_to_tensors[item] for item in items]

    def list_items(self) -> list[str]:
        """Returns the names of the items."""
        return list(self._items_to_tensors)

    def num_samples(self) -> int:
        """Returns the number of examples of the dataset."""
        return self._num_samples
