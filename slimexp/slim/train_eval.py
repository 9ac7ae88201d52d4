"""Evaluate checkpoints in a `MonitoredSession`, once or whenever there is a new one (graph mode).

`slim.evaluation` has the same under the arguments of TF-Slim's first evaluation functions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.checkpoint_watch import checkpoints_iterator, wait_for_new_checkpoint
from slimexp.slim.evaluation_hooks import StopAfterNEvalsHook, SummaryAtEndHook, get_or_create_eval_step
from slimexp.slim.logs import logger as _log

__all__ = [
    "StopAfterNEvalsHook",
    "SummaryAtEndHook",
    "checkpoints_iterator",
    "evaluate_once",
    "evaluate_repeatedly",
    "get_or_create_eval_step",
    "wait_for_new_checkpoint",
]

v1 = tf.compat.v1


def evaluate_once(
    checkpoint_path: str | os.PathLike[str],
    master: str = "",
    scaffold: Any = None,
    eval_ops: Any = None,
    feed_dict: Mapping[Any, Any] | None = None,
    final_ops: Any = None,
    final_ops_feed_dict: Mapping[Any, Any] | None = None,
    hooks: Sequence[Any] | None = None,
    config: Any = None,
) -> Any:
    """Evaluates the variables of one checkpoint with the default graph.

    The variables are initialized, then those that the saver knows are restored. `eval_ops` run again and again until
    a hook asks to stop or the input ends: give a `StopAfterNEvalsHook`, or an input with an end.

    Args:
        checkpoint_path: The checkpoint, e.g. `model.ckpt-1000`.
        master: The address of the TensorFlow server; empty for this process.
        scaffold: A `tf.compat.v1.train.Scaffold` with a saver or initializers of your own.
        eval_ops: What to run for each batch: an operation, tensor, list or dictionary. None for nothing.
        feed_dict: What to feed to it.
        final_ops: What to run in the end.
        final_ops_feed_dict: What to feed to that.
        hooks: `tf.compat.v1.train.SessionRunHook`s.
        config: A `tf.compat.v1.ConfigProto`.

    Returns:
        The values of `final_ops`, in their structure; None without.

    Raises:
        ValueError: If there is no such checkpoint.
    """
    final_hook = v1.train.FinalOpsHook(final_ops, final_ops_feed_dict)
    evaluation = _Evaluation(master, scaffold, eval_ops, feed_dict, [*(hooks or ()), final_hook], config)
    evaluation.run(os.fspath(checkpoint_path))
    return final_hook.final_ops_values


def evaluate_repeatedly(
    checkpoint_dir: str | os.PathLike[str],
    master: str = "",
    scaffold: Any = None,
    eval_ops: Any = None,
    feed_dict: Mapping[Any, Any] | None = None,
    final_ops: Any = None,
    final_ops_feed_dict: Mapping[Any, Any] | None = None,
    eval_interval_secs: float = 60,
    hooks: Sequence[Any] | None = None,
    config: Any = None,
    max_number_of_evaluations: int | None = None,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Any:
    """Evaluates each new checkpoint of a folder, as `evaluate_once` does, until there are enough or no more come.

    Args:
        checkpoint_dir: The folder in which a training saves checkpoints.
        master: The address of the TensorFlow server; empty for this process.
        scaffold: A `tf.compat.v1.train.Scaffold` with a saver or initializers of your own.
        eval_ops: What to run for each batch: an operation, tensor, list or dictionary. None for nothing.
        feed_dict: What to feed to it.
        final_ops: What to run in the end of each evaluation.
        final_ops_feed_dict: What to feed to that.
        eval_interval_secs: Let at least so many seconds pass from the start of one evaluation to the next.
        hooks: `tf.compat.v1.train.SessionRunHook`s, the same for each evaluation.
        config: A `tf.compat.v1.ConfigProto`.
        max_number_of_evaluations: How many checkpoints to evaluate; None for no end.
        timeout: How many seconds to wait for a new checkpoint; None for any time.
        timeout_fn: Called when that time has run out; True ends the evaluation, else the wait begins again.

    Returns:
        The values of `final_ops` for the last checkpoint; None if there was none.

    Raises:
        ValueError: If `max_number_of_evaluations` is not positive.
    """
    if max_number_of_evaluations is not None and max_number_of_evaluations <= 0:
        raise ValueError(
            f"evaluate_repeatedly: max_number_of_evaluations must be positive or None, got {max_number_of_evaluations}."
        )
    final_hook = v1.train.FinalOpsHook(final_ops, final_ops_feed_dict)
    evaluation = _Evaluation(master, scaffold, eval_ops, feed_dict, [*(hooks or ()), final_hook], config)
    checkpoints = checkpoints_iterator(checkpoint_dir, eval_interval_secs, timeout, timeout_fn)
    for num_evaluations, checkpoint_path in enumerate(checkpoints, 1):
        evaluation.run(checkpoint_path)
        if max_number_of_evaluations is not None and num_evaluations >= max_number_of_evaluations:
            break
    return final_hook.final_ops_values


class _Evaluation:
    """What evaluations of several checkpoints share: the second may add nothing to the graph any more."""

    def __init__(
        self, master: str, scaffold: Any, eval_ops: Any, feed_dict: Any, hooks: Sequence[Any], config: Any
    ) -> None:
        self._checkpoint_path: str | None = None
        self._eval_ops = _with_count(eval_ops, hooks)
        self._feed_dict = feed_dict
        self._hooks = hooks
        own = scaffold or v1.train.Scaffold()

        def restore(scaffold: Any, session: Any) -> None:
            if own.init_fn is not None:
                own.init_fn(session)
            scaffold.saver.restore(session, self._checkpoint_path)

        # Everything gets its initial value first, and then what the saver knows is restored: so what the saver
        # leaves out, as the checkpoint may lack it, is not left without a value.
        restoring = v1.train.Scaffold(
            init_op=own.init_op,
            init_feed_dict=own.init_feed_dict,
            init_fn=restore,
            ready_op=own.ready_op,
            ready_for_local_init_op=own.ready_for_local_init_op,
            local_init_op=own.local_init_op,
            summary_op=own.summary_op,
            saver=own.saver,
        )
        self._creator = v1.train.ChiefSessionCreator(scaffold=restoring, master=master, config=config)

    def run(self, checkpoint_path: str) -> None:
        start = time.monotonic()
        self._checkpoint_path = checkpoint_path
        _log.info("Starting evaluation of %s", checkpoint_path)
        with v1.train.MonitoredSession(session_creator=self._creator, hooks=list(self._hooks)) as session:
            if self._eval_ops is not None:
                while not session.should_stop():
                    session.run(self._eval_ops, self._feed_dict)
        _log.info("Finished evaluation of %s after %.1f s", checkpoint_path, time.monotonic() - start)


def _with_count(eval_ops: Any, hooks: Sequence[Any]) -> Any:
    """Returns the operations with one more that counts the batches, which the hooks get to know."""
    count = get_or_create_eval_step().assign_add(1, read_value=True)
    for hook in hooks:
        if isinstance(hook, StopAfterNEvalsHook):
            hook.set_evals_completed_tensor(count)
    return None if eval_ops is None else {"eval_ops": eval_ops, "evals_completed": count}
