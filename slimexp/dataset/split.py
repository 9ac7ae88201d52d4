"""What a dataset is to the rest of the program: file names, labels, class names. Nothing is read here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from slimexp.dataset.record_split import RecordSplit

__all__ = ["AnySplit", "Dataset", "Split"]


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split, in the order of their source.

    Attributes:
        name: `train` or `eval`.
        paths: n absolute file names, as the bytes the operating system takes.
        labels: Single-label: int32 [n], each in 0..num_classes - 1. Multi-label: int8 [n, num_classes], 1 = positive,
            -1 = negative, 0 = don't care.
        source: The list file or folder that the examples come from, for messages.
        lines: int64 [n], each example's 1-based line in `source`; None where the source has no lines.
    """

    name: str
    paths: Sequence[bytes]
    labels: np.ndarray
    source: str
    lines: np.ndarray | None = None

    @property
    def is_sequential(self) -> bool:
        """Whether the examples can only be read in sequence."""
        return False

    def __post_init__(self) -> None:
        assert len(self.paths) == len(self.labels), (len(self.paths), len(self.labels))
        assert self.lines is None or len(self.lines) == len(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> str:
        """Returns the example's file name as text; undecodable bytes are escaped."""
        return self.paths[index].decode("utf-8", "backslashreplace")

    def origin(self, index: int) -> str:
        """Returns where the example was named, e.g. `train.txt:17`, or the source alone."""
        return self.source if self.lines is None else f"{self.source}:{self.lines[index]}"


AnySplit = Split | RecordSplit


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A training and an evaluation split over the same classes.

    Attributes:
        name: For run names and tags, e.g. `digits`.
        task: `single` (one class an image) or `multi` (each label on its own).
        class_names: One name a label; their number is the number of classes.
        train: The examples to learn from.
        eval: The held-out examples, or None if there are none.
        image_side_px: The side of the images when all are small squares (28 for MNIST-like data), else None.
    """

    name: str
    task: str
    class_names: tuple[str, ...]
    train: AnySplit
    eval: AnySplit | None = None
    image_side_px: int | None = None

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
