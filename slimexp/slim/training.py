"""Build the operation that makes one training step: moving averages, gradients, update of the variables.

It is the same in a graph of old and in a replica of a `tf.distribute` strategy. There each replica has the loss of its
own part of the batch, regularization included; the step follows the gradient of the mean over replicas, so that it is
the step that one device would make on the whole batch, apart from batch norm's moments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.collecting import one_of_several_replicas, own_update_ops
from slimexp.slim.global_step import get_or_create_global_step
from slimexp.slim.logs import logger as _log
from slimexp.slim.monitored_loop import train

__all__ = [
    "USE_GLOBAL_STEP",
    "add_gradients_summaries",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "multiply_gradients",
    "multiply_gradients_fn",
    "train",
]

GradsAndVars = list[tuple[Any, Any]]

# Stands for the graph's global step, as None stands for no step to count.
USE_GLOBAL_STEP = 0


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Sequence[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    transform_grads_fn: Callable[[GradsAndVars], GradsAndVars] | None = None,
    summarize_gradients: bool = False,
    gate_gradients: int = tf.compat.v1.train.Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> Any:
    """Returns an operation that makes one step and returns the loss from before it.

    Args:
        total_loss: The loss, a scalar.
        optimizer: A `tf.compat.v1.train.Optimizer`.
        global_step: The variable to count up; by default the graph's global step, created if needed; None for none.
        update_ops: Operations to run before the loss is known; by default those of the collection that this replica
            added (within the open block of `collected`, if there is one).
        variables_to_train: By default all trainable variables.
        transform_grads_fn: Takes and returns pairs of gradient and variable. Under a strategy the gradients are those
            of the whole batch, summed over the replicas, and each replica must make the same of them.
        summarize_gradients: Add a histogram and a norm of each gradient to the graph's summaries.
        gate_gradients: How parallel the computation of gradients may be: `GATE_NONE`, `GATE_OP`, `GATE_GRAPH`.
        aggregation_method: How gradients that meet at one tensor are added: a `tf.AggregationMethod`.
        colocate_gradients_with_ops: Compute gradients on the device of the operation that they belong to.
        check_numerics: Fail the step, before variables change, if the loss is infinite or not a number.

    Returns:
        The loss, a tensor that is there only when the step is done.

    Raises:
        ValueError: If a variable is not trainable, there is none, or the loss depends on none.
    """
    if global_step is USE_GLOBAL_STEP:
        global_step = get_or_create_global_step()
    collected_ops = own_update_ops()
    if update_ops is None:
        update_ops = collected_ops
    elif missing := [op.name for op in collected_ops if not any(op is given for given in update_ops)]:
        _log.warning(
            "create_train_op: update_ops leaves out %d operations of the collection, e.g. %s; moving averages may stay "
            "as they are.",
            len(missing),
            missing[0],
        )
    if update_ops:
        with tf.control_dependencies(list(update_ops)):
            total_loss = tf.identity(total_loss, name="update_barrier")
    variables_to_train = _trainable(variables_to_train)

    several_replicas = one_of_several_replicas()
    loss_share = total_loss
    if several_replicas:
        # The optimizer sums over the replicas; the sum of these shares is the mean.
        loss_share = total_loss / tf.distribute.get_replica_context().num_replicas_in_sync
    grads = optimizer.compute_gradients(
        loss_share,
        variables_to_train,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if all(gradient is None for gradient, _ in grads):
        raise ValueError(
            f"create_train_op: the loss {total_loss.name} depends on none of the {len(grads)} variables to train, "
            f"e.g. {_name(grads[0][1])}."
        )
    if transform_grads_fn is not None:
        grads = _transform_over_replicas(grads, transform_grads_fn) if several_replicas else transform_grads_fn(grads)
    if summarize_gradients:
        with tf.compat.v1.name_scope("summarize_grads"):
            add_gradients_summaries(grads)
    with tf.compat.v1.name_scope("train_op") as scope:
        if check_numerics:
            total_loss = tf.debugging.check_numerics(total_loss, "LossTensor is inf or nan")
    # The loss first: a gradient need not wait for it, and it would see the variables as they are after the step.
    with tf.control_dependencies([total_loss]):
        update = optimizer.apply_gradients(grads, global_step=global_step)
    with tf.compat.v1.name_scope(scope), tf.control_dependencies([update]):
        train_op = tf.identity(total_loss)
    train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
    train_ops.append(train_op)
    return train_op


def multiply_gradients(
    grads_and_vars: Sequence[tuple[Any, Any]], gradient_multipliers: Mapping[Any, Any]
) -> GradsAndVars:
    """Multiplies gradients by a factor of their variable's own.

    Args:
        grads_and_vars: Pairs of gradient and variable.
        gradient_multipliers: Variable, its `ref()` or its full name -> factor. Variables that are not named keep
            their gradient.

    Raises:
        ValueError: If `grads_and_vars` is no list of pairs, `gradient_multipliers` is not a dictionary or empty, or a
            variable with a factor has no gradient.
    """
    if not isinstance(gradient_multipliers, Mapping) or not gradient_multipliers:
        raise ValueError(f"gradient_multipliers must be a dictionary and not empty, got {gradient_multipliers!r}.")
    if not isinstance(grads_and_vars, (list, tuple)) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in grads_and_vars
    ):
        raise ValueError(
            "multiply_gradients takes a list of pairs of gradient and variable, as compute_gradients gives."
        )
    by_name = {_name(key): value for key, value in gradient_multipliers.items()}
    multiplied = []
    for gradient, var in grads_and_vars:
        factor = by_name.pop(_name(var), None)
        if factor is not None:
            if gradient is None:
                raise ValueError(
                    f"gradient_multipliers names {_name(var)!r}, but the loss does not depend on that variable."
                )
            gradient = _map_values(gradient, functools.partial(_times, factor))
        multiplied.append((gradient, var))
    if by_name:
        _log.warning("gradient_multipliers names variables that are not trained: %s.", ", ".join(by_name))
    return multiplied


def multiply_gradients_fn(gradient_multipliers: Mapping[Any, Any]) -> Callable[[GradsAndVars], GradsAndVars]:
    """Returns `multiply_gradients` as a function of the pairs alone."""
    return lambda grads_and_vars: multiply_gradients(grads_and_vars, gradient_multipliers)


def clip_gradient_norms(gradients_to_variables: Sequence[tuple[Any, Any]], max_norm: float) -> GradsAndVars:
    """Scales down each gradient, on its own, whose l2 norm exceeds `max_norm`.

    Args:
        gradients_to_variables: Pairs of gradient and variable; a gradient of None stays.
        max_norm: The greatest norm that a gradient may have.
    """
    return [
        (
            None if gradient is None else _map_values(gradient, lambda g: tf.clip_by_norm(g, max_norm)),
            var,
        )
        for gradient, var in gradients_to_variables
    ]


def clip_gradient_norms_fn(max_norm: float) -> Callable[[GradsAndVars], GradsAndVars]:
    """Returns `clip_gradient_norms` as a function of the pairs alone."""
    return lambda grads_and_vars: clip_gradient_norms(grads_and_vars, max_norm)


def add_gradients_summaries(grads_and_vars: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Adds a histogram and a global norm of each gradient to the graph's summaries.

    Args:
        grads_and_vars: Pairs of gradient and variable; those without a gradient are left out.

    Returns:
        The summaries.
    """
    summaries = []
    for gradient, var in grads_and_vars:
        if gradient is None:
            _log.info("Variable %s has no gradient to summarize.", _name(var))
            continue
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        summaries.append(tf.compat.v1.summary.histogram(_name(var) + "/gradient", values))
        norm = tf.linalg.global_norm([values])
        summaries.append(tf.compat.v1.summary.scalar(_name(var) + "/gradient_norm", norm))
    return summaries


