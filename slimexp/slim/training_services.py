"""What `slim.learning.train` does beside its steps: saves checkpoints between them, writes summaries in threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from slimexp.slim.logs import logger as _log

__all__ = ["CheckpointSaver", "start_summaries"]

v1 = tf.compat.v1


class CheckpointSaver:
    """Saves checkpoints between two steps, in the thread that makes the steps.

    A thread beside the steps would read the step's number for the file's name, then the variables, which have moved on
    by then; and its last checkpoint could be written after the one of the end, and take its place as the latest.

    Args:
        supervisor: The Supervisor; it has the saver, and the path of the checkpoints.
        sess: The session.
        interval_secs: Seconds from one checkpoint to the next, the first being due at once; 0 or None for none but
            those of `save`.
    """

    def __init__(self, supervisor: Any, sess: Any, interval_secs: float | None) -> None:
        self._supervisor = supervisor
        self._sess = sess
        self._interval_secs = interval_secs
        self._due = time.monotonic()

    def save_if_due(self) -> None:
        """Saves a checkpoint if the last one is old enough."""
        if self._interval_secs and time.monotonic() >= self._due:
            self.save()
            self._due = time.monotonic() + self._interval_secs

    def save(self) -> None:
        """Saves a checkpoint."""
        _log.info("Saving checkpoint to %s", self._supervisor.save_path)
        self._supervisor.saver.save(self._sess, self._supervisor.save_path, global_step=self._supervisor.global_step)


def start_summaries(supervisor: Any, sess: Any, graph: tf.Graph, save_summaries_secs: float | None) -> None:
    """Starts the threads that write summaries; the Supervisor stops them.

    Its own ones work only where eager execution is off for the whole program: threads do not inherit the graph.
    """
    writer = supervisor.summary_writer
    if writer is not None:
        started = v1.SessionLog(status=v1.SessionLog.START)
        writer.add_session_log(started, v1.train.global_step(sess, supervisor.global_step))

    def every(secs: float | None, fn: Callable[[], None]) -> None:
        def in_graph() -> None:
            with graph.as_default():
                fn()

        if secs:
            supervisor.loop(secs, in_graph)

    if writer is not None:
        every(save_summaries_secs, _StepCounter(supervisor, sess).write)
        if supervisor.summary_op is not None:

            def write_summaries() -> None:
                summaries, step = sess.run([supervisor.summary_op, supervisor.global_step])
                writer.add_summary(summaries, step)

            every(save_summaries_secs, write_summaries)


class _StepCounter:
    """Writes the steps per second since it was last called, under the name that TensorBoard users know."""

    def __init__(self, supervisor: Any, sess: Any) -> None:
        self._supervisor = supervisor
        self._sess = sess
        self._last: tuple[float, int] | None = None

    def write(self) -> None:
        now, step = time.monotonic(), int(v1.train.global_step(self._sess, self._supervisor.global_step))
        if self._last is not None and now > self._last[0]:
            rate = (step - self._last[1]) / (now - self._last[0])
            tag = f"{self._supervisor.global_step.op.name}/sec"
            summary = v1.Summary(value=[v1.Summary.Value(tag=tag, simple_value=rate)])
            self._supervisor.summary_writer.add_summary(summary, step)
        self._last = (now, step)
