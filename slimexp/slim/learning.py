"""Train as a TF-Slim script does (graph mode).

    train_op = slim.learning.create_train_op(slim.losses.get_total_loss(), optimizer)
    slim.learning.train(train_op, logdir, number_of_steps=1000)

`create_train_op` makes the operation of one step, which works under a strategy as well; `train` runs it in a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import training
from slimexp.slim.training import (
    USE_GLOBAL_STEP,
    GradsAndVars,
    add_gradients_summaries,
    clip_gradient_norms,
    multiply_gradients,
)
from slimexp.slim.training_loop import train, train_step

__all__ = [
    "add_gradients_summaries",
    "clip_gradient_norms",
    "create_train_op",
    "multiply_gradients",
    "train",
    "train_step",
]


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Sequence[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = tf.compat.v1.train.Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    check_numerics: bool = True,
) -> Any:
    """Returns an operation that makes one training step and returns the loss from before it.

    Args:
        total_loss: The loss, a scalar.
        optimizer: A `tf.compat.v1.train.Optimizer`.
        global_step: The variable to count up; by default the graph's global step; None for none. A list here is taken
            for `update_ops`, as in scripts that give these third.
        update_ops: Operations to run before the loss is known; by default the collection of update operations.
        variables_to_train: By default all trainable variables.
        clip_gradient_norm: Scale down each gradient whose l2 norm exceeds it; 0 for no limit.
        summarize_gradients: Add a histogram and a norm of each gradient to the graph's summaries.
        gate_gradients: How parallel the computation of gradients may be.
        aggregation_method: How gradients that meet at one tensor are added.
        colocate_gradients_with_ops: Compute gradients on the device of the operation that they belong to.
        gradient_multipliers: Factors by variable or full name, applied before clipping.
        check_numerics: Fail the step, before variables change, if the loss is infinite or not a number.

    Returns:
        The loss, a tensor that is there only when the step is done.

    Raises:
        ValueError: As `training.create_train_op` and `multiply_gradients` do.
    """
    if isinstance(global_step, (list, tuple)):
        if update_ops is not None:
            raise ValueError("create_train_op: update_ops came twice, by name and in the place of global_step.")
        global_step, update_ops = USE_GLOBAL_STEP, global_step

    def transform(grads_and_vars: GradsAndVars) -> GradsAndVars:
        if gradient_multipliers:
            grads_and_vars = multiply_gradients(grads_and_vars, gradient_multipliers)
        if clip_gradient_norm > 0:
            grads_and_vars = clip_gradient_norms(grads_and_vars, clip_gradient_norm)
        return grads_and_vars

    return training.create_train_op(
        total_loss,
        optimizer,
        global_step=global_step,
        update_ops=update_ops,
        variables_to_train=variables_to_train,
        transform_grads_fn=transform if gradient_multipliers or clip_gradient_norm > 0 else None,
        summarize_gradients=summarize_gradients,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
        check_numerics=check_numerics,
    )
