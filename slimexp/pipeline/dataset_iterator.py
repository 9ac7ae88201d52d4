"""An iterator over a dataset that ends without holding up the process.

tf.data keeps a model of a pipeline for its autotuner, and a thread that looks at it after 20 ms, then after twice as
long each time, up to a minute. Now and then that thread misses the call to end, by waking before tf.data has finished
the call (TensorFlow 2.21), and sleeps on to its next turn; the end of the pipeline waits for it. An iterator of
`tf.data.Dataset` ends when its last tensor goes, which Python does with its lock held: the whole process stood still
meanwhile. Here a thread sees to the end, by a call of TensorFlow's that leaves Python alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import model_pb2

__all__ = ["DatasetIterator", "elements"]


class DatasetIterator(Iterator[Any]):
    """Iterates over a dataset of dense tensors, on the CPU; `close` it in the end."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        """Makes the iterator; its threads start with the first element."""
        self._spec = dataset.element_spec
        specs = tf.nest.flatten(self._spec)
        self._types = {
            "output_types": [spec.dtype for spec in specs],
            "output_shapes": [spec.shape for spec in specs],
        }
        with tf.device("/CPU:0"):
            self._handle: tf.Tensor | None = tf.raw_ops.AnonymousIteratorV3(**self._types)
            tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(dataset), iterator=self._handle)

    def __next__(self) -> Any:
        """Waits for the next element.

        Raises:
            StopIteration: After the last one.
            tf.errors.OpError: If it cannot be made.
            ValueError: If the iterator is closed.
        """
        handle = self._handle  # Another thread may close it meanwhile.
        if handle is None:
            raise ValueError("The iterator is closed.")
        try:
            with tf.device("/CPU:0"):
                tensors = tf.raw_ops.IteratorGetNext(iterator=handle, **self._types)
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        return tf.nest.pack_sequence_as(self._spec, tensors)

    def model(self) -> model_pb2.ModelProto:
        """Returns tf.data's model of the pipeline; the dataset's options must have autotune enabled."""
        assert self._handle is not None, "The iterator is closed."
        with tf.device("/CPU:0"):
            return model_pb2.ModelProto.FromString(tf.raw_ops.IteratorGetModelProto(iterator=self._handle).numpy())

    def close(self) -> threading.Thread | None:
        """Ends the pipeline and frees its memory, once a call that is waiting for an element has come back.

        Returns:
            The thread that sees to it; None if it was closed before. There is no need to wait for the thread. Python
            does so when the process ends, which is a minute later in the worst case.
        """
        if self._handle is None:
            return None
        thread = threading.Thread(target=self._empty, args=(self._handle,), name="slimexp iterator's end")
        self._handle = None
        thread.start()
        return thread

    def _empty(self, handle: tf.Tensor) -> None:
        """Puts an empty dataset in the place of the iterator's own."""

        def empty(spec: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros([0, *(size or 0 for size in spec.shape)] if spec.shape.rank else [0], spec.dtype)

        with tf.device("/CPU:0"):
            nothing = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(empty, self._spec))
            tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(nothing), iterator=handle)


def elements(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields a dataset's elements, with an iterator that is closed behind the last of them, or when this is."""
    options = tf.data.Options()
    options.autotune.enabled = False  # Nobody looks at the model, and without it the end comes at once.
    with contextlib.closing(DatasetIterator(dataset.with_options(options))) as iterator:
        yield from iterator
