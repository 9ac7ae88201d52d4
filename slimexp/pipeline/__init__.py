"""The four-queue read-decode pipeline, and the preprocessing that it runs.

    file list -> [filename queue] -> readers: read bytes + decode -> [read queue] -> threads: preprocess
              -> [prefetch queue] -> batch -> [batch queue] -> replicas

`PipelineSettings` can be had without TensorFlow; the other names load it when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slimexp.pipeline.settings import PipelineSettings, QueueSettings

if TYPE_CHECKING:
    from slimexp.pipeline.feed import Feed
    from slimexp.pipeline.stream import build_dataset

__all__ = ["Feed", "PipelineSettings", "QueueSettings", "build_dataset"]


def __getattr__(name: str) -> Any:
    if name == "build_dataset":
        from slimexp.pipeline.stream import build_dataset

        return build_dataset
    if name == "Feed":
        from slimexp.pipeline.feed import Feed

        return Feed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
