"""The schema of the group `sweep`."""

from __future__ import annotations

import dataclasses
import enum

from omegaconf import MISSING

from slimexp.config.fields import at_least, require
from slimexp.config.search import SearchConfig
from slimexp.config.trainer import Direction

__all__ = [
    "OnFailure",
    "SweepConfig",
    "SweepResume",
]

# `continue` is a keyword of Python, so it cannot be named in a class body.
OnFailure = enum.Enum("OnFailure", {"continue": "continue", "stop": "stop"})
OnFailure.__doc__ = "What a job that fails means for those that have not begun."


class SweepResume(enum.Enum):
    """What to do when the same sweep was started before."""

    auto = "auto"
    never = "never"


@dataclasses.dataclass
class SweepConfig:
    on_failure: OnFailure = MISSING
    gpus_per_job: int | None = MISSING
    resume: SweepResume = MISSING
    metric: str | None = MISSING
    direction: Direction | None = MISSING
    search: SearchConfig = MISSING

    def __post_init__(self) -> None:
        at_least(self, "sweep", 1, "gpus_per_job")
        require(self.metric is None or bool(self.metric.strip()), "sweep.metric", "''", "must name one, or be null.")
