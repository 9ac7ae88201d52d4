"""The seven optimizers of TF-Slim's training script, and the names under which checkpoints keep their slots.

They are `tf.compat.v1.train` optimizers, since those write the slots that TF-Slim's checkpoints hold. The learning rate
is a callable, asked anew at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["adadelta", "adagrad", "adam", "create_slots", "ftrl", "momentum", "named_slots", "rmsprop", "sgd"]

LearningRate = Callable[[], tf.Tensor]
_train = tf.compat.v1.train

# Slot keys in the order in which the optimizer creates them: the first variable is called `<variable>/<optimizer>`, the
# second `<variable>/<optimizer>_1`.
_SLOTS = {
    _train.GradientDescentOptimizer: (),
    _train.MomentumOptimizer: ("momentum",),
    _train.RMSPropOptimizer: ("rms", "momentum"),
    _train.AdamOptimizer: ("m", "v"),
    _train.AdagradOptimizer: ("accumulator",),
    _train.AdadeltaOptimizer: ("accum", "accum_update"),
    _train.FtrlOptimizer: ("accum", "linear"),
}


def sgd(learning_rate: LearningRate) -> Any:
    """Returns plain gradient descent."""
    return _train.GradientDescentOptimizer(learning_rate)


def momentum(learning_rate: LearningRate, *, momentum: float, use_nesterov: bool = False) -> Any:
    """Returns gradient descent with momentum."""
    return _train.MomentumOptimizer(learning_rate, momentum=momentum, use_nesterov=use_nesterov)


def rmsprop(learning_rate: LearningRate, *, decay: float, momentum: float, epsilon: float) -> Any:
    """Returns RMSProp (Hinton's lecture 6e of *Neural Networks for Machine Learning*)."""
    return _train.RMSPropOptimizer(learning_rate, decay=decay, momentum=momentum, epsilon=epsilon)


def adam(learning_rate: LearningRate, *, beta1: float, beta2: float, epsilon: float) -> Any:
    """Returns Adam (arXiv 1412.6980)."""
    return _train.AdamOptimizer(learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)


def adagrad(learning_rate: LearningRate, *, initial_accumulator_value: float) -> Any:
    """Returns Adagrad (Duchi et al., JMLR 12, 2011)."""
    return _train.AdagradOptimizer(learning_rate, initial_accumulator_value=initial_accumulator_value)


def adadelta(learning_rate: LearningRate, *, rho: float, epsilon: float) -> Any:
    """Returns Adadelta (arXiv 1212.5701)."""
    return _train.AdadeltaOptimizer(learning_rate, rho=rho, epsilon=epsilon)


def ftrl(
    learning_rate: LearningRate,
    *,
    learning_rate_power: float,
    initial_accumulator_value: float,
    l1: float,
    l2: float,
) -> Any:
    """Returns FTRL-proximal (McMahan et al., KDD 2013)."""
    return _Ftrl(
        learning_rate,
        learning_rate_power=learning_rate_power,
        initial_accumulator_value=initial_accumulator_value,
        l1_regularization_strength=l1,
        l2_regularization_strength=l2,
    )


class _Ftrl(tf.compat.v1.train.FtrlOptimizer):
    """The only one of the seven that would not call a callable learning rate itself."""

    def __init__(self, learning_rate: LearningRate, **settings: float) -> None:
        super().__init__(learning_rate, **settings)
        self._ask_learning_rate = learning_rate

    def _prepare(self) -> None:
        self._learning_rate = self._ask_learning_rate()
        super()._prepare()


def create_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Creates the optimizer's slots now, so that a checkpoint can be restored into them before the first step.

    Call it eagerly, under the strategy's scope. (The v1 optimizers have no public call for it; they would create the
    slots in the first step.)
    """
    optimizer._create_slots(list(variables))


def named_slots(optimizer: Any, variables: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the optimizer's variables with TF-Slim's names, e.g. `vgg_16/fc8/weights/Momentum`, `beta1_power`."""
    name = optimizer.get_name()
    keys = next((k for kind, k in _SLOTS.items() if isinstance(optimizer, kind)), sorted(optimizer.get_slot_names()))
    for variable in variables:
        for number, key in enumerate(keys):
            yield f"{_op_name(variable)}/{name}" + (f"_{number}" if number else ""), optimizer.get_slot(variable, key)
    if isinstance(optimizer, _train.AdamOptimizer):
        beta1_power, beta2_power = optimizer._get_beta_accumulators()
        yield "beta1_power", beta1_power
        yield "beta2_power", beta2_power


def _op_name(variable: Any) -> str:
    return variable.name.partition(":")[0]
