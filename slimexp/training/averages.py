"""Moving averages of a model's variables: how training keeps them, and which values of a checkpoint evaluation takes.

They are TF-Slim's: a checkpoint holds `NAME/ExponentialMovingAverage` beside `NAME` for every variable of the model,
batch norm's statistics included, which is what TF-Slim's evaluation asks for (`variables_to_restore` of all model
variables). So a checkpoint says itself whether it was made with averages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.restore_plan import is_training_state

__all__ = ["SUFFIX", "MovingAverages", "average_name", "has_averages", "sources_of", "weights_of"]

SUFFIX = "/ExponentialMovingAverage"


def average_name(name: str) -> str:
    """Returns the name of a variable's moving average in a checkpoint."""
    return name + SUFFIX


def has_averages(names: Collection[str]) -> bool:
    """Tells whether there is a moving average among the names of a checkpoint."""
    return any(name.endswith(SUFFIX) for name in names)


def sources_of(
    names: Collection[str], use: str = "auto", *, key: str = "evaluation.use_averages", origin: str = "the checkpoint"
) -> dict[str, str]:
    """Decides which of a checkpoint's entries are the model's values.

    Args:
        names: All names in the checkpoint.
        use: `auto`: a variable's moving average where there is one, else the variable itself. `true`: the same, but
            there has to be one. `false`: the variables as they were last.
        key: The configuration key of `use`, for messages.
        origin: The checkpoint, for messages.

    Returns:
        Variable name -> name in the checkpoint of the entry to take, sorted; the optimizer's slots and the global step
        are left out.

    Raises:
        UserError: If averages are demanded and there are none.
    """
    assert use in ("auto", "true", "false"), use
    if use == "true" and not has_averages(names):
        raise UserError(
            f"{key}=true: {origin} has no moving averages, as its run had trainer.moving_average_decay=null. Leave it "
            "auto, or name a checkpoint that has some."
        )
    # Some checkpoints were published with the averages alone.
    variables = {name.removesuffix(SUFFIX) for name in names}
    chosen = {}
    for variable in sorted(variables):
        if is_training_state(variable, dict.fromkeys(variables)):
            continue
        average = average_name(variable)
        take_average = average in names and (use != "false" or variable not in names)
        chosen[variable] = average if take_average else variable
    return chosen


def weights_of(
    checkpoint: CheckpointFile | Mapping[str, Any], use: str = "auto", *, key: str = "evaluation.use_averages"
) -> dict[str, np.ndarray]:
    """Returns a checkpoint's values of the model's variables, their moving averages where it has these.

    Args:
        checkpoint: A checkpoint's file, or all its values by name.
        use, key: See `sources_of`.

    Returns:
        Variable name -> value, moving averages under the names of their variables.

    Raises:
        UserError: If averages are demanded and there are none, or the file is damaged.
    """
    if not isinstance(checkpoint, CheckpointFile):
        return {name: np.asarray(checkpoint[source]) for name, source in sources_of(checkpoint, use, key=key).items()}
    names = {
        source: name for name, source in sources_of(checkpoint.shapes(), use, key=key, origin=checkpoint.prefix).items()
    }
    return {names[source]: value for source, value in checkpoint.read(names)}


class MovingAverages:
    """Keeps `average = d * average + (1 - d) * variable` after each step, with TensorFlow's d of few steps.

    As `tf.train.ExponentialMovingAverage(decay, num_updates)` does it, d is `min(decay, (1 + n) / (10 + n))` after
    step n, so that the first averages are not those of initial values.

    Args:
        variables: The model's variables by name. Create it under the scope of their strategy.
        decay: In (0, 1), e.g. 0.9999.

    Attributes:
        decay: As given.
        variables: The averages by the names of their variables.
    """

    def __init__(self, variables: Mapping[str, Any], decay: float) -> None:
        self.decay = decay
        self._sources = {name: variable for name, variable in variables.items() if variable.dtype.is_floating}
        self.variables = {
            name: tf.Variable(variable.read_value(), trainable=False, name=average_name(name))
            for name, variable in self._sources.items()
        }

    def named(self) -> dict[str, Any]:
        """Returns the averages by their names in a checkpoint."""
        return {average_name(name): variable for name, variable in self.variables.items()}

    def start_from_variables(self, names: Collection[str] | None = None) -> None:
        """Gives the averages of these variables, by default of all, their variables' values."""
        for name in self._sources if names is None else names:
            self.variables[name].assign(self._sources[name].read_value())

    def update(self, strategy: tf.distribute.Strategy, num_updates: tf.Tensor) -> None:
        """Moves the averages towards the variables; call it across replicas, when the step is done.

        Args:
            strategy: That of the variables.
            num_updates: int64 [], the number of steps done.
        """
        n = tf.cast(num_updates, tf.float32)
        rest = 1.0 - tf.minimum(tf.constant(self.decay, tf.float32), (1.0 + n) / (10.0 + n))

        def move(average: Any, value: tf.Tensor) -> Any:
            # A variable that does not move, such as a frozen one, has an average that is the same to the bit.
            return average.assign_sub((average - value) * tf.cast(rest, average.dtype))

        for name, variable in self._sources.items():
            strategy.extended.update(self.variables[name], move, args=(variable.read_value(),))
