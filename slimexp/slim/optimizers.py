"""Make a training operation of a loss in one call, and clip gradients by how long they have been so far.

`learning.create_train_op` is the way of TF-Slim's training loop; `optimize_loss` does more in one place: it makes the
optimizer from its name, lets the learning rate decay, adds noise to gradients and writes summaries.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.global_step import assert_global_step, get_global_step

__all__ = ["OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES", "adaptive_clipping_fn", "optimize_loss"]

_train = tf.compat.v1.train
_summary = tf.compat.v1.summary
_GradsAndVars = list[tuple[Any, Any]]

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Any]] = {
    "Adagrad": _train.AdagradOptimizer,
    "Adam": _train.AdamOptimizer,
    "Ftrl": _train.FtrlOptimizer,
    "Momentum": lambda learning_rate: _train.MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": _train.RMSPropOptimizer,
    "SGD": _train.GradientDescentOptimizer,
}

OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm"]


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    clip_gradients: float | Callable[[_GradsAndVars], _GradsAndVars] | None = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: Any = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Any:
    """Makes an operation that takes one training step. For graphs of old, not for `tf.function`.

    Args:
        loss: The loss, a scalar.
        global_step: The step counter; None takes the graph's, if it has one.
        learning_rate: A float (kept in a variable, `OptimizeLoss/learning_rate`), a scalar tensor, or None where the
            optimizer has its own.
        optimizer: A name in `OPTIMIZER_CLS_NAMES`; an optimizer class of `tf.compat.v1.train`; a function of the
            learning rate (of nothing, if that is None) that returns an optimizer; or an optimizer.
        gradient_noise_scale: Scale of the noise that is added to gradients; None adds none.
        gradient_multipliers: Factors for gradients, by variable or by variable name with `:0`.
        clip_gradients: The greatest global norm of all gradients, or a function that turns a list of pairs (gradient,
            variable) into another, such as `adaptive_clipping_fn()`.
        learning_rate_decay_fn: A function of learning rate and global step that returns the rate to use.
        update_ops: Operations to run before the loss; None takes the collection of update operations.
        variables: The variables to train; None takes all trainable ones.
        name: Name of the variable scope; by default `OptimizeLoss`, made unique.
        summaries: What to write summaries of, out of `OPTIMIZER_SUMMARIES`; None means loss, learning rate (where it
            decays) and global norm of the gradients.
        colocate_gradients_with_ops: Place gradients on the devices of their operations.
        increment_global_step: Count the step; else another call counts it.

    Returns:
        The loss, a tensor whose evaluation takes a step.

    Raises:
        ValueError: If an argument does not fit.
    """
    loss = tf.convert_to_tensor(loss)
    if loss.shape.rank not in (0, None):
        raise ValueError(f"optimize_loss: the loss must be a scalar, not a tensor of shape {loss.shape}.")
    if global_step is None:
        global_step = get_global_step()
    else:
        assert_global_step(global_step)
    if summaries is None:
        summaries = ["loss", "learning_rate", "global_gradient_norm"]
    _require_known("summaries", summaries, OPTIMIZER_SUMMARIES)
    with tf.compat.v1.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        if update_ops is None:
            update_ops = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        if update_ops:
            with tf.control_dependencies(list(update_ops)):
                loss = tf.identity(loss)
        rate = _rate(learning_rate)
        if rate is not None and learning_rate_decay_fn is not None:
            if global_step is None:
                raise ValueError("optimize_loss: learning_rate_decay_fn needs a global step: create one, or pass it.")
            rate = learning_rate_decay_fn(rate, global_step)
            if "learning_rate" in summaries:
                _summary.scalar("learning_rate", rate)
        opt = _optimizer(optimizer, rate)
        pairs = opt.compute_gradients(
            loss,
            tf.compat.v1.trainable_variables() if variables is None else variables,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gradient_noise_scale is not None:
            pairs = [(_with_noise(gradient, gradient_noise_scale), var) for gradient, var in pairs]
        if gradient_multipliers is not None:
            factors = {k if isinstance(k, str) else k.name: factor for k, factor in gradient_multipliers.items()}
            pairs = [(_times(gradient, factors.get(var.name)), var) for gradient, var in pairs]
        norms = "global_gradient_norm" in summaries or "gradient_norm" in summaries
        if norms:
            _summary.scalar("global_norm/gradient_norm", tf.linalg.global_norm([gradient for gradient, _ in pairs]))
        pairs = _clipped(pairs, clip_gradients)
        if "loss" in summaries:
            _summary.scalar("loss", loss)
        for gradient, var in pairs:
            if gradient is not None:
                values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
                tag = var.name.replace(":", "_")
                if "gradients" in summaries:
                    _summary.histogram(f"gradients/{tag}", values)
                if "gradient_norm" in summaries:
                    _summary.scalar(f"gradient_norm/{tag}", tf.linalg.global_norm([values]))
        if norms and clip_gradients is not None:
            clipped = tf.linalg.global_norm([gradient for gradient, _ in pairs])
            _summary.scalar("global_norm/clipped_gradient_norm", clipped)
        step = opt.apply_gradients(pairs, global_step=global_step if increment_global_step else None, name="train")
        with tf.control_dependencies([step]):
            return tf.identity(loss)


def adaptive_clipping_fn(
    std_factor: Any = 2.0,
    decay: Any = 0.95,
    static_max_norm: Any = None,
    global_step: Any = None,
    report_summary: bool = False,
    epsilon: float = 1e-8,
    name: Any = None,
) -> Callable[[_GradsAndVars], _GradsAndVars]:
    """Returns a function that shortens gradients which are long by their own standards (arXiv 1412.1602, 3.2.1).

    It keeps moving averages of the logarithm of the global norm and of its square. A norm that is more than
    `std_factor` standard deviations above average is brought down to the average.

    Args:
        std_factor: How many standard deviations are too many.
        decay: Of the moving averages.
        static_max_norm: A norm that is too long in any case; None for no such limit.
        global_step: If given, the averages adapt faster in the first steps: the decay is at most n / (n + 1).
        report_summary: Write a summary of the norm from which on gradients are shortened.
        epsilon: Least variance, also added to the norm.
        name: Name of the variable scope of the averages; by default `AdaptiveMaxNorm`, made unique.

    Returns:
        A function from a list of pairs (gradient, variable) to another.
    """

    def clip(grads_and_vars: _GradsAndVars) -> _GradsAndVars:
        norm = tf.linalg.global_norm([gradient for gradient, _ in grads_and_vars])
        with tf.compat.v1.variable_scope(name, "AdaptiveMaxNorm", [norm]):
            keep = decay
            if global_step is not None:
                n = tf.cast(global_step, tf.float32)
                keep = tf.minimum(decay, n / (n + 1.0))
            log_norm = tf.math.log(norm + epsilon)
            mean = _moving_average("mean", log_norm, keep)
            variance = _moving_average("sq_mean", tf.square(log_norm), keep) - tf.square(mean)
            max_norm = tf.exp(mean + std_factor * tf.sqrt(tf.maximum(epsilon, variance)))
        if report_summary:
            _summary.scalar("global_norm/adaptive_max_gradient_norm", max_norm)
        factor = tf.where(norm < max_norm, tf.ones_like(norm), tf.exp(mean) / norm)
        if static_max_norm is not None:
            factor = tf.minimum(static_max_norm / norm, factor)
        return [(_times(gradient, factor), var) for gradient, var in grads_and_vars]

    return clip


def _rate(learning_rate: Any) -> Any:
    if learning_rate is None or (tf.is_tensor(learning_rate) and learning_rate.shape.rank == 0):
        return learning_rate
    if not isinstance(learning_rate, numbers.Real) or learning_rate < 0:
        raise ValueError(f"optimize_loss: learning_rate={learning_rate!r} must be a number of 0 or more, or a scalar.")
    initializer = tf.compat.v1.constant_initializer(learning_rate)
    return tf.compat.v1.get_variable("learning_rate", [], trainable=False, initializer=initializer)


def _optimizer(optimizer: Any, rate: Any) -> Any:
    if isinstance(optimizer, _train.Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        _require_known("optimizer", [optimizer], list(OPTIMIZER_CLS_NAMES))
        make = OPTIMIZER_CLS_NAMES[optimizer]
    elif callable(optimizer) and (not isinstance(optimizer, type) or issubclass(optimizer, _train.Optimizer)):
        make = optimizer
    else:
        raise ValueError(
            f"optimize_loss: optimizer={optimizer!r} must be a name, an optimizer, its class, or a function."
        )
    if rate is None and isinstance(optimizer, (str, type)):
        raise ValueError(f"optimize_loss: optimizer={optimizer!r} needs a learning_rate, but that is None.")
    made = make() if rate is None else make(rate)
    if not isinstance(made, _train.Optimizer):
        raise ValueError(f"optimize_loss: optimizer={optimizer!r} returned {made!r}, which is no optimizer.")
    return made


def _require_known(argument: str, values: Sequence[str], known: Sequence[str]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"optimize_loss: {argument} has {value!r}, but there is only {', '.join(known)}.")


def _with_noise(gradient: Any, scale: float) -> Any:
    if gradient is None:
        return None
    gradient = tf.convert_to_tensor(gradient)
    return gradient + scale * tf.random.truncated_normal(tf.shape(gradient), dtype=gradient.dtype)


def _times(gradient: Any, factor: Any) -> Any:
    if gradient is None or factor is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_times(gradient.values, factor), gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def _clipped(pairs: _GradsAndVars, clip_gradients: Any) -> _GradsAndVars:
    if clip_gradients is None:
        return pairs
    if callable(clip_gradients):
        return clip_gradients(pairs)
    if isinstance(clip_gradients, bool) or not isinstance(clip_gradients, numbers.Real):
        raise ValueError(f"optimize_loss: clip_gradients={clip_gradients!r} must be a number or a function.")
    clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], clip_gradients)
    return [(gradient, var) for gradient, (_, var) in zip(clipped, pairs, strict=True)]


def _moving_average(name: str, value: Any, decay: Any) -> Any:
    """Updates a moving average that begins at 0 and returns its new value."""
    zeros = tf.compat.v1.zeros_initializer()
    average = tf.compat.v1.get_variable(name, value.shape, value.dtype, zeros, trainable=False)
    before = tf.convert_to_tensor(average)
    after = before - (before - value) * (1.0 - decay)
    with tf.control_dependencies([average.assign(after, read_value=False)]):
        return tf.identity(after)
