"""Dynamic loss scaling: keeps the gradients of float16 from vanishing, and leaves out the steps where they overflow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["TOO_SMALL", "LossScale", "is_loss_scale"]

# As tf.keras.mixed_precision.LossScaleOptimizer begins and goes on, after section 3.2 of arXiv 1710.03740.
_INITIAL = 2.0**15
_STEPS_TO_DOUBLE = 2000

# In checkpoints they lie below the step that they belong to, as an optimizer's slots below their variable.
_NAMES = ("global_step/loss_scale", "global_step/good_steps")

TOO_SMALL = "the gradient overflows float16 even with a loss scale of 1"


def is_loss_scale(name: str) -> bool:
    """Tells whether a checkpoint's entry is the state of a loss scale."""
    return name in _NAMES


class LossScale:
    """A factor of the loss that is halved when a gradient overflows, and doubled after 2000 steps without.

    A step with a gradient that is not finite changes no variable but this state and the global step: not the weights,
    the slots, batch norm's statistics or moving averages. The step counts, as it has used its batch.

    Create it under the scope of the strategy.

    Args:
        stops: Whether a scale that would fall below 1 fails the step (InvalidArgumentError with `TOO_SMALL`). It stays
            at 1 otherwise.
    """

    def __init__(self, *, stops: bool) -> None:
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self._stops = stops
        self._scale = tf.Variable(_INITIAL, trainable=False, name="loss_scale", aggregation=first)
        self._good_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="good_steps", aggregation=first)

    def value(self) -> tf.Tensor:
        """Returns the factor, float32 []."""
        return self._scale.read_value()

    def named(self) -> dict[str, Any]:
        """Returns the state by its names in a checkpoint."""
        return dict(zip(_NAMES, (self._scale, self._good_steps), strict=True))

    def around(
        self, optimizer: Any, *, is_finite: Callable[[], tf.Tensor], forward_variables: Sequence[Any]
    ) -> _ScaledOptimizer:
        """Returns an optimizer for the step that a replica is about to build.

        Args:
            optimizer: Makes the steps that are made.
            is_finite: Called once the gradients are known: whether they are finite, bool [], the same in each replica.
            forward_variables: What the network's forward pass changes by itself; their values of this moment come back
                if the step is left out.
        """
        return _ScaledOptimizer(self, optimizer, is_finite, forward_variables)

    def move(self, is_finite: tf.Tensor) -> tf.Tensor:
        """Halves or doubles the factor where that is due; call it across replicas.

        Returns:
            The new factor, once it is known to be large enough.
        """
        scale, good_steps = self._scale.read_value(), self._good_steps.read_value() + 1
        doubles = is_finite & (good_steps >= _STEPS_TO_DOUBLE) & tf.math.is_finite(2.0 * scale)
        moved = scale * tf.where(doubles, 2.0, tf.where(is_finite, 1.0, 0.5))
        checks = [tf.debugging.assert_greater_equal(moved, 1.0, message=TOO_SMALL)] if self._stops else []
        with tf.control_dependencies(checks):
            moved = tf.maximum(moved, 1.0)
            self._scale.assign(moved)
            self._good_steps.assign(tf.where(doubles | ~is_finite, tf.zeros_like(good_steps), good_steps))
        return moved


class _ScaledOptimizer:
    """What `slim.training.create_train_op` asks of an optimizer."""

    def __init__(
        self,
        loss_scale: LossScale,
        optimizer: Any,
        is_finite: Callable[[], tf.Tensor],
        forward_variables: Sequence[Any],
    ) -> None:
        self._loss_scale = loss_scale
        self._optimizer = optimizer
        self._is_finite = is_finite
        self._forward_variables = list(forward_variables)
        self._before = [tf.convert_to_tensor(variable) for variable in self._forward_variables]

    def compute_gradients(self, loss: tf.Tensor, variables: Sequence[Any], **kwargs: Any) -> list[tuple[Any, Any]]:
        scale = self._loss_scale.value()
        pairs = self._optimizer.compute_gradients(loss * scale, variables, **kwargs)
        return [(None if gradient is None else _divided(gradient, scale), variable) for gradient, variable in pairs]

    def apply_gradients(self, pairs: Sequence[tuple[Any, Any]], global_step: Any) -> tf.Tensor:
        present = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        variables = [variable for _, variable in present]
        return tf.distribute.get_replica_context().merge_call(
            functools.partial(self._make_or_leave_out, variables, global_step),
            args=(self._is_finite(), [gradient for gradient, _ in present], self._before),
        )

    def _make_or_leave_out(
        self, variables: Sequence[Any], global_step: Any, strategy: Any, is_finite: Any, gradients: Any, before: Any
    ) -> tf.Tensor:
        """Makes the step across replicas, where alone there may be a condition around what they do together."""

        def make(gradients: Sequence[Any]) -> None:
            self._optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))

        def leave_out(before: Sequence[Any]) -> None:
            for variable, value in zip(self._forward_variables, before, strict=True):
                variable.assign(value)

        def in_each_replica(fn: Callable[..., None], values: Any) -> Callable[[], tf.Tensor]:
            def branch() -> tf.Tensor:
                strategy.extended.call_for_each_replica(fn, args=(values,))
                return tf.zeros([])

            return branch

        (is_finite, *_) = strategy.experimental_local_results(is_finite)
        done = tf.cond(is_finite, in_each_replica(make, gradients), in_each_replica(leave_out, before))
        with tf.control_dependencies([done]):
            moved = self._loss_scale.move(is_finite)
        with tf.control_dependencies([moved]):  # A step that fails does not count.
            global_step.assign_add(1)
        return moved


def _divided(gradient: Any, scale: tf.Tensor) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / scale, gradient.indices, gradient.dense_shape)
    return gradient / scale
