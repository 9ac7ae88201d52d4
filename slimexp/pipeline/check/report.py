"""What a walk through a split came to: faults, remarks, sizes, counts."""

from __future__ import annotations

import collections
import csv
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from slimexp.dataset.checks import counted
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.evaluation.tables import replace_file
from slimexp.pipeline.check.examine import DIGEST_BYTES, Finding
from slimexp.pipeline.check.kinds import expected_format
from slimexp.pipeline.check.walk import ShardFinding
from slimexp.pipeline.images.pillow_decode import LARGE_PIXELS

__all__ = ["FaultRow", "Remark", "SplitReport", "class_rows", "class_warnings", "write_table"]

# Below this many pixels a side there is hardly a picture; such files are often counters or spacers of web pages.
_TINY_PX = 8
_NARROW_RATIO = 10
_NAMES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class FaultRow:
    """An example or a shard that cannot be used.

    Attributes:
        split: The split's name.
        path: The file, or the shard and the record.
        origin: Where it was named: list and line, folder, record.
        reason: What is wrong, in words.
        num_examples: How many examples it costs.
    """

    split: str
    path: str
    origin: str
    reason: str
    num_examples: int = 1


@dataclasses.dataclass(frozen=True)
class Remark:
    """What is odd about an example that can be used all the same."""

    split: str
    path: str
    origin: str
    kind: str
    remark: str


