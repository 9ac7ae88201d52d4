"""The training loop over a `MonitoredTrainingSession`: hooks rather than the arguments of a Supervisor (graph mode)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["train"]


def train(
    train_op: Any,
    logdir: str | os.PathLike[str] | None,
    master: str = "",
    is_chief: bool = True,
    scaffold: Any = None,
    hooks: Sequence[Any] | None = None,
    chief_only_hooks: Sequence[Any] | None = None,
    save_checkpoint_secs: float | None = 600,
    save_summaries_steps: int | None = 100,
    config: Any = None,
    max_wait_secs: int = 7200,
    run_metadata: Any = None,
) -> Any:
    """Runs the steps of a training operation of the default graph until a hook asks to stop or the input ends.

    It starts from the latest checkpoint of `logdir` if there is one, and again so when the session is lost. Where the
    end of training should be saved, `save_checkpoint_secs` does so.

    Args:
        train_op: Makes a step and returns the loss: see `create_train_op`.
        logdir: The folder of checkpoints and event files; None for none of them.
        master: The address of the TensorFlow server; empty for this process.
        is_chief: Whether this is the one worker that initializes, saves and writes summaries.
        scaffold: A `tf.compat.v1.train.Scaffold` with a saver or initializers of your own.
        hooks: `tf.compat.v1.train.SessionRunHook`s, e.g. a `StopAtStepHook`.
        chief_only_hooks: Hooks for the chief alone.
        save_checkpoint_secs: Seconds between two checkpoints; None for no checkpoints.
        save_summaries_steps: Steps between two writings of the summaries; None for no summaries.
        config: A `tf.compat.v1.ConfigProto`.
        max_wait_secs: How many seconds a worker that is not the chief waits for it.
        run_metadata: A `tf.compat.v1.RunMetadata` that takes the metadata of each step.

    Returns:
        The loss of the last step; None if there was none.

    Raises:
        ValueError: If the chief is to save checkpoints or summaries without `logdir`.
    """
    if logdir is None and is_chief:
        asked = {"save_summaries_steps": save_summaries_steps, "save_checkpoint_secs": save_checkpoint_secs}
        for name, value in asked.items():
            if value:
                raise ValueError(
                    f"train: {name}={value} writes files, but logdir is None; give a folder, or {name}=None."
                )
    loss = None
    with tf.compat.v1.train.MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=None if logdir is None else os.fspath(logdir),
        scaffold=scaffold,
        hooks=list(hooks or ()),
        chief_only_hooks=list(chief_only_hooks or ()),
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        # None would ask for the default of every hundred steps along with that of the summaries.
        save_summaries_secs=None,
        config=config,
        max_wait_secs=max_wait_secs,
    ) as session:
        while not session.should_stop():
            loss = session.run(train_op, run_metadata=run_metadata)
    return loss
