"""Reads files by several readers at once into a common queue.

    key, value = slim.parallel_reader.parallel_read("train-*.tfrecord", tf.TFRecordReader, num_readers=4)

What reads the key and the value still has to decode them, in one thread: see `parallel_reader_decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["ParallelReader", "get_data_files", "parallel_read", "single_pass_read"]

v1 = tf.compat.v1


class ParallelReader(tf.compat.v1.ReaderBase):
    """Several readers of one class that fill a common queue; to read is to take from the queue.

    Each reader works on a file of its own, so records of several files are mixed, and how many come from which reader
    is left to chance.
    """

    # TensorFlow's constructor makes one reader's resource, which this does not have.
    def __init__(
        self,
        reader_class: Callable[..., Any],
        common_queue: Any,
        num_readers: int = 4,
        reader_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates the readers.

        Args:
            reader_class: A reader class of `tf.compat.v1`, e.g. `TFRecordReader`.
            common_queue: A queue of pairs of strings: key and value.
            num_readers: The number of readers.
            reader_kwargs: Keyword arguments of the reader class.

        Raises:
            TypeError: If the queue's elements are not pairs of strings.
        """
        if [dtype.base_dtype for dtype in common_queue.dtypes] != [tf.string, tf.string]:
            raise TypeError(f"common_queue.dtypes must be [tf.string, tf.string], not {common_queue.dtypes}.")
        self._readers = [reader_class(**(reader_kwargs or {})) for _ in range(num_readers)]
        self._common_queue = common_queue

    @property
    def num_readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    @property
    def common_queue(self) -> Any:
        """The queue."""
        return self._common_queue

    def read(self, queue: Any, name: str | None = None) -> Any:
        """Lets the readers fill the common queue, and takes one record from it.

        Args:
            queue: The queue of file names.
            name: Name of the operation.

        Returns:
            The key and the value, two scalar strings.
        """
        self._fill_from(queue)
        return self._common_queue.dequeue(name=name)

    def read_up_to(self, queue: Any, num_records: int, name: str | None = None) -> Any:
        """Lets the readers fill the common queue, and takes some records from it.

        Args:
            queue: The queue of file names.
            num_records: The most records to take; fewer come when the queue is closed.
            name: Name of the operation.

        Returns:
            The keys and the values, two vectors of strings. The common queue must have been created with shapes.
        """
        self._fill_from(queue)
        return self._common_queue.dequeue_up_to(num_records, name)

    def _fill_from(self, queue: Any) -> None:
        enqueue_ops = [self._common_queue.enqueue(reader.read(queue)) for reader in self._readers]
        v1.train.add_queue_runner(v1.train.QueueRunner(self._common_queue, enqueue_ops))

    def num_records_produced(self, name: str | None = None) -> Any:
        """Returns the number of records that the readers have read, an int64 scalar."""
        return tf.add_n([reader.num_records_produced() for reader in self._readers], name=name)

    def num_work_units_completed(self, name: str | None = None) -> Any:
        """Returns the number of files that the readers have finished, an int64 scalar."""
        return tf.add_n([reader.num_work_units_completed() for reader in self._readers], name=name)

    def reset(self, name: str | None = None) -> Any:
        """Returns an operation that resets all readers."""
        return tf.group(*[reader.reset() for reader in self._readers], name=name or "reset")

    @property
    def reader_ref(self) -> Any:
        """There is none: it stands for several readers."""
        raise NotImplementedError("A ParallelReader has no single reader_ref; it stands for several readers.")

    @property
    def supports_serialize(self) -> bool:
        """Whether its state can be saved: it cannot, as the common queue's cannot."""
        return False

    def serialize_state(self, name: str | None = None) -> Any:
        """Is not possible, see `supports_serialize`."""
        raise NotImplementedError("The state of a ParallelReader cannot be saved, as that of its queue cannot.")

    def restore_state(self, state: Any, name: str | None = None) -> Any:
        """Is not possible, see `supports_serialize`."""
        raise NotImplementedError("The state of a ParallelReader cannot be restored, as that of its queue cannot.")


