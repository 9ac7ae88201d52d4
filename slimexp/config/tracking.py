"""The schema of the group `tracking`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, require, show

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
    tags: dict[str, Any] = MISSING  # Texts, once made: of another type, OmegaConf's own message is no help.
    on_error: OnError = MISSING
    tensorboard: bool = MISSING
    log_model: bool = MISSING
    registered_model: str | None = MISSING
    events_max_bytes: int = MISSING
    system_metrics: Any = MISSING
    system_every_secs: float = MISSING

    def __post_init__(self) -> None:
        wanted = self.system_metrics
        known = isinstance(wanted, bool) or wanted == "auto"
        require(known, "tracking.system_metrics", wanted, "must be auto, true or false.")
        for key, value in self.tags.items():
            fits = isinstance(value, (str, bool, int, float))
            shown = "null" if value is None else "{...}" if isinstance(value, dict) else "[...]"
            rule = f"a tag's value is one text: leave the key out, or give a text, e.g. +tracking.tags.{key}=none."
            require(fits, f"tracking.tags.{key}", shown, rule)
        self.tags = {key: show(value) for key, value in self.tags.items()}
        at_least(self, "tracking", 1_000_000, "events_max_bytes")
        at_least(self, "tracking", 0.1, "system_every_secs")
