"""The schema of the group `pipeline`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, require

__all__ = [
    "Cache",
    "Decoder",
    "PipelineConfig",
    "QueueConfig",
    "QueuesConfig",
    "ReadQueueConfig",
]


class Cache(enum.Enum):
    none = "none"
    shrunk = "shrunk"


class Decoder(enum.Enum):
    auto = "auto"
    tensorflow = "tensorflow"
    native = "native"


@dataclasses.dataclass
class QueueConfig:
    capacity: int | None = MISSING


@dataclasses.dataclass
class ReadQueueConfig(QueueConfig):
    min_after_dequeue: int | None = MISSING


@dataclasses.dataclass
class QueuesConfig:
    filename: QueueConfig = MISSING
    read: ReadQueueConfig = MISSING
    prefetch: QueueConfig = MISSING
    batch: QueueConfig = MISSING

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            at_least(getattr(self, field.name), f"pipeline.queues.{field.name}", 1, "capacity")
        at_least(self.read, "pipeline.queues.read", 0, "min_after_dequeue")


@dataclasses.dataclass
class PipelineConfig:
    name: str = MISSING
    threads: Any = MISSING
    readers: Any = MISSING
    batch_size: int = MISSING
    shuffle: bool = MISSING
    decoder: Decoder = MISSING
    scaled_decode: bool = MISSING
    cache: Cache = MISSING
    cache_short_side: int = MISSING
    cache_dir: str | None = MISSING
    cache_max_bytes: int = MISSING
    queues: QueuesConfig = MISSING

    def __post_init__(self) -> None:
        counts = [name for name in ("threads", "readers") if getattr(self, name) != "auto"]
        for name in counts:
            value = getattr(self, name)
            require(type(value) is int, f"pipeline.{name}", value, "must be a whole number, or auto.")
        at_least(self, "pipeline", 1, *counts, "batch_size", "cache_short_side", "cache_max_bytes")
        at_most(self, "pipeline", 1024, *counts)  # Each is a thread of its own.
