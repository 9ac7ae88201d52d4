"""An iterator over a dataset that ends without holding up the process.

tf.data keeps a model of a pipeline for its autotuner, and a thread that looks at it after 20 ms, then after twice as
long each time, up to a minute. That thread misses the call to end if it wakes before tf.data has finished the call
(TensorFlow 2.21), and then sleeps on to its next turn. An iterator of `tf.data.Dataset` is destroyed when its last
tensor goes, which Python does with its lock held: the whole process stands still meanwhile. Here the last hold on the
iterator is one of TensorFlow's own, and a thread has TensorFlow let go of it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import model_pb2

__all__ = ["DatasetIterator", "elements"]

_numbers = itertools.count()


class DatasetIterator(Iterator[Any]):
    """Iterates over a dataset of dense tensors, on the CPU.

    `close` it, or the process may stand still for up to a minute when it goes.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        """Makes the iterator; its threads start with the first element."""
        self._spec = dataset.element_spec
        specs = tf.nest.flatten(self._spec)
        self._types = {
            "output_types": [spec.dtype for spec in specs],
            "output_shapes": [spec.shape for spec in specs],
        }
        self._in_use = threading.Lock()
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
        with self._in_use:
            if self._handle is None:
                raise ValueError("The iterator is closed.")
            try:
                with tf.device("/CPU:0"):
                    tensors = tf.raw_ops.IteratorGetNext(iterator=self._handle, **self._types)
            except tf.errors.OutOfRangeError:
                tensors = None
            except Exception as error:
                # The calls below this one hold on to the iterator for as long as somebody holds on to the error.
                raise error.with_traceback(None) from error.__cause__
        if tensors is None:
            raise StopIteration
        return tf.nest.pack_sequence_as(self._spec, tensors)

    def model(self) -> model_pb2.ModelProto:
        """Returns tf.data's model of the pipeline; the dataset's options must have autotune enabled."""
        assert self._handle is not None, "The iterator is closed."
        with tf.device("/CPU:0"):
            return model_pb2.ModelProto.FromString(tf.raw_ops.IteratorGetModelProto(iterator=self._handle).numpy())

    def close(self) -> threading.Thread | None:
        """Has the pipeline's threads and memory freed, once a call that is waiting for an element has come back.

        Returns:
            The thread that sees to it, if there was anything to free. There is no need to wait for it.
        """
        if self._handle is None:
            return None
        name = f"slimexp iterator {next(_numbers)}"
        with tf.device("/CPU:0"):
            tf.raw_ops.Stage(values=[self._handle], shared_name=name)
        self._handle = None
        # A daemon: one that waits for good must not keep the process from ending.
        thread = threading.Thread(target=self._let_go, args=(name,), name="slimexp iterator's end", daemon=True)
        thread.start()
        return thread

    def _let_go(self, name: str) -> None:
        with self._in_use, tf.device("/CPU:0"):
            tf.raw_ops.StageClear(dtypes=[tf.resource], shared_name=name)


def elements(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields a dataset's elements, with an iterator that is closed behind the last of them, or when this is."""
    with contextlib.closing(DatasetIterator(dataset)) as iterator:
        yield from iterator
