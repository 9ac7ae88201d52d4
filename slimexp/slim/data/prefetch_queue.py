"""A queue that holds batches ready.

    images, labels = tf.train.batch([image, label], batch_size=32, num_threads=4)
    images, labels = slim.prefetch_queue.prefetch_queue([images, labels], capacity=2).dequeue()

A step then waits for no batch to be put together, as long as batches are made as fast as steps are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["prefetch_queue"]


def prefetch_queue(
    tensors: Sequence[Any] | Mapping[str, Any],
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Creates a queue of tensors, filled by a queue runner of the graph, and a summary of how full it is.

    Args:
        tensors: A list of tensors, or a dictionary, of which the dequeued elements then are, too.
        capacity: The most elements to keep.
        num_threads: The number of threads that fill it.
        dynamic_pad: Allow dimensions of unknown size.
        shared_name: The name under which several sessions of a cluster share the queue.
        name: Name scope of the operations.

    Returns:
        The queue: call its `dequeue`.

    Raises:
        ValueError: If a tensor's shape is not fully known and `dynamic_pad` is off.
    """
    names = sorted(tensors) if isinstance(tensors, Mapping) else None
    listed = [tensors[n] for n in names] if isinstance(tensors, Mapping) and names else list(tensors)
    v1 = tf.compat.v1
    with v1.name_scope(name, "prefetch_queue", listed):
        queue_class = tf.queue.PaddingFIFOQueue if dynamic_pad else tf.queue.FIFOQueue
        queue = queue_class(
            capacity=capacity,
            dtypes=[t.dtype for t in listed],
            shapes=[t.shape for t in listed],
            names=names,
            shared_name=shared_name,
        )
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(tensors)] * num_threads))
        fill = tf.cast(queue.size(), tf.float32) * (1.0 / capacity)
        v1.summary.scalar(f"fraction_of_{capacity}_full", fill)
        return queue
