"""The schema of `sweep.search`: how Optuna chooses the values of a sweep. Optuna itself is not needed here."""

from __future__ import annotations

import dataclasses
import enum

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, require

__all__ = [
    "Pruner",
    "Sampler",
    "SearchConfig",
]


class Sampler(enum.Enum):
    """What the next values are chosen by."""

    tpe = "tpe"
    random = "random"


class Pruner(enum.Enum):
    """What ends a trial that falls behind the others."""

    none = "none"
    median = "median"
    halving = "halving"
    hyperband = "hyperband"


@dataclasses.dataclass
class SearchConfig:
    trials: int = MISSING
    batch: int | None = MISSING
    sampler: Sampler = MISSING
    startup_trials: int = MISSING
    seed: int = MISSING
    pruner: Pruner = MISSING
    prune_after_trials: int = MISSING
    prune_after_steps: int = MISSING

    def __post_init__(self) -> None:
        at_least(self, "sweep.search", 1, "trials", "batch", "startup_trials")
        at_most(self, "sweep.search", 100_000, "trials", "startup_trials", "prune_after_trials")
        at_most(self, "sweep.search", 1000, "batch")
        at_least(self, "sweep.search", 0, "prune_after_trials", "prune_after_steps")
        at_most(self, "sweep.search", 10**12, "prune_after_steps")
        require(0 <= self.seed < 2**31, "sweep.search.seed", self.seed, f"must lie in 0..{2**31 - 1}.")