class SplitReport:
    """Adds up findings.

    Attributes:
        split: The examples.
        faults: In the order in which they were found; see `sorted_faults`.
        remarks: Likewise.
        num_done: The examples that were looked at or are known to be lost.
        is_sound: bool [n], which examples can be used.
        labels: The labels, as in `Split`; of records those that could be read.
        has_label: bool [n], whose labels are known.
        num_bytes: int64 [n], the encoded pictures' sizes.
        digests: uint64 [n, 2], hashes of the encoded pictures.
        has_digest: bool [n], whose are known.
        sides: int32 [n, 2], height and width as stored; 0 where they are unknown.
        formats: How many pictures there are of each format.
        notes: How many there are of each unusual kind.
        num_turned: How many EXIF says are to be turned or mirrored.
        num_damaged_shards: The shards that cannot be read to their end.
    """

    def __init__(self, split: AnySplit, num_classes: int) -> None:
        count = len(split)
        self.split = split
        self._faults: list[tuple[int, FaultRow]] = []
        self._remarks: list[tuple[int, Remark]] = []
        self.num_done = 0
        self.is_sound = np.zeros(count, bool)
        if isinstance(split, RecordSplit):
            shape = (count, num_classes) if split.label.is_multi else (count,)
            self.labels = np.zeros(shape, np.int8 if split.label.is_multi else np.int32)
            self.has_label = np.zeros(count, bool)
        else:
            self.labels = split.labels
            self.has_label = np.ones(count, bool)
        self.num_bytes = np.zeros(count, np.int64)
        self.digests = np.zeros([count, DIGEST_BYTES // 8], np.uint64)
        self.has_digest = np.zeros(count, bool)
        self.sides = np.zeros([count, 2], np.int32)
        self.formats: collections.Counter[str] = collections.Counter()
        self.notes: collections.Counter[str] = collections.Counter()
        self.num_turned = 0
        self.num_damaged_shards = 0

    @property
    def faults(self) -> list[FaultRow]:
        """The faults, in the order of the split."""
        return [row for _, row in sorted(self._faults, key=lambda pair: pair[0])]

    @property
    def num_faults(self) -> int:
        """The number of faults; a damaged shard is one."""
        return len(self._faults)

    @property
    def remarks(self) -> list[Remark]:
        """The remarks, in the order of the split."""
        return [row for _, row in sorted(self._remarks, key=lambda pair: pair[0])]

    @property
    def known_sides(self) -> np.ndarray:
        """int32 [k, 2], the heights and widths that are known."""
        return self.sides[self.sides[:, 0] > 0]

    def add(self, finding: Finding | ShardFinding) -> None:
        """Takes the next finding."""
        if isinstance(finding, ShardFinding):
            self._add_shard(finding)
            return
        index = finding.index
        self.num_done += 1
        if finding.digest is not None:
            self.num_bytes[index] = finding.num_bytes
            self.digests[index] = np.frombuffer(finding.digest, np.uint64)
            self.has_digest[index] = True
        if finding.labels is not None:
            self.labels[index] = finding.labels
            self.has_label[index] = True
        if finding.fault is not None:
            name, path, origin = self._name(index)
            self._faults.append((index, FaultRow(name, path, origin, finding.fault.reason)))
            return
        self.is_sound[index] = True
        self._add_kind(finding)

    def _add_shard(self, finding: ShardFinding) -> None:
        split = self.split
        assert isinstance(split, RecordSplit)
        path = split.shards[finding.shard].decode("utf-8", "backslashreplace")
        lost = int(split.counts[finding.shard]) - finding.num_read
        self.num_done += lost
        self.num_damaged_shards += 1
        where = f"record {finding.num_read}" + ("" if finding.offset is None else f", byte {finding.offset}")
        reason = finding.reason.removeprefix(f"{path}: ").removesuffix(".")
        num_read, verb = counted(finding.num_read, "record"), "is" if lost == 1 else "are"
        reason += f" ({num_read} could be read before it, {lost} {verb} lost)"
        first = int(split.firsts[finding.shard]) + finding.num_read
        self._faults.append((first, FaultRow(split.name, path, where, reason, lost)))

    def _add_kind(self, finding: Finding) -> None:
        kind = finding.kind
        if finding.is_damaged:
            self._remark(finding.index, "damaged", "its pixel data are damaged, so that a part may look wrong")
        if kind is None:
            return
        self.sides[finding.index] = kind.height, kind.width
        self.formats[kind.format] += 1
        self.notes.update(kind.notes)
        self.num_turned += kind.orientation != 1
        size = f"{kind.width} x {kind.height} pixels"
        if min(kind.height, kind.width) < _TINY_PX:
            self._remark(finding.index, "tiny", size)
        if kind.height * kind.width > LARGE_PIXELS:
            self._remark(finding.index, "large", size)
        if max(kind.height, kind.width) >= _NARROW_RATIO * min(kind.height, kind.width):
            self._remark(finding.index, "narrow", size)
        if not isinstance(self.split, RecordSplit):
            name = self.split.path(finding.index)
            expected = expected_format(name)
            if expected not in (None, kind.format):
                remark = f"it is a {kind.format}, and its name ends in {os.path.splitext(name)[1]}"
                self._remark(finding.index, "extension", remark)

    def _remark(self, index: int, kind: str, remark: str) -> None:
        name, path, origin = self._name(index)
        self._remarks.append((index, Remark(name, path, origin, kind, remark)))

    def _name(self, index: int) -> tuple[str, str, str]:
        return self.split.name, self.split.path(index), self.split.origin(index)


def class_rows(data: Dataset, reports: Sequence[SplitReport]) -> list[dict[str, object]]:
    """Counts the labels of each class.

    Returns:
        A row a class: `class`; and for each split NAME, the examples of the class, and NAME_faults, how many of them
        cannot be used; of multi-label data NAME_positive, NAME_negative and NAME_dont_care.
    """
    rows: list[dict[str, object]] = [{"class": name} for name in data.class_names]
    for report in reports:
        name = report.split.name
        if data.task == "single":
            labels, is_sound = report.labels[report.has_label], report.is_sound[report.has_label]
            counts = {name: labels, f"{name}_faults": labels[~is_sound]}
            columns = {key: np.bincount(value, minlength=data.num_classes) for key, value in counts.items()}
        else:
            labels = report.labels[report.has_label]
            values = {"positive": 1, "negative": -1, "dont_care": 0}
            columns = {f"{name}_{key}": np.count_nonzero(labels == value, axis=0) for key, value in values.items()}
        for key, column in columns.items():
            for row, count in zip(rows, column.tolist(), strict=True):
                row[key] = count
    return rows


def class_warnings(data: Dataset, rows: Sequence[dict[str, object]]) -> list[str]:
    """Says which classes have no example, or of multi-label data no positive or no negative one."""
    warnings = []
    splits = ["train", *(["eval"] if data.eval is not None else [])]
    columns = {
        f"{split}{suffix}": f"{what} in {split}"
        for split in splits
        for suffix, what in (
            (("", "without an example"),)
            if data.task == "single"
            else (("_positive", "never positive"), ("_negative", "never negative"))
        )
    }
    for column, what in columns.items():
        names = [repr(row["class"]) for row in rows if row.get(column) == 0]
        if names:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            label = "class" if data.task == "single" else "label"
            count = (
                f"1 {label} is" if len(names) == 1 else f"{len(names)} {label}{'es' if label == 'class' else 's'} are"
            )
            warnings.append(f"{count} {what}: {', '.join(names[:_NAMES_SHOWN])}{more}.")
    return warnings


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Writes rows as a CSV file, UTF-8; also without a row it has its header."""

    def write(temporary: Path) -> None:
        # A file name may hold bytes that are no UTF-8; they are shown escaped.
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            writer = csv.DictWriter(file, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    replace_file(path, write)