def parallel_read(
    data_sources: str | Sequence[str],
    reader_class: Callable[..., Any],
    num_epochs: int | None = None,
    num_readers: int = 4,
    reader_kwargs: Mapping[str, Any] | None = None,
    shuffle: bool = True,
    dtypes: Sequence[tf.DType] | None = None,
    capacity: int = 256,
    min_after_dequeue: int = 128,
    seed: int | None = None,
    scope: str | None = None,
) -> Any:
    """Reads records of files by several readers at once.

    Args:
        data_sources: Paths or glob patterns of the files.
        reader_class: A reader class of `tf.compat.v1`, e.g. `TFRecordReader`.
        num_epochs: How often each file is read; None for ever.
        num_readers: The number of readers.
        reader_kwargs: Keyword arguments of the reader class.
        shuffle: Read the files and their records in random order.
        dtypes: Types of the queue's elements; by default two strings, which is what `ParallelReader` takes.
        capacity: The most records to keep in the common queue.
        min_after_dequeue: The fewest records to draw from when shuffling.
        seed: Seed of the shuffling.
        scope: Name scope of the operations; by default `parallel_read`.

    Returns:
        The key and the value of the next record, two scalar strings.

    Raises:
        ValueError: If there are no files.
    """
    data_files = get_data_files(data_sources)
    with v1.name_scope(scope, "parallel_read"):
        file_names = v1.train.string_input_producer(
            data_files, num_epochs=num_epochs, shuffle=shuffle, seed=seed, name="filenames"
        )
        common_queue = new_common_queue(
            list(dtypes) if dtypes else [tf.string, tf.string], None, shuffle, capacity, min_after_dequeue, seed
        )
        return ParallelReader(reader_class, common_queue, num_readers, reader_kwargs).read(file_names)


def new_common_queue(
    dtypes: Sequence[tf.DType],
    shapes: Sequence[Any] | None,
    shuffle: bool,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None,
) -> Any:
    """Returns a queue to fill by several threads, with a summary of how full it is.

    Args:
        dtypes: Types of an element's tensors.
        shapes: Their shapes; None where they are not all known.
        shuffle: Take elements in random order.
        capacity: The most elements to keep.
        min_after_dequeue: The fewest elements to draw from when shuffling.
        seed: Seed of the shuffling.
    """
    if shuffle:
        queue = tf.queue.RandomShuffleQueue(
            capacity=capacity,
            min_after_dequeue=min_after_dequeue,
            dtypes=dtypes,
            shapes=shapes,
            seed=seed,
            name="common_queue",
        )
    else:
        queue = tf.queue.FIFOQueue(capacity=capacity, dtypes=dtypes, shapes=shapes, name="common_queue")
    fill = tf.cast(queue.size(), tf.float32) * (1.0 / capacity)
    v1.summary.scalar(f"fraction_of_{capacity}_full", fill)
    return queue


def single_pass_read(
    data_sources: str | Sequence[str],
    reader_class: Callable[..., Any],
    reader_kwargs: Mapping[str, Any] | None = None,
    scope: str | None = None,
) -> Any:
    """Reads the records of files once, in order.

    Args:
        data_sources: Paths or glob patterns of the files.
        reader_class: A reader class of `tf.compat.v1`, e.g. `TFRecordReader`.
        reader_kwargs: Keyword arguments of the reader class.
        scope: Name scope of the operations; by default `single_pass_read`.

    Returns:
        The key and the value of the next record, two scalar strings. Past the last one reading them raises
        `tf.errors.OutOfRangeError`.

    Raises:
        ValueError: If there are no files.
    """
    data_files = get_data_files(data_sources)
    with v1.name_scope(scope, "single_pass_read"):
        file_names = v1.train.string_input_producer(
            data_files, num_epochs=1, shuffle=False, capacity=1, name="filenames"
        )
        return reader_class(**(reader_kwargs or {})).read(file_names)


def get_data_files(data_sources: str | Sequence[str]) -> list[str]:
    """Returns the files that paths and glob patterns name; a path without wildcards is taken as it is.

    Raises:
        ValueError: If there are none.
    """
    if isinstance(data_sources, (list, tuple)):
        data_files = [file for source in data_sources for file in get_data_files(source)]
    elif any(wildcard in data_sources for wildcard in "*?["):
        data_files = tf.io.gfile.glob(data_sources)
    else:
        data_files = [str(data_sources)]
    if not data_files:
        raise ValueError(f"No data files found in {data_sources!r}.")
    return data_files
