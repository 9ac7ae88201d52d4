"""The schemas of the groups `job`, and of those with what single jobs need: `evaluation`, `benchmark`, `inspect`."""

from __future__ import annotations

import dataclasses

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, path_field, require

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


@dataclasses.dataclass
class EvaluationConfig:
    batch_size: int | None = MISSING
    top_k: int = MISSING

    def __post_init__(self) -> None:
        at_least(self, "evaluation", 1, "batch_size", "top_k")


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
