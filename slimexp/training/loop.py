"""The loop around the step: what is due when, and how a stop is obeyed without losing anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from slimexp.errors import Interrupted, UserError
from slimexp.training.signals import StopSignals
from slimexp.training.trainer import Trainer

__all__ = ["BatchFeed", "Meter", "fit"]


class BatchFeed(Protocol):
    """An endless iterator over distributed batches that knows what the last one cost; see `Feed`."""

    last_wait_secs: float

    def __next__(self) -> Any: ...

    def paused(self) -> AbstractContextManager[None]: ...


class Meter(Protocol):
    """Measures the speed; what happens while it is paused does not count."""

    def advance(self, step: int, wait_secs: float) -> None: ...

    def paused(self) -> AbstractContextManager[None]: ...


def fit(
    trainer: Trainer,
    feed: BatchFeed,
    *,
    last_step: int,
    log_every_steps: int,
    save_every_steps: int,
    eval_every_steps: int,
    meter: Meter,
    log: Callable[[int, dict[str, float]], None],
    save: Callable[[int], None],
    evaluate: Callable[[int], None],
    name_examples: Callable[[np.ndarray], str],
    signals: StopSignals,
    should_end: Callable[[], bool] = lambda: False,
) -> None:
    """Trains from the trainer's step to `last_step`, or until it should end, then saves and evaluates.

    Args:
        trainer: Makes the steps.
        feed: Its next batch is the one that belongs to the trainer's step.
        last_step: Nothing is done but an evaluation if the trainer is there already.
        log_every_steps: `log` is called then with the step's values, also for the first and the last step.
        save_every_steps: `save` is called then, at the end, and before a stop.
        eval_every_steps: `evaluate` is called then and at the end; 0: only at the end.
        meter: Is told of every step and of the seconds that it waited for its batch.
        log, save, evaluate: Get the number of steps done.
        name_examples: From example numbers, int64 [n], to the file names, for the message about a failed step.
        signals: A stop is obeyed between two steps, after a checkpoint.
        should_end: Asked before the first step and after each evaluation whether training is to end before `last_step`.

    Raises:
        UserError: If the loss or the gradient is no number, an image cannot be read, or an evaluation fails.
        Interrupted: After a signal.
    """
    step = saved = trainer.step
    first_step, evaluated = step + 1, -1
    ends = should_end()
    with signals.deferred():
        try:
            while step < last_step and not ends:
                batch = next(feed)
                values = _step(trainer, batch, name_examples)
                step += 1
                meter.advance(step, feed.last_wait_secs)
                if step % log_every_steps == 0 or step in (first_step, last_step):
                    log(step, {key: float(value) for key, value in values.items()})
                if step % save_every_steps == 0 or step == last_step:
                    with meter.paused(), feed.paused():
                        save(step)
                    saved = step
                if eval_every_steps and step % eval_every_steps == 0 and step < last_step:
                    with meter.paused(), feed.paused():
                        evaluate(step)
                    evaluated, ends = step, should_end()
                signals.check()
            with meter.paused(), feed.paused():
                if step > saved:
                    save(step)
                    saved = step
                if step > evaluated:
                    evaluate(step)
            signals.check()
        except (Interrupted, UserError) as error:
            # The steps made so far are sound, whatever stopped them: a signal, an image, an evaluation. After a step
            # that was no number the moving averages may not be.
            if step > saved and not isinstance(error, _NoNumberError):
                save(step)
            raise


class _NoNumberError(UserError):
    """The loss or the gradient is no number."""


def _step(trainer: Trainer, batch: Any, name_examples: Callable[[np.ndarray], str]) -> dict[str, tf.Tensor]:
    try:
        return trainer.train_step(batch)
    except FloatingPointError as error:
        index = np.concatenate([part.numpy() for part in trainer.strategy.experimental_local_results(batch["index"])])
        raise _NoNumberError(
            f"step {trainer.step + 1}: the loss or the gradient is no number: {error}. The weights of the step before "
            "are in the last checkpoint. Lower learning_rate.initial, set trainer.clip_gradient_norm, or look at the "
            f"images of this batch:\n{name_examples(index)}"
        ) from error