def _trainable(variables: Sequence[Any] | None) -> list[Any]:
    trainable = tf.compat.v1.trainable_variables()
    if variables is None:
        variables = trainable
    for var in variables:
        if not any(var is other for other in trainable):
            raise ValueError(
                f"create_train_op: variables_to_train has {_name(var)!r}, which is not in this graph's collection of "
                "trainable variables."
            )
    if not variables:
        raise ValueError("create_train_op: there are no variables to train.")
    return list(variables)


def _transform_over_replicas(
    grads: GradsAndVars, transform_grads_fn: Callable[[GradsAndVars], GradsAndVars]
) -> GradsAndVars:
    # What is done to a gradient (clipping!) must be done to the sum over replicas. The optimizer sums again what
    # comes out, which is the same in each replica: hence the division.
    context = tf.distribute.get_replica_context()
    present = [(tf.convert_to_tensor(g), v) for g, v in grads if g is not None]
    summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [g for g, _ in present])
    pairs = transform_grads_fn([(g, v) for g, (_, v) in zip(summed, present, strict=True)])
    num_replicas = context.num_replicas_in_sync
    return [(None if g is None else _map_values(g, lambda x: x / num_replicas), v) for g, v in pairs]


def _times(factor: Any, values: Any) -> Any:
    return values * tf.cast(factor, values.dtype)


def _map_values(gradient: Any, fn: Callable[[Any], Any]) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(fn(gradient.values), gradient.indices, gradient.dense_shape)
    return fn(gradient)


def _name(var: Any) -> str:
    if isinstance(var, str):
        return var
    return (var.deref() if hasattr(var, "deref") else var).name.split(":")[0]
