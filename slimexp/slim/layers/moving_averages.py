"""Moving averages of a layer's statistics, kept in variables, and how a training step updates them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim.layers.common import VariablesCollections, layer_variable

__all__ = ["move_towards", "moving_variable", "zero_debiased"]

# Under a strategy each replica averages over its own batches; where they are read outside of replicas or saved, the
# averages of all replicas are averaged.
_PER_REPLICA = {
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.MEAN,
}

# The name scope of each update.
_UPDATE = "AssignMovingAvg"


def moving_variable(
    name: str, shape: list[int], dtype: tf.DType, initializer: Any, variables_collections: VariablesCollections
) -> Any:
    """Gets or creates a layer's variable for a moving average in the current variable scope."""
    # A variable in parts cannot be updated as a whole, whatever the scope's partitioner says of weights.
    with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), auxiliary_name_scope=False) as scope:
        scope.set_partitioner(None)
        return layer_variable(name, shape, dtype, initializer, None, False, variables_collections, **_PER_REPLICA)


def move_towards(moving: Any, value: Any, weight: Any) -> Any:
    """Moves an average towards a value, by `weight` (0..1) of the difference.

    Returns:
        The update: the variable as it is afterwards, which is read only if asked for. Scripts look at its `op`.
    """
    with tf.compat.v1.name_scope(_UPDATE):
        value = tf.cast(value, moving.dtype)
        # A reading of the variable by its own replica; across replicas it would be the mean over all.
        return moving.assign_sub((tf.convert_to_tensor(moving) - value) * tf.cast(weight, moving.dtype))


def zero_debiased(moving: Any, value: Any, weight: Any, is_training: Any) -> Any:
    """Updates an average as if it had begun with the first value, not with its initial one.

    An average that begins at zero is too small by 1 - decay ** steps, by which it is divided (Kingma and Ba, arXiv
    1412.6980, section 3). Variables: `biased`, shaped as the average, and `local_step` [], below the average's name.

    Args:
        moving: The variable that gets the corrected average.
        value: The value of this step.
        weight: 1 - decay in a training step, else 0.
        is_training: A bool or a scalar bool tensor; where false, nothing changes.

    Returns:
        The update of all three, as `move_towards` does.
    """
    name = moving.name.split(":")[0]
    dtype = moving.dtype.base_dtype
    with tf.compat.v1.name_scope(_UPDATE), tf.compat.v1.variable_scope(name, values=[moving, value]) as scope:
        scope.set_partitioner(None)
        zeros = tf.compat.v1.zeros_initializer()
        biased = layer_variable("biased", moving.shape, dtype, zeros, None, False, None, **_PER_REPLICA)
        local_step = layer_variable("local_step", [], dtype, zeros, None, False, None, **_PER_REPLICA)
        weight = tf.cast(weight, dtype)
        before = tf.convert_to_tensor(biased)
        average = before - (before - tf.cast(value, dtype)) * weight
        step = tf.convert_to_tensor(local_step) + tf.cast(is_training, dtype)
        corrected = average / (1 - tf.pow(1 - weight, step))
        # Without training the divisor is 0, and so it is before the first step.
        corrected = tf.where(tf.cast(is_training, tf.bool), corrected, tf.convert_to_tensor(moving))
        with tf.control_dependencies([corrected]):
            kept = [biased.assign(average, read_value=False), local_step.assign(step, read_value=False)]
        with tf.control_dependencies(kept):
            return moving.assign(corrected)
