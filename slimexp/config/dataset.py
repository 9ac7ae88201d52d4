"""The schema of the group `dataset`: one class an option, known by its builder."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import at_least, at_most, fraction, path_field, require

__all__ = [
    "ArraysConfig",
    "DatasetConfig",
    "DigitsConfig",
    "Exif",
    "FlowersConfig",
    "ImageFolderConfig",
    "ImagenetConfig",
    "LabelForm",
    "ListFileConfig",
    "OnBadImage",
    "PascalVocConfig",
    "TFRecordConfig",
    "Task",
]


def _class_names(owner: Any) -> None:
    rule = "must be a list of names, or a text file with one name a line."
    ok = owner.class_names is None or isinstance(owner.class_names, (str, list))
    require(ok, "dataset.class_names", owner.class_names, rule)


def _patterns(owner: Any) -> None:
    require(bool(owner.file_pattern), "dataset.file_pattern", "''", "must not be empty.")
    for name in ("file_pattern", "eval_pattern"):
        value = getattr(owner, name) or ""
        rule = "must not be empty and have at most one %s, for the split's name."
        require(value != "" or getattr(owner, name) is None, f"dataset.{name}", "''", rule)
        require(value.count("%s") <= 1, f"dataset.{name}", value, rule)


class Task(enum.Enum):
    """One class an image, or each label on its own."""

    single = "single"
    multi = "multi"


class OnBadImage(enum.Enum):
    error = "error"
    skip = "skip"


class Exif(enum.Enum):
    """What to do about the orientation that a photo's EXIF data name."""

    apply = "apply"
    ignore = "ignore"


@dataclasses.dataclass
class DatasetConfig:
    """What every dataset has in common."""

    _target_: str = MISSING
    name: str = MISSING
    on_bad_image: OnBadImage = MISSING
    max_bad_fraction: float = MISSING
    exif: Exif = MISSING
    flip: bool = MISSING
    crop_area_min: float = MISSING

    def __post_init__(self) -> None:
        fraction(self, "dataset", "max_bad_fraction", zero=True, one=True)
        fraction(self, "dataset", "crop_area_min", one=True)


@dataclasses.dataclass
class DigitsConfig(DatasetConfig):
    cache_dir: str | None = path_field()
    check_files: bool = MISSING


@dataclasses.dataclass
class ListFileConfig(DatasetConfig):
    train_list: str = path_field()
    eval_list: str | None = path_field()
    image_dir: str | None = path_field()
    num_classes: int | None = MISSING
    class_names: Any = path_field()
    task: Task = MISSING
    labels_offset: int = MISSING
    check_files: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "dataset", 1, "num_classes")
        at_most(self, "dataset", 1_000_000, "num_classes")
        at_least(self, "dataset", 0, "labels_offset")
        _class_names(self)


@dataclasses.dataclass
class ImageFolderConfig(DatasetConfig):
    root: str = path_field()
    train_dir: str | None = MISSING
    eval_dir: str | None = MISSING
    eval_fraction: float = MISSING
    class_names: Any = path_field()
    check_files: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "dataset", "eval_fraction", zero=True)
        _class_names(self)


class LabelForm(enum.Enum):
    """How a record tells several labels."""

    indices = "indices"
    binary = "binary"
    signed = "signed"


@dataclasses.dataclass
class TFRecordConfig(DatasetConfig):
    root: str = path_field()
    file_pattern: str = MISSING
    eval_pattern: str | None = MISSING
    num_classes: int | None = MISSING
    class_names: Any = path_field()
    task: Task = MISSING
    labels_offset: int = MISSING
    image_key: str = MISSING
    label_key: str = MISSING
    label_form: LabelForm = MISSING
    cache_dir: str | None = path_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "dataset", 1, "num_classes")
        at_most(self, "dataset", 1_000_000, "num_classes")
        at_least(self, "dataset", 0, "labels_offset")
        _class_names(self)
        for name in ("image_key", "label_key"):
            require(bool(getattr(self, name)), f"dataset.{name}", "''", "must not be empty.")
        _patterns(self)


@dataclasses.dataclass
class FlowersConfig(DatasetConfig):
    root: str = path_field()
    file_pattern: str = MISSING
    eval_pattern: str | None = MISSING
    num_classes: int | None = MISSING
    class_names: Any = path_field()
    cache_dir: str | None = path_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "dataset", 1, "num_classes")
        _class_names(self)
        _patterns(self)


@dataclasses.dataclass
class ImagenetConfig(FlowersConfig):
    labels_offset: int = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "must be 0 (1001 classes, the background class among them) or 1 (1000 classes)."
        require(self.labels_offset in (0, 1), "dataset.labels_offset", self.labels_offset, rule)


@dataclasses.dataclass
class PascalVocConfig(DatasetConfig):
    root: str = path_field()
    train_set: str = MISSING
    eval_set: str | None = MISSING
    num_classes: int | None = MISSING
    class_names: Any = path_field()
    check_files: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "dataset", 1, "num_classes")
        _class_names(self)
        for name in ("train_set", "eval_set"):
            value = getattr(self, name)
            rule = "must be a set's name as it stands in CLASS_SET.txt, such as train or val."
            require(value is None or (value != "" and "/" not in value), f"dataset.{name}", value or "''", rule)


@dataclasses.dataclass
class ArraysConfig(DatasetConfig):
    """MNIST and CIFAR-10."""

    root: str = path_field()
    class_names: Any = path_field()
    cache_dir: str | None = path_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        _class_names(self)
