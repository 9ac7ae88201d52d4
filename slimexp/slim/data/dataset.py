"""What a dataset is: files, how they are read, how a record is decoded, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slimexp.slim.data.data_decoder import DataDecoder

__all__ = ["Dataset"]


class Dataset:
    """The specification of a dataset; a data provider reads it.

    Every argument is an attribute of the same name.
    """

    def __init__(
        self,
        data_sources: str | Sequence[str],
        reader: Callable[..., Any],
        decoder: DataDecoder,
        num_samples: int,
        items_to_descriptions: Mapping[str, str] | None,
        **kwargs: Any,
    ) -> None:
        """Keeps what it is given.

        Args:
            data_sources: Paths or glob patterns of the files.
            reader: A reader class of `tf.compat.v1`, e.g. `TFRecordReader`.
            decoder: Turns a record into items.
            num_samples: The number of examples.
            items_to_descriptions: What each item is, for people.
            **kwargs: Further attributes, e.g. `num_classes`.
        """
        self.data_sources = data_sources
        self.reader = reader
        self.decoder = decoder
        self.num_samples = num_samples
        self.items_to_descriptions = items_to_descriptions
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there; it tells type checkers that there may be more attributes.
        raise AttributeError(f"The dataset has no {name!r}; it has {', '.join(sorted(self.__dict__))}.")
