"""Run the queue runners of a graph for a block of code (graph mode).

with tf.compat.v1.Session() as session, slim.queues.QueueRunners(session):
    session.run(images)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

__all__ = ["NestedQueueRunnerError", "QueueRunners"]

_running = threading.Lock()


class NestedQueueRunnerError(Exception):
    """The queue runners were to be started while they run already."""


@contextlib.contextmanager
def QueueRunners(session: Any) -> Iterator[None]:  # noqa: N802, the name that scripts use
    """Starts the queue runners of a session's graph, and stops them after the block.

    Args:
        session: The session.

    Raises:
        NestedQueueRunnerError: If another such block is open, in this thread or another.
    """
    if not _running.acquire(blocking=False):
        raise NestedQueueRunnerError(
            "QueueRunners: the queue runners are running already, in a block around this one or in another thread. "
            "One block is enough for all queues of the graph."
        )
    try:
        coord = tf.train.Coordinator()
        with session.graph.as_default():
            threads = tf.compat.v1.train.start_queue_runners(session, coord, daemon=True)
        try:
            yield
        finally:
            # Also when the block fails: else its threads would outlive it.
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=120)
    finally:
        _running.release()
