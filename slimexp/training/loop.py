"""The loop around the step: what is due when, how fast it went, and how a stop is obeyed without losing anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from slimexp.errors import Interrupted, UserError
from slimexp.training.signals import StopSignals
from slimexp.training.trainer import Trainer

__all__ = ["BatchFeed", "fit"]


class BatchFeed(Protocol):
    """An endless iterator over distributed batches that knows what the last one cost."""

    last_wait_secs: float

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...


def fit(
    trainer: Trainer,
    feed: BatchFeed,
    *,
    last_step: int,
    batch_size: int,
    log_every_steps: int,
    save_every_steps: int,
    eval_every_steps: int,
    log: Callable[[int, dict[str, float]], None],
    save: Callable[[int], None],
    evaluate: Callable[[int], None],
    name_examples: Callable[[np.ndarray], str],
    signals: StopSignals,
) -> None:
    """Trains from the trainer's step to `last_step`, then saves and evaluates.

    Args:
        trainer: Makes the steps.
        feed: Its next batch is the one that belongs to the trainer's step.
        last_step: Nothing is done but an evaluation if the trainer is there already.
        batch_size: Over all replicas, for the images per second.
        log_every_steps: `log` is called with the step's number and metrics, also for the first and the last step.
        save_every_steps: `save` is called then, at the end, and before a stop.
        eval_every_steps: `evaluate` is called then and at the end; 0: only at the end.
        log, save, evaluate: Get the number of steps done.
        name_examples: From example numbers, int64 [n], to the file names, for the message about a failed step.
        signals: A stop is obeyed between two steps, after a checkpoint.

    Raises:
        UserError: If the loss or the gradient is no number.
        Interrupted: After a signal.
    """
    step = saved = trainer.step
    first_step = step + 1
    with signals.deferred():
        try:
            clock = _Clock(batch_size)
            while step < last_step:
                batch = next(feed)
                values = _step(trainer, batch, name_examples)
                step += 1
                clock.count(feed.last_wait_secs)
                if step % log_every_steps == 0 or step in (first_step, last_step):
                    numbers = {f"train/{key}": float(value) for key, value in values.items()}
                    log(step, {**numbers, **clock.rates()})
                if step % save_every_steps == 0 or step == last_step:
                    with clock.stopped():
                        save(step)
                    saved = step
                if eval_every_steps and step % eval_every_steps == 0 and step < last_step:
                    with clock.stopped():
                        evaluate(step)
                signals.check()
            evaluate(step)
            signals.check()
        except Interrupted:
            if step > saved:
                save(step)
            raise


def _step(trainer: Trainer, batch: Any, name_examples: Callable[[np.ndarray], str]) -> dict[str, tf.Tensor]:
    try:
        return trainer.train_step(batch)
    except FloatingPointError as error:
        index = np.concatenate([part.numpy() for part in trainer.strategy.experimental_local_results(batch["index"])])
        raise UserError(
            f"step {trainer.step + 1}: the loss or the gradient is no number: {error}. The weights of the step before "
            "are in the last checkpoint. Lower learning_rate.initial, set trainer.clip_gradient_norm, or look at the "
            f"images of this batch:\n{name_examples(index)}"
        ) from error


class _Clock:
    """Times an interval of steps; what is done while it is `stopped` does not count."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._reset()

    def count(self, wait_secs: float) -> None:
        self._steps += 1
        self._wait_secs += wait_secs

    def rates(self) -> dict[str, float]:
        """Returns the interval's rates and starts the next one."""
        secs = max(time.perf_counter() - self._start, 1e-9)
        rates = {
            "train/images_per_sec": self._steps * self._batch_size / secs,
            "train/step_secs": secs / self._steps,
            "train/input_wait_frac": min(self._wait_secs / secs, 1.0),
        }
        self._reset()
        return rates

    def stopped(self) -> _Clock:
        return self

    def __enter__(self) -> None:
        self._stopped_at = time.perf_counter()

    def __exit__(self, *exc_info: object) -> None:
        self._start += time.perf_counter() - self._stopped_at

    def _reset(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0
        self._wait_secs = 0.0
