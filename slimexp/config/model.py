"""The schemas of the groups `model` and `preprocessing`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, fraction, require

__all__ = [
    "CifarnetPreprocessingConfig",
    "Color",
    "InceptionPreprocessingConfig",
    "LenetPreprocessingConfig",
    "ModelConfig",
    "PlainPreprocessingConfig",
    "PreprocessingConfig",
    "VggPreprocessingConfig",
    "check_steps",
]


class Color(enum.Enum):
    """How much Inception preprocessing distorts colour while training."""

    none = "none"
    fast = "fast"
    full = "full"


_STEP_KINDS = ("_target_", "numpy", "library")
_STEP_FORMS = (
    "{_target_: my.module.function, ...} (TensorFlow), {numpy: my.module.function, ...} or "
    "{library: path/to/op.so, op: name, ...} (C++)"
)
_STEP_CHOICES = {"at": ("decoded", "finished"), "when": ("training", "always")}


def check_steps(steps: Any) -> None:
    """Checks the form of `preprocessing.steps`.

    Raises:
        UserError: If it is no list of steps, or a step's own keys are wrong. Its function's are another matter.
    """
    require(isinstance(steps, list), "preprocessing.steps", steps, f"must be a list of steps, each {_STEP_FORMS}.")
    for number, step in enumerate(steps):
        key = f"preprocessing.steps[{number}]"
        require(isinstance(step, dict), key, step, f"must be {_STEP_FORMS}.")
        kinds = [kind for kind in _STEP_KINDS if kind in step]
        require(len(kinds) == 1, key, step, f"must be one of the three: {_STEP_FORMS}.")
        for name in (*kinds, *(["op"] if kinds == ["library"] else [])):
            value = step.get(name)
            require(isinstance(value, str) and bool(value), f"{key}.{name}", value, f"must be text: {_STEP_FORMS}.")
        for name, choices in _STEP_CHOICES.items():
            value = step.get(name, choices[0])
            require(value in choices, f"{key}.{name}", value, f"must be {' or '.join(choices)}.")
        value = step.get("num_draws", 1)
        rule = "must be a whole number of 1 or more: the random numbers that the step wants for an image."
        require(type(value) is int and 1 <= value <= 1000, f"{key}.num_draws", value, rule)


@dataclasses.dataclass
class PreprocessingConfig:
    """What every preprocessing has in common."""

    _target_: str = MISSING
    name: str = MISSING
    steps: Any = dataclasses.field(default=MISSING, metadata={"path": "library"})

    def __post_init__(self) -> None:
        check_steps(self.steps)


@dataclasses.dataclass
class ModelConfig:
    name: str = MISSING
    network: dict[str, Any] = MISSING
    preprocessing: str | None = MISSING
    learning_rate: float = MISSING
    image_size: int | None = MISSING
    weight_decay: float = MISSING
    dropout_keep_prob: float | None = MISSING
    batch_norm_decay: float | None = MISSING

    def __post_init__(self) -> None:
        require(
            isinstance(self.network.get("_target_"), str),
            "model.network._target_",
            self.network.get("_target_"),
            "must name a network function, e.g. slimexp.nets.vgg.vgg_16.",
        )
        at_least(self, "model", 1, "image_size")
        require(self.learning_rate > 0, "model.learning_rate", self.learning_rate, "must be above 0.")
        at_least(self, "model", 0, "weight_decay")
        fraction(self, "model", "dropout_keep_prob", one=True)
        fraction(self, "model", "batch_norm_decay", zero=True)


@dataclasses.dataclass
class VggPreprocessingConfig(PreprocessingConfig):
    resize_side_min: int = MISSING
    resize_side_max: int = MISSING
    eval_resize_side: int = MISSING
    area_min: float = MISSING
    flip: bool = MISSING
    means: list[float] = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "preprocessing", 224, "resize_side_min", "eval_resize_side")
        fraction(self, "preprocessing", "area_min", zero=True, one=True)
        require(
            self.resize_side_max >= self.resize_side_min,
            "preprocessing.resize_side_max",
            self.resize_side_max,
            f"must not be below preprocessing.resize_side_min={self.resize_side_min}.",
        )
        require(len(self.means) == 3, "preprocessing.means", self.means, "must be three numbers: R, G, B.")


@dataclasses.dataclass
class InceptionPreprocessingConfig(PreprocessingConfig):
    area_min: float = MISSING
    area_max: float = MISSING
    ratio_min: float = MISSING
    ratio_max: float = MISSING
    flip: bool = MISSING
    color: Color = MISSING
    central_fraction: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "preprocessing", "area_min", "area_max", "central_fraction", one=True)
        at_least(self, "preprocessing", 1e-3, "ratio_min", "ratio_max")
        for what in ("area", "ratio"):
            low, high = getattr(self, f"{what}_min"), getattr(self, f"{what}_max")
            rule = f"must not be below preprocessing.{what}_min={low}."
            require(high >= low, f"preprocessing.{what}_max", high, rule)


@dataclasses.dataclass
class LenetPreprocessingConfig(PreprocessingConfig):
    """LeNet has nothing to set."""


@dataclasses.dataclass
class CifarnetPreprocessingConfig(PreprocessingConfig):
    padding: int = MISSING
    flip: bool = MISSING
    brightness: float = MISSING
    contrast_min: float = MISSING
    contrast_max: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "preprocessing", 0, "padding", "brightness", "contrast_min")
        rule = f"must not be below preprocessing.contrast_min={self.contrast_min}."
        require(self.contrast_max >= self.contrast_min, "preprocessing.contrast_max", self.contrast_max, rule)


@dataclasses.dataclass
class PlainPreprocessingConfig(PreprocessingConfig):
    mean: float = MISSING
    scale: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.scale != 0, "preprocessing.scale", self.scale, "must not be 0: pixels are divided by it.")
