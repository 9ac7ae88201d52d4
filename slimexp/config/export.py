"""The schemas of the groups `export` and `predict`."""

from __future__ import annotations

import dataclasses
import enum

from omegaconf import MISSING

from slimexp.config.fields import at_least, fraction, path_field, require

__all__ = ["ExportConfig", "ExportFormat", "PredictConfig", "PredictFormat"]


class ExportFormat(enum.Enum):
    """What an export can consist of."""

    saved_model = "saved_model"
    frozen_graph = "frozen_graph"
    tflite = "tflite"


@dataclasses.dataclass
class ExportConfig:
    checkpoint: str | None = path_field()
    dir: str | None = path_field()
    formats: list[ExportFormat] = MISSING
    overwrite: bool = MISSING
    check_images: int = MISSING

    def __post_init__(self) -> None:
        at_least(self, "export", 1, "check_images")
        names = ", ".join(kind.value for kind in ExportFormat)
        shown = [kind.value for kind in self.formats]
        ok = bool(shown) and len(set(shown)) == len(shown)
        require(ok, "export.formats", shown, f"must name one or more of {names}, each once.")


class PredictFormat(enum.Enum):
    """How predictions are written; `auto` goes by the file's suffix."""

    auto = "auto"
    csv = "csv"
    jsonl = "jsonl"


@dataclasses.dataclass
class PredictConfig:
    model: str | None = path_field()
    input: str | None = path_field()
    image_dir: str | None = path_field()
    output: str | None = path_field()
    format: PredictFormat = MISSING
    top_k: int = MISSING
    threshold: float = MISSING
    all_scores: bool = MISSING
    batch_size: int | None = MISSING

    def __post_init__(self) -> None:
        at_least(self, "predict", 1, "top_k", "batch_size")
        fraction(self, "predict", "threshold")
