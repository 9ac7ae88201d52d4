"""Reads files by several threads, each of which also decodes what it reads, into a common queue.

With `parallel_reader` many threads read but one decodes, and decoding is what JPEG files cost. Here decoded items meet
in the queue:

    provider = slim.parallel_reader_decoder.DatasetDataProvider(dataset, num_readers=4)
    image, label = provider.get(["image", "label"])

A record need not be an example itself. With a text file of image names and labels, `tf.TextLineReader` as reader and a
decoder that reads and decodes the image a line names, the images stay JPEG files on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.data.data_decoder import DataDecoder
from slimexp.slim.data.data_provider import DataProvider
from slimexp.slim.data.dataset import Dataset
from slimexp.slim.data.dataset_data_provider import with_record_key
from slimexp.slim.data.parallel_reader import get_data_files, new_common_queue

__all__ = ["DatasetDataProvider", "ParallelReaderDecoder", "parallel_read_decode"]

v1 = tf.compat.v1


class ParallelReaderDecoder:
    """Threads that each read and decode, and fill a common queue of decoded items."""

    def __init__(
        self,
        reader_class: Callable[..., Any],
        decoder: DataDecoder,
        items: Sequence[str] | None = None,
        num_readers: int = 4,
        reader_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates the readers.

        Args:
            reader_class: A reader class of `tf.compat.v1`, e.g. `TFRecordReader`.
            decoder: Turns a record into items.
            items: The items that are wanted; None for all.
            num_readers: The number of threads.
            reader_kwargs: Keyword arguments of the reader class.

        Raises:
            ValueError: If the decoder has no such item, or there is to be no reader.
        """
        if num_readers < 1:
            raise ValueError(f"num_readers={num_readers} must be 1 or more.")
        known = list(decoder.list_items())
        self._items = known if items is None else list(items)
        for item in self._items:
            if item not in known:
                raise ValueError(f"The decoder has no item {item!r}; it has {', '.join(known)}.")
        self._decoder = decoder
        self._readers = [reader_class(**(reader_kwargs or {})) for _ in range(num_readers)]

    @property
    def num_readers(self) -> int:
        """The number of threads."""
        return len(self._readers)

    def read(
        self,
        queue: Any,
        *,
        shuffle: bool = True,
        capacity: int = 256,
        min_after_dequeue: int = 128,
        seed: int | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Lets the threads fill a common queue with decoded items, and takes one example from it.

        Args:
            queue: The queue of file names.
            shuffle: Take examples in random order.
            capacity: The most examples to keep. They are decoded: 256 photos of 500 x 375 pixels are 144 MB.
            min_after_dequeue: The fewest examples to draw from when shuffling.
            seed: Seed of the shuffling.

        Returns:
            The record's key, a scalar string, and its items by name, with the shapes that the decoder gives them.

        Raises:
            ValueError: If an item is sparse, or the queue's sizes do not fit.
        """
        if shuffle and not 0 <= min_after_dequeue < capacity:
            raise ValueError(
                f"min_after_dequeue={min_after_dequeue} must be less than capacity={capacity}, else nothing could ever "
                "be taken from the queue."
            )
        examples = [self._read_and_decode(reader, queue) for reader in self._readers]
        dtypes = [tensor.dtype for tensor in examples[0]]
        shapes = [tensor.shape for tensor in examples[0]]
        known = all(shape.is_fully_defined() for shape in shapes)
        common_queue = new_common_queue(dtypes, shapes if known else None, shuffle, capacity, min_after_dequeue, seed)
        enqueue_ops = [common_queue.enqueue(example) for example in examples]
        v1.train.add_queue_runner(v1.train.QueueRunner(common_queue, enqueue_ops))
        key, *tensors = common_queue.dequeue()
        key.set_shape([])
        for tensor, shape in zip(tensors, shapes[1:], strict=True):
            tensor.set_shape(shape)
        return key, dict(zip(self._items, tensors, strict=True))

    def _read_and_decode(self, reader: Any, queue: Any) -> list[Any]:
        key, record = reader.read(queue)
        decoded = self._decoder.decode(record, self._items)
        for item, tensor in zip(self._items, decoded, strict=True):
            if isinstance(tensor, tf.SparseTensor):
                raise ValueError(
                    f"The item {item!r} is sparse, which a queue cannot hold. Let its handler make it dense."
                )
        return [key, *[tf.convert_to_tensor(tensor) for tensor in decoded]]


def parallel_read_decode(
    data_sources: str | Sequence[str],
    reader_class: Callable[..., Any],
    decoder: DataDecoder,
    items: Sequence[str] | None = None,
    num_epochs: int | None = None,
    num_readers: int = 4,
    reader_kwargs: Mapping[str, Any] | None = None,
    shuffle: bool = True,
    capacity: int = 256,
    min_after_dequeue: int = 128,
    seed: int | None = None,
    scope: str | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Reads and decodes records of files by several threads at once.

    Args:
        data_sources: Paths or glob patterns of the files. With fewer files than threads some threads have nothing to
            do.
        reader_class: A reader class of `tf.compat.v1`, e.g. `TFRecordReader`.
        decoder: Turns a record into items.
        items: The items that are wanted; None for all.
        num_epochs: How often each file is read; None for ever.
        num_readers: The number of threads.
        reader_kwargs: Keyword arguments of the reader class.
        shuffle: Read the files and their examples in random order.
        capacity: The most examples to keep in the common queue. They are decoded, so mind the memory.
        min_after_dequeue: The fewest examples to draw from when shuffling.
        seed: Seed of the shuffling.
        scope: Name scope of the operations; by default `parallel_read_decode`.

    Returns:
        The next record's key, a scalar string, and its items by name.

    Raises:
        ValueError: If there are no files, the decoder has no such item, an item is sparse, or the queue's sizes do not
            fit.
    """
    data_files = get_data_files(data_sources)
    with v1.name_scope(scope, "parallel_read_decode"):
        file_names = v1.train.string_input_producer(
            data_files, num_epochs=num_epochs, shuffle=shuffle, seed=seed, name="filenames"
        )
        reader = ParallelReaderDecoder(reader_class, decoder, items, num_readers, reader_kwargs)
        return reader.read(
            file_names, shuffle=shuffle, capacity=capacity, min_after_dequeue=min_after_dequeue, seed=seed
        )


class DatasetDataProvider(DataProvider):
    """Provides the items of a dataset as `slim.dataset_data_provider` does, but decoded in the readers' threads."""

    def __init__(
        self,
        dataset: Dataset,
        num_readers: int = 4,
        reader_kwargs: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        num_epochs: int | None = None,
        common_queue_capacity: int = 256,
        common_queue_min: int = 128,
        record_key: str = "record_key",
        seed: int | None = None,
        scope: str | None = None,
    ) -> None:
        """Adds the operations and their queue runners to the graph.

        Args:
            dataset: The dataset.
            num_readers: The number of threads that read and decode.
            reader_kwargs: Keyword arguments of the dataset's reader class.
            shuffle: Read the files and their examples in random order.
            num_epochs: How often each file is read; None for ever. A number needs
                `tf.compat.v1.local_variables_initializer` to be run, for the count.
            common_queue_capacity: The most decoded examples to keep.
            common_queue_min: The fewest examples to draw from when shuffling.
            record_key: Name of the item that is the record's key, e.g. `file:number`.
            seed: Seed of the shuffling.
            scope: Name scope of the operations.

        Raises:
            ValueError: As `parallel_read_decode`, and if the dataset has an item called `record_key`.
        """
        key, tensors = parallel_read_decode(
            dataset.data_sources,
            dataset.reader,
            dataset.decoder,
            num_epochs=num_epochs,
            num_readers=num_readers,
            reader_kwargs=reader_kwargs,
            shuffle=shuffle,
            capacity=common_queue_capacity,
            min_after_dequeue=common_queue_min,
            seed=seed,
            scope=scope,
        )
        super().__init__(with_record_key(tensors, record_key, key), dataset.num_samples)
