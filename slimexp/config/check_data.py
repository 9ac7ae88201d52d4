"""The schema of the group `check_data`."""

from __future__ import annotations

import dataclasses
import enum

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most

__all__ = ["CheckDataConfig", "OnFault"]


class OnFault(enum.Enum):
    """Whether faults make the run a failed one, or are only reported."""

    error = "error"
    report = "report"


@dataclasses.dataclass
class CheckDataConfig:
    on_fault: OnFault = MISSING
    samples: int = MISSING
    show: int = MISSING

    def __post_init__(self) -> None:
        at_least(self, "check_data", 0, "samples", "show")
        at_most(self, "check_data", 1000, "samples")
