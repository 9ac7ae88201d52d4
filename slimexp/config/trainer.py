"""The schema of the group `trainer`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, fraction, require
from slimexp.errors import UserError

__all__ = [
    "Direction",
    "Resume",
    "TrainerConfig",
]


class Resume(enum.Enum):
    """What to do with checkpoints found in `run_dir`."""

    auto = "auto"
    never = "never"
    must = "must"


class StrategyKind(enum.Enum):
    """Where the replicas are."""

    auto = "auto"
    one = "one"
    mirrored = "mirrored"


class Direction(enum.Enum):
    """Which values of a metric are the better ones."""

    maximize = "maximize"
    minimize = "minimize"


class Precision(enum.Enum):
    """What type the layers compute in."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@dataclasses.dataclass
class TrainerConfig:
    max_steps: int | None = MISSING
    epochs: float | None = MISSING
    strategy: StrategyKind = MISSING
    num_clones: int | None = MISSING
    precision: Precision = MISSING
    clip_gradient_norm: float = MISSING
    gradient_multipliers: Any = MISSING  # A mapping, which Hydra would not let anybody add to without a plus.
    moving_average_decay: float | None = MISSING
    save_every_steps: int = MISSING
    max_to_keep: int = MISSING
    log_every_steps: int = MISSING
    eval_every_steps: int = MISSING
    keep_best: str | None = MISSING
    best_direction: Direction | None = MISSING
    early_stop_patience: int | None = MISSING
    resume: Resume = MISSING
    check_numerics: bool = MISSING
    deterministic: bool = MISSING

    def __post_init__(self) -> None:
        at_least(self, "trainer", 1, "max_steps", "save_every_steps", "max_to_keep", "log_every_steps")
        at_least(self, "trainer", 0, "clip_gradient_norm", "eval_every_steps")
        at_least(self, "trainer", 1, "early_stop_patience", "num_clones")
        at_most(self, "trainer", 10**12, "max_steps", "epochs")
        fraction(self, "trainer", "moving_average_decay")
        if self.epochs is not None:
            require(self.epochs > 0, "trainer.epochs", self.epochs, "must be above 0.")
        if self.max_steps is None and self.epochs is None:
            raise UserError("trainer.max_steps=null and trainer.epochs=null: set one of them, or training has no end.")
        key = "trainer.gradient_multipliers"
        if self.gradient_multipliers is not None:
            ok = isinstance(self.gradient_multipliers, dict)
            require(ok, key, self.gradient_multipliers, "must be {SCOPE: FACTOR, ...}, e.g. {heads: 10}, or null.")
            for scope, factor in self.gradient_multipliers.items():
                ok = isinstance(factor, (int, float)) and not isinstance(factor, bool) and factor >= 0
                require(ok, f"{key}.{scope}", factor, "must be a number of 0 or more.")
        if self.early_stop_patience is not None:
            key = "trainer.early_stop_patience"
            ok = self.keep_best is not None
            require(
                ok, key, self.early_stop_patience, "say what has to improve: trainer.keep_best=METRIC, e.g. eval/loss."
            )
            ok = self.eval_every_steps > 0
            require(ok, key, self.early_stop_patience, "counts evaluations, but trainer.eval_every_steps=0 makes none.")
