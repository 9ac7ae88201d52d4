"""Hooks of an evaluation's session: stop after so many batches, write summaries when done (graph mode)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from slimexp.slim.logs import logger as _log

__all__ = ["StopAfterNEvalsHook", "SummaryAtEndHook", "get_or_create_eval_step"]

v1 = tf.compat.v1

_EVAL_STEP = "eval_step"


def get_or_create_eval_step() -> Any:
    """Returns the counter of evaluated batches, creating it if needed: an int64 scalar, a local variable.

    Raises:
        ValueError: If the graph has several.
    """
    graph = v1.get_default_graph()
    found = graph.get_collection(_EVAL_STEP)
    if len(found) > 1:
        raise ValueError(f"The collection {_EVAL_STEP!r} must hold one counter, but it holds {len(found)}.")
    if found:
        return found[0]
    # Outside of the scopes that happen to be open, so that there is one per graph.
    with (
        graph.as_default(),
        v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE, auxiliary_name_scope=False),
    ):
        return v1.get_variable(
            _EVAL_STEP,
            shape=[],
            dtype=tf.int64,
            initializer=v1.zeros_initializer(),
            trainable=False,
            collections=[v1.GraphKeys.LOCAL_VARIABLES, _EVAL_STEP],
        )


class StopAfterNEvalsHook(tf.compat.v1.train.SessionRunHook):
    """Ends an evaluation after a number of batches.

    The evaluation functions of slim count the batches for it; with a `MonitoredSession` of your own, run
    `get_or_create_eval_step().assign_add(1)` with each batch.

    Args:
        num_evals: How many batches; None for all that there are.
        log_progress: Log how far the evaluation is, about ten times.
    """

    def __init__(self, num_evals: int | None, log_progress: bool = True) -> None:
        self._num_evals = num_evals
        self._log_every = max(1, num_evals // 10) if num_evals and log_progress else 0
        self._evals_completed: Any = None

    def set_evals_completed_tensor(self, updated_eval_step: Any) -> None:
        """Sets the tensor that counts a batch and returns how many were evaluated."""
        self._evals_completed = updated_eval_step

    def begin(self) -> None:
        if self._evals_completed is None:
            self._evals_completed = tf.identity(get_or_create_eval_step())

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs({"evals_completed": self._evals_completed})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        completed = int(run_values.results["evals_completed"])
        if self._log_every and completed % self._log_every == 0:
            _log.info("Evaluation [%d/%d]", completed, self._num_evals)
        if self._num_evals is not None and completed >= self._num_evals:
            run_context.request_stop()


class SummaryAtEndHook(tf.compat.v1.train.SessionRunHook):
    """Writes summaries, and the graph, when an evaluation is over.

    Args:
        log_dir: The folder of the event file.
        summary_writer: A writer to use instead.
        summary_op: Returns the summaries; by default all of the graph. Nothing but the graph is written if there are
            none.
        feed_dict: What to feed to it.

    Raises:
        ValueError: If there is neither folder nor writer.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        summary_writer: Any = None,
        summary_op: Any = None,
        feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if log_dir is None and summary_writer is None:
            raise ValueError("SummaryAtEndHook: give log_dir or summary_writer, so that there is a place to write to.")
        self._log_dir = log_dir
        self._summary_writer = summary_writer
        self._summary_op = summary_op
        self._merge_all = summary_op is None
        self._merged_in: tf.Graph | None = None
        self._feed_dict = feed_dict
        self._global_step: Any = None

    def begin(self) -> None:
        graph = v1.get_default_graph()
        # Once per graph: the first session closes it for additions, and the hook may see several of each.
        if self._merge_all and graph is not self._merged_in:
            self._summary_op, self._merged_in = v1.summary.merge_all(), graph
        self._global_step = v1.train.get_or_create_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._log_dir is not None:
            # One writer per folder, which repeated evaluations share.
            self._summary_writer = v1.summary.FileWriterCache.get(os.fspath(self._log_dir))
        self._summary_writer.add_graph(session.graph)

    def end(self, session: Any) -> None:
        if self._summary_op is not None:
            step = v1.train.global_step(session, self._global_step)
            self._summary_writer.add_summary(session.run(self._summary_op, self._feed_dict), step)
        self._summary_writer.flush()
