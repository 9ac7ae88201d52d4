"""Evaluate checkpoints while a model trains, or one of them, as TF-Slim's scripts do (graph mode).

predictions = model(images, is_training=False)
names_to_values, names_to_updates = slim.metrics.aggregate_metric_map({
    "accuracy": slim.metrics.streaming_accuracy(tf.argmax(predictions, 1), labels),
})
slim.evaluation.evaluation_loop(
    "", checkpoint_dir, logdir, num_evals=100,
    eval_op=list(names_to_updates.values()), final_op=names_to_values)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import train_eval
from slimexp.slim.checkpoint_watch import checkpoints_iterator, wait_for_new_checkpoint
from slimexp.slim.evaluation_hooks import StopAfterNEvalsHook, SummaryAtEndHook, get_or_create_eval_step
from slimexp.slim.train_eval import evaluate_repeatedly
from slimexp.slim.variables import get_variables_to_restore

__all__ = [
    "StopAfterNEvalsHook",
    "SummaryAtEndHook",
    "checkpoints_iterator",
    "evaluate_once",
    "evaluate_repeatedly",
    "evaluation_loop",
    "get_or_create_eval_step",
    "wait_for_new_checkpoint",
]

v1 = tf.compat.v1

# Stands for all summaries of the graph, as None stands for none.
USE_DEFAULT = 0


def evaluate_once(
    master: str,
    checkpoint_path: str | os.PathLike[str],
    logdir: str | os.PathLike[str] | None,
    num_evals: int | None = 1,
    initial_op: Any = None,
    initial_op_feed_dict: Mapping[Any, Any] | None = None,
    eval_op: Any = None,
    eval_op_feed_dict: Mapping[Any, Any] | None = None,
    final_op: Any = None,
    final_op_feed_dict: Mapping[Any, Any] | None = None,
    summary_op: Any = USE_DEFAULT,
    summary_op_feed_dict: Mapping[Any, Any] | None = None,
    variables_to_restore: Sequence[Any] | Mapping[str, Any] | None = None,
    session_config: Any = None,
    hooks: Sequence[Any] | None = None,
) -> Any:
    """Evaluates one checkpoint with the default graph, and writes its summaries.

    Args:
        master: The address of the TensorFlow server; empty for this process.
        checkpoint_path: The checkpoint, e.g. `model.ckpt-1000`.
        logdir: The folder of the event file; None for no summaries.
        num_evals: How many batches to evaluate; None for all until the input ends.
        initial_op: Run before the variables are restored; by default initializes all global variables.
        initial_op_feed_dict: What to feed to it.
        eval_op: Run for each batch: the updates of the metrics. None for nothing.
        eval_op_feed_dict: What to feed to it.
        final_op: Run in the end: the values of the metrics. None for nothing.
        final_op_feed_dict: What to feed to it.
        summary_op: Returns the summaries that are written in the end; by default all of the graph. None for none.
        summary_op_feed_dict: What to feed to it.
        variables_to_restore: The variables, or a dictionary from names in the checkpoint to variables, e.g. for moving
            averages; by default all global variables.
        session_config: A `tf.compat.v1.ConfigProto`.
        hooks: More `tf.compat.v1.train.SessionRunHook`s.

    Returns:
        The values of `final_op`, in its structure; None without.

    Raises:
        ValueError: If there is no such checkpoint, or a `summary_op` comes without `logdir`.
    """
    all_hooks = _hooks(num_evals, logdir, summary_op, summary_op_feed_dict, hooks)
    return train_eval.evaluate_once(
        checkpoint_path,
        master=master,
        scaffold=_scaffold(initial_op, initial_op_feed_dict, None, variables_to_restore),
        eval_ops=eval_op,
        feed_dict=eval_op_feed_dict,
        final_ops=final_op,
        final_ops_feed_dict=final_op_feed_dict,
        hooks=all_hooks,
        config=session_config,
    )


def evaluation_loop(
    master: str,
    checkpoint_dir: str | os.PathLike[str],
    logdir: str | os.PathLike[str] | None,
    num_evals: int | None = 1,
    initial_op: Any = None,
    initial_op_feed_dict: Mapping[Any, Any] | None = None,
    init_fn: Callable[[Any], None] | None = None,
    eval_op: Any = None,
    eval_op_feed_dict: Mapping[Any, Any] | None = None,
    final_op: Any = None,
    final_op_feed_dict: Mapping[Any, Any] | None = None,
    summary_op: Any = USE_DEFAULT,
    summary_op_feed_dict: Mapping[Any, Any] | None = None,
    variables_to_restore: Sequence[Any] | Mapping[str, Any] | None = None,
    eval_interval_secs: float = 60,
    max_number_of_evaluations: int | None = None,
    session_config: Any = None,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    hooks: Sequence[Any] | None = None,
) -> Any:
    """Evaluates each new checkpoint of a folder until there are enough or no more come.

    Args:
        master: The address of the TensorFlow server; empty for this process.
        checkpoint_dir: The folder in which a training saves checkpoints.
        logdir: The folder of the event file; None for no summaries.
        num_evals: How many batches to evaluate; None for all until the input ends.
        initial_op: Run before the variables are restored; by default initializes all global variables.
        initial_op_feed_dict: What to feed to it.
        init_fn: A function of the session, called after `initial_op` and before the variables are restored.
        eval_op: Run for each batch: the updates of the metrics. None for nothing.
        eval_op_feed_dict: What to feed to it.
        final_op: Run in the end of each evaluation: the values of the metrics. None for nothing.
        final_op_feed_dict: What to feed to it.
        summary_op: Returns the summaries that are written in the end; by default all of the graph. None for none.
        summary_op_feed_dict: What to feed to it.
        variables_to_restore: The variables, or a dictionary from names in the checkpoint to variables; by default all
            global variables.
        eval_interval_secs: Let at least so many seconds pass from the start of one evaluation to the next.
        max_number_of_evaluations: How many checkpoints to evaluate; None for no end.
        session_config: A `tf.compat.v1.ConfigProto`.
        timeout: How many seconds to wait for a new checkpoint; None for any time.
        timeout_fn: Called when that time has run out; True ends the loop, else the wait begins again.
        hooks: More `tf.compat.v1.train.SessionRunHook`s.

    Returns:
        The values of `final_op` for the last checkpoint; None if there was none.

    Raises:
        ValueError: If `max_number_of_evaluations` is not positive, or a `summary_op` comes without `logdir`.
    """
    all_hooks = _hooks(num_evals, logdir, summary_op, summary_op_feed_dict, hooks)
    return train_eval.evaluate_repeatedly(
        checkpoint_dir,
        master=master,
        scaffold=_scaffold(initial_op, initial_op_feed_dict, init_fn, variables_to_restore),
        eval_ops=eval_op,
        feed_dict=eval_op_feed_dict,
        final_ops=final_op,
        final_ops_feed_dict=final_op_feed_dict,
        eval_interval_secs=eval_interval_secs,
        hooks=all_hooks,
        config=session_config,
        max_number_of_evaluations=max_number_of_evaluations,
        timeout=timeout,
        timeout_fn=timeout_fn,
    )


def _scaffold(
    initial_op: Any,
    initial_op_feed_dict: Mapping[Any, Any] | None,
    init_fn: Callable[[Any], None] | None,
    variables_to_restore: Sequence[Any] | Mapping[str, Any] | None,
) -> Any:
    if variables_to_restore is None:
        variables_to_restore = get_variables_to_restore()
    return v1.train.Scaffold(
        init_op=initial_op,
        init_feed_dict=initial_op_feed_dict,
        init_fn=None if init_fn is None else lambda _, session: init_fn(session),
        saver=v1.train.Saver(variables_to_restore) if variables_to_restore else None,
    )


def _hooks(
    num_evals: int | None,
    logdir: str | os.PathLike[str] | None,
    summary_op: Any,
    summary_op_feed_dict: Mapping[Any, Any] | None,
    hooks: Sequence[Any] | None,
) -> list[Any]:
    all_hooks: list[Any] = [StopAfterNEvalsHook(num_evals)]
    if logdir is not None and summary_op is not None:
        merged = None if summary_op is USE_DEFAULT else summary_op
        all_hooks.append(SummaryAtEndHook(logdir, summary_op=merged, feed_dict=summary_op_feed_dict))
    elif summary_op is not None and summary_op is not USE_DEFAULT:
        raise ValueError("evaluation: summary_op writes a file, but logdir is None; give a folder.")
    return [*all_hooks, *(hooks or ())]
