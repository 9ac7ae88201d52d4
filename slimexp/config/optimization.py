"""The schemas of the groups `optimizer`, `learning_rate` and `loss`."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, fraction, require

__all__ = [
    "AdadeltaConfig",
    "AdagradConfig",
    "AdamConfig",
    "CosineConfig",
    "ExponentialConfig",
    "FtrlConfig",
    "LossConfig",
    "LossName",
    "MomentumConfig",
    "OptimizerConfig",
    "PiecewiseConfig",
    "PolynomialConfig",
    "RMSPropConfig",
    "ScheduleConfig",
]


class LossName(enum.Enum):
    """`auto` takes softmax for single-label datasets and sigmoid for multi-label ones."""

    auto = "auto"
    softmax = "softmax"
    sigmoid = "sigmoid"


@dataclasses.dataclass
class OptimizerConfig:
    """What every optimizer has in common; `name` is for run names and tables."""

    _target_: str = MISSING
    name: str = MISSING


@dataclasses.dataclass
class MomentumConfig(OptimizerConfig):
    momentum: float = MISSING
    use_nesterov: bool = MISSING

    def __post_init__(self) -> None:
        fraction(self, "optimizer", "momentum", zero=True)


@dataclasses.dataclass
class RMSPropConfig(OptimizerConfig):
    decay: float = MISSING
    momentum: float = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        fraction(self, "optimizer", "decay", "momentum", zero=True)
        at_least(self, "optimizer", 0, "epsilon")


@dataclasses.dataclass
class AdamConfig(OptimizerConfig):
    beta1: float = MISSING
    beta2: float = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        fraction(self, "optimizer", "beta1", "beta2", zero=True)
        at_least(self, "optimizer", 0, "epsilon")


@dataclasses.dataclass
class AdagradConfig(OptimizerConfig):
    initial_accumulator_value: float = MISSING

    def __post_init__(self) -> None:
        value = self.initial_accumulator_value
        require(value > 0, "optimizer.initial_accumulator_value", value, "must be above 0.")


@dataclasses.dataclass
class AdadeltaConfig(OptimizerConfig):
    rho: float = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        fraction(self, "optimizer", "rho", zero=True)
        at_least(self, "optimizer", 0, "epsilon")


@dataclasses.dataclass
class FtrlConfig(OptimizerConfig):
    learning_rate_power: float = MISSING
    initial_accumulator_value: float = MISSING
    l1: float = MISSING
    l2: float = MISSING

    def __post_init__(self) -> None:
        value = self.learning_rate_power
        require(value <= 0, "optimizer.learning_rate_power", value, "must be 0 or less.")
        at_least(self, "optimizer", 0, "initial_accumulator_value", "l1", "l2")


@dataclasses.dataclass
class ScheduleConfig:
    """What every learning-rate schedule has in common."""

    _target_: str = MISSING
    name: str = MISSING
    initial: float = MISSING
    warmup_steps: int = MISSING

    def __post_init__(self) -> None:
        require(self.initial > 0, "learning_rate.initial", self.initial, "must be above 0.")
        at_least(self, "learning_rate", 0, "warmup_steps")


@dataclasses.dataclass
class ExponentialConfig(ScheduleConfig):
    decay_factor: float = MISSING
    epochs_per_decay: float = MISSING
    staircase: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "learning_rate", "decay_factor", one=True)
        value = self.epochs_per_decay
        require(value > 0, "learning_rate.epochs_per_decay", value, "must be above 0.")


@dataclasses.dataclass
class PolynomialConfig(ScheduleConfig):
    end: float = MISSING
    power: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "learning_rate", 0, "end")
        require(self.power > 0, "learning_rate.power", self.power, "must be above 0.")


@dataclasses.dataclass
class CosineConfig(ScheduleConfig):
    end: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = f"must lie between 0 and learning_rate.initial={self.initial}."
        require(0 <= self.end <= self.initial, "learning_rate.end", self.end, rule)


@dataclasses.dataclass
class PiecewiseConfig(ScheduleConfig):
    decay_factor: float = MISSING
    boundaries_epochs: list[float] = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "learning_rate", "decay_factor", one=True)
        values = self.boundaries_epochs
        ok = bool(values) and values[0] > 0 and all(a < b for a, b in itertools.pairwise(values))
        require(ok, "learning_rate.boundaries_epochs", values, "must be rising numbers of epochs above 0.")


@dataclasses.dataclass
class LossConfig:
    name: LossName = MISSING
    label_smoothing: float = MISSING
    aux_weight: float = MISSING
    class_weights: Any = MISSING

    def __post_init__(self) -> None:
        fraction(self, "loss", "label_smoothing", zero=True)
        at_least(self, "loss", 0, "aux_weight")
        value = self.class_weights
        ok = value in (None, "balanced") or (
            isinstance(value, list) and all(isinstance(w, (int, float)) and w >= 0 for w in value) and any(value)
        )
        require(
            ok,
            "loss.class_weights",
            value,
            "must be null, 'balanced', or a list of one weight >= 0 a class, not all 0.",
        )
