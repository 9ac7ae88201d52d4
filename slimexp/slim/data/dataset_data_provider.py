"""Provides the items of a `Dataset`: parallel readers, a common queue, then one decoder.

    provider = slim.dataset_data_provider.DatasetDataProvider(dataset, num_readers=4, shuffle=True)
    image, label = provider.get(["image", "label"])

Where decoding takes longer than reading, see `parallel_reader_decoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slimexp.slim.data import parallel_reader
from slimexp.slim.data.data_provider import DataProvider
from slimexp.slim.data.dataset import Dataset

__all__ = ["DatasetDataProvider", "with_record_key"]


class DatasetDataProvider(DataProvider):
    """Provides the items of a dataset, and the record's key."""

    def __init__(
        self,
        dataset: Dataset,
        num_readers: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        num_epochs: int | None = None,
        common_queue_capacity: int = 256,
        common_queue_min: int = 128,
        record_key: str = "record_key",
        seed: int | None = None,
        scope: str | None = None,
    ) -> None:
        """Adds the reading and decoding operations, and their queue runners, to the graph.

        Args:
            dataset: The dataset.
            num_readers: The number of parallel readers.
            reader_kwargs: Keyword arguments of the dataset's reader class.
            shuffle: Read the files and their records in random order.
            num_epochs: How often each file is read; None for ever. A number needs
                `tf.compat.v1.local_variables_initializer` to be run, for the count.
            common_queue_capacity: The most records to keep between readers and decoder.
            common_queue_min: The fewest records to draw from when shuffling.
            record_key: Name of the item that is the record's key, e.g. `file:number`.
            seed: Seed of the shuffling.
            scope: Name scope of the operations.

        Raises:
            ValueError: If there are no files, or the dataset has an item called `record_key`.
        """
        key, data = parallel_reader.parallel_read(
            dataset.data_sources,
            reader_class=dataset.reader,
            num_epochs=num_epochs,
            num_readers=num_readers,
            reader_kwargs=reader_kwargs,
            shuffle=shuffle,
            capacity=common_queue_capacity,
            min_after_dequeue=common_queue_min,
            seed=seed,
            scope=scope,
        )
        items = dataset.decoder.list_items()
        tensors = dict(zip(items, dataset.decoder.decode(data, items), strict=True))
        super().__init__(with_record_key(tensors, record_key, key), dataset.num_samples)


def with_record_key(tensors: dict[str, Any], record_key: str, key: Any) -> dict[str, Any]:
    """Returns items together with the record's key.

    Raises:
        ValueError: If there already is an item of that name.
    """
    if record_key in tensors:
        raise ValueError(f"record_key={record_key!r} is also the name of an item of the dataset; choose another name.")
    return {**tensors, record_key: key}
