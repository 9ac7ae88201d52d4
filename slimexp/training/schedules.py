"""Learning-rate schedules: functions from the global step to the rate, built on `tf.compat.v1.train`'s.

Epochs are counted with the global batch: `steps_per_epoch = num_examples / batch_size`, whatever the number of devices.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf

__all__ = ["Cosine", "Exponential", "Fixed", "Piecewise", "Polynomial", "Schedule"]

_train = tf.compat.v1.train


class Schedule(abc.ABC):
    """A learning rate over the steps, with a linear rise over the first `warmup_steps`.

    Args:
        initial: The rate at step 0 (after the warm-up, where there is one).
        warmup_steps: The rate at step s < warmup_steps is scaled by (s + 1) / warmup_steps. The schedule itself counts
            from step 0 all the same.
        steps_per_epoch: Steps, perhaps with a fraction, that make an epoch.
        total_steps: The run's last step.
    """

    def __init__(
        self, *, initial: float, warmup_steps: int = 0, steps_per_epoch: float = 1.0, total_steps: int = 1
    ) -> None:
        self.initial = initial
        self.warmup_steps = warmup_steps
        self.steps_per_epoch = steps_per_epoch
        self.total_steps = total_steps

    def __call__(self, global_step: tf.Tensor) -> tf.Tensor:
        """Returns the rate at `global_step`, int64 [], as float32 []. Works eagerly and in a graph."""
        rate = tf.cast(self.rate(global_step), tf.float32)
        if self.warmup_steps:
            risen = tf.cast(global_step + 1, tf.float32) / self.warmup_steps
            rate = rate * tf.minimum(risen, 1.0)
        return rate

    @abc.abstractmethod
    def rate(self, global_step: tf.Tensor) -> tf.Tensor:
        """Returns the rate without the warm-up."""

    def describe(self) -> str:
        """Returns one line that says what was made of the settings, in steps."""
        steps = sorted({0, self.total_steps // 2, max(self.total_steps - 1, 0)})
        values = ", ".join(f"{float(self(tf.constant(step, tf.int64))):.3g} at step {step}" for step in steps)
        return f"{type(self).__name__.lower()}: {values}"

    def _epochs_to_steps(self, epochs: float) -> int:
        # Never below one step: on small data the quotient rounds to 0, and a decay over 0 steps is no number.
        return max(int(epochs * self.steps_per_epoch), 1)


class Fixed(Schedule):
    """The same rate throughout."""

    def rate(self, global_step: tf.Tensor) -> tf.Tensor:
        return tf.constant(self.initial)


class Exponential(Schedule):
    """`initial * decay_factor ** (step / decay_steps)`, in whole powers if `staircase`."""

    def __init__(
        self, *, decay_factor: float, epochs_per_decay: float, staircase: bool = True, **common: float
    ) -> None:
        super().__init__(**common)  # type: ignore[arg-type]  # The common arguments, handed on as they came.
        self.decay_factor = decay_factor
        self.staircase = staircase
        self.decay_steps = self._epochs_to_steps(epochs_per_decay)

    def rate(self, global_step: tf.Tensor) -> tf.Tensor:
        return _value(
            _train.exponential_decay(
                self.initial, global_step, self.decay_steps, self.decay_factor, staircase=self.staircase
            )
        )

    def describe(self) -> str:
        return f"{super().describe()}; times {self.decay_factor:g} every {self.decay_steps} steps"


class Polynomial(Schedule):
    """From `initial` to `end` over the run: `end + (initial - end) * (1 - step / total_steps) ** power`."""

    def __init__(self, *, end: float, power: float = 1.0, **common: float) -> None:
        super().__init__(**common)  # type: ignore[arg-type]  # As in Exponential.
        self.end = end
        self.power = power

    def rate(self, global_step: tf.Tensor) -> tf.Tensor:
        return _value(_train.polynomial_decay(self.initial, global_step, self.total_steps, self.end, power=self.power))


class Cosine(Schedule):
    """Half a cosine from `initial` to `end` over the run (arXiv 1608.03983, without restarts)."""

    def __init__(self, *, end: float = 0.0, **common: float) -> None:
        super().__init__(**common)  # type: ignore[arg-type]  # As in Exponential.
        self.end = end

    def rate(self, global_step: tf.Tensor) -> tf.Tensor:
        return _value(_train.cosine_decay(self.initial, global_step, self.total_steps, alpha=self.end / self.initial))


class Piecewise(Schedule):
    """`initial`, multiplied by `decay_factor` at each of `boundaries_epochs`."""

    def __init__(self, *, decay_factor: float, boundaries_epochs: Sequence[float], **common: float) -> None:
        super().__init__(**common)  # type: ignore[arg-type]  # As in Exponential.
        self.boundaries = sorted({self._epochs_to_steps(epochs) for epochs in boundaries_epochs})
        self.values = [self.initial * decay_factor**n for n in range(len(self.boundaries) + 1)]

    def rate(self, global_step: tf.Tensor) -> tf.Tensor:
        # TensorFlow's piecewise_constant keeps the old value at the boundary itself; here that step has the new one.
        boundaries = [boundary - 1 for boundary in self.boundaries]
        return _value(_train.piecewise_constant(tf.cast(global_step, tf.int64), boundaries, self.values))

    def describe(self) -> str:
        return f"{super().describe()}; new values at steps {', '.join(map(str, self.boundaries))}"


def _value(decayed: object) -> tf.Tensor:
    """The v1 schedules return a tensor in a graph and a function eagerly."""
    return decayed() if callable(decayed) else decayed
