"""The schema of the group `trainer`."""

from __future__ import annotations

import dataclasses
import enum

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, require
from slimexp.errors import UserError

__all__ = [
    "Resume",
    "TrainerConfig",
]


class Resume(enum.Enum):
    """What to do with checkpoints found in `run_dir`."""

    auto = "auto"
    never = "never"
    must = "must"


@dataclasses.dataclass
class TrainerConfig:
    max_steps: int | None = MISSING
    epochs: float | None = MISSING
    clip_gradient_norm: float = MISSING
    save_every_steps: int = MISSING
    max_to_keep: int = MISSING
    log_every_steps: int = MISSING
    eval_every_steps: int = MISSING
    resume: Resume = MISSING
    check_numerics: bool = MISSING
    deterministic: bool = MISSING

    def __post_init__(self) -> None:
        at_least(self, "trainer", 1, "max_steps", "save_every_steps", "max_to_keep", "log_every_steps")
        at_least(self, "trainer", 0, "clip_gradient_norm", "eval_every_steps")
        at_most(self, "trainer", 10**12, "max_steps", "epochs")
        if self.epochs is not None:
            require(self.epochs > 0, "trainer.epochs", self.epochs, "must be above 0.")
        if self.max_steps is None and self.epochs is None:
            raise UserError("trainer.max_steps=null and trainer.epochs=null: set one of them, or training has no end.")
