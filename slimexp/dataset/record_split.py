"""A split whose examples are records of TFRecord files: which there are, and what their labels look like."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from slimexp.dataset.record_file import read_records
from slimexp.errors import UserError

__all__ = ["LabelFormat", "RecordSplit"]


@dataclasses.dataclass(frozen=True)
class LabelFormat:
    """How a record tells its labels.

    Attributes:
        key: The feature's key.
        form: `class`: one number, the class. `indices`: the numbers of the labels that are positive; all others are
            negative. `binary`: a number a label, 1 = positive, 0 = negative. `signed`: a number a label, 1 = positive,
            -1 = negative, 0 = don't care.
        num_classes: The number of classes or labels.
        offset: What is subtracted from the numbers of `class` and `indices`.
        is_float: Whether the numbers are stored as floats, and not as integers.
    """

    key: str
    form: str
    num_classes: int
    offset: int = 0
    is_float: bool = False

    @property
    def is_multi(self) -> bool:
        """Whether an example has several labels."""
        return self.form != "class"

    @property
    def rule(self) -> str:
        """What numbers are allowed, in words."""
        first, last = self.offset, self.offset + self.num_classes - 1
        if self.form == "class":
            return f"one whole number in {first}..{last}"
        if self.form == "indices":
            return f"whole numbers in {first}..{last}"
        values = "0 and 1" if self.form == "binary" else "-1, 0 and 1"
        return f"{self.num_classes} numbers out of {values}"

    def fits(self, values: list[Any]) -> bool:
        """Tells whether a record's numbers are allowed."""
        if self.form in ("class", "indices"):
            first, last = self.offset, self.offset + self.num_classes - 1
            return (len(values) == 1 or self.form == "indices") and all(first <= value <= last for value in values)
        allowed = (0, 1) if self.form == "binary" else (-1, 0, 1)
        return len(values) == self.num_classes and all(value in allowed for value in values)


@dataclasses.dataclass(frozen=True)
class RecordSplit:
    """The examples of one split that lie in TFRecord files, which are read from front to back.

    Attributes:
        name: `train` or `eval`.
        shards: The files, as the bytes that the operating system takes.
        counts: int64 [len(shards)], the records in each.
        source: The pattern that the files match, for messages.
        image_key: The key of the feature with the encoded picture.
        label: How the labels are told.
        labels: What they are, as in `Split`, where that is known without reading the records; else None.
    """

    name: str
    shards: tuple[bytes, ...]
    counts: np.ndarray
    source: str
    image_key: str
    label: LabelFormat
    labels: np.ndarray | None = None

    def __post_init__(self) -> None:
        assert len(self.shards) == len(self.counts), (len(self.shards), len(self.counts))
        assert self.labels is None or len(self.labels) == len(self), (len(self.labels), len(self))

    def __len__(self) -> int:
        return int(self.firsts[-1])

    @property
    def is_sequential(self) -> bool:
        """Whether the examples can only be read in sequence."""
        return True

    @functools.cached_property
    def firsts(self) -> np.ndarray:
        """int64 [len(shards) + 1], the example number of each shard's first record, and the number of examples."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def locate(self, index: int) -> tuple[bytes, int]:
        """Returns an example's shard, and its record's number within that, counted from 0."""
        shard = int(np.searchsorted(self.firsts, index, side="right")) - 1
        return self.shards[shard], int(index - self.firsts[shard])

    def path(self, index: int) -> str:
        """Returns the example's shard and record as text, e.g. `/data/train-00003#17`."""
        shard, number = self.locate(index)
        return f"{shard.decode('utf-8', 'backslashreplace')}#{number}"

    def origin(self, index: int) -> str:
        """Returns which record the example is, e.g. `record 17`."""
        return f"record {self.locate(index)[1]}"

    def read(self, indices: Sequence[int]) -> dict[int, bytes | UserError]:
        """Reads some examples' records, made for few: it goes through the headers of all before them.

        Returns:
            By example number the record, or an error that says what is wrong with it.
        """
        numbers: dict[bytes, list[int]] = {}
        for index in dict.fromkeys(indices):
            shard, number = self.locate(index)
            numbers.setdefault(shard, []).append(number)
        records = {
            (shard, number): record
            for shard, wanted in numbers.items()
            for number, record in zip(wanted, read_records(shard, wanted), strict=True)
        }
        return {index: records[self.locate(index)] for index in indices}
