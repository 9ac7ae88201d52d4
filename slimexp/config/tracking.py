"""The schema of the group `tracking`."""

from __future__ import annotations

import dataclasses
import enum

from omegaconf import MISSING

__all__ = [
    "Backend",
    "OnError",
    "TrackingConfig",
]


class Backend(enum.Enum):
    """Where runs are recorded besides their own folder."""

    mlflow = "mlflow"
    none = "none"


class OnError(enum.Enum):
    """What an unreachable tracking server means at the start."""

    offline = "offline"
    fail = "fail"


@dataclasses.dataclass
class TrackingConfig:
    backend: Backend = MISSING
    uri: str | None = MISSING
    experiment: str = MISSING
    run_name: str | None = MISSING
    tags: dict[str, str] = MISSING
    on_error: OnError = MISSING
    tensorboard: bool = MISSING
