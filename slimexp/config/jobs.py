"""The schemas of the groups `job`, and of those with what single jobs need: `evaluation`, `benchmark`, `inspect`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, fraction, path_field, require

__all__ = [
    "BenchmarkConfig",
    "EvaluationConfig",
    "InspectConfig",
    "JobConfig",
]


@dataclasses.dataclass
class JobConfig:
    name: str = MISSING
    _target_: str = MISSING
    reads: str | None = MISSING  # The key that names what the job works on; see `slimexp.jobs.of_run`.


class EvaluatedSplit(enum.Enum):
    """Which examples to evaluate on."""

    eval = "eval"
    train = "train"


@dataclasses.dataclass
class EvaluationConfig:
    checkpoint: str | None = path_field()
    split: EvaluatedSplit = MISSING
    batch_size: int | None = MISSING
    top_k: int = MISSING
    threshold: float = MISSING
    use_averages: Any = MISSING
    follow: bool = MISSING
    timeout_secs: float | None = MISSING

    def __post_init__(self) -> None:
        at_least(self, "evaluation", 1, "batch_size", "top_k")
        fraction(self, "evaluation", "threshold")
        # Unquoted, YAML makes a truth value of `true`.
        self.use_averages = str(self.use_averages).lower()
        ok = self.use_averages in ("auto", "true", "false")
        require(ok, "evaluation.use_averages", self.use_averages, "must be auto, true or false.")
        if self.timeout_secs is not None:
            require(self.timeout_secs > 0, "evaluation.timeout_secs", self.timeout_secs, "must be above 0, or null.")


@dataclasses.dataclass
class BenchmarkConfig:
    rounds: int = MISSING
    secs: float = MISSING
    cold: bool = MISSING

    def __post_init__(self) -> None:
        at_least(self, "benchmark", 1, "rounds")
        at_most(self, "benchmark", 1000, "rounds")
        require(0 < self.secs <= 3600, "benchmark.secs", self.secs, "must be above 0 and 3,600 or less.")


@dataclasses.dataclass
class InspectConfig:
    checkpoint: str | None = path_field()
    other: str | None = path_field()

    def __post_init__(self) -> None:
        ok = self.other is None or self.checkpoint is not None
        require(ok, "inspect.other", self.other, "is compared with inspect.checkpoint; set that as well.")
