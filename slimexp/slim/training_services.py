"""What runs beside the steps of `slim.learning.train`: threads that save checkpoints and write summaries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["start_services"]

v1 = tf.compat.v1


def start_services(
    supervisor: Any,
    sess: Any,
    graph: tf.Graph,
    save_summaries_secs: float | None,
    save_interval_secs: float | None,
) -> None:
    """Starts the threads that save checkpoints and write summaries; the Supervisor stops them.

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

    def save() -> None:
        supervisor.saver.save(sess, supervisor.save_path, global_step=supervisor.global_step)

    if supervisor.saver is not None:
        every(save_interval_secs, save)


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
