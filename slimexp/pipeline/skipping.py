"""The bad images that a run leaves out: which, why, how many at the most, and the file that tells of them."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit
from slimexp.errors import UserError
from slimexp.pipeline.diagnose import Fault
from slimexp.pipeline.record_faults import DamagedShard

__all__ = ["FILE_NAME", "SkippedImages"]

FILE_NAME = "skipped_images.csv"

_log = logging.getLogger(__name__)
_COLUMNS = ("path", "origin", "reason")
_MOST_WARNINGS = 10
_MOST_LISTED = 20
# What is written of the records behind a damage in their shard.
_BEHIND = "it lies behind damage in its shard: "


class SkippedImages:
    """The examples of a split that are skipped because their files hold no picture that can be read.

    What the file in the run directory already lists is skipped from the start, so that a resumed run sees the stream
    that the one before it saw, also if a file has been mended meanwhile.

    Attributes:
        mask: bool [n], which examples are skipped.
    """

    def __init__(self, split: AnySplit, *, path: Path | None, max_fraction: float) -> None:
        """Reads what is skipped already.

        Args:
            split: The examples.
            path: The list file, of which other splits may use the same one; None keeps no list.
            max_fraction: The greatest share of the split's files that may be skipped, in 0..1; one always may.
        """
        self._split = split
        self._path = path
        self._max_fraction = max_fraction
        self._examples: dict[bytes, list[int]] | None = None
        self._reasons: dict[int, str] = {}
        self._num_new = 0
        self.mask = np.zeros(len(split), bool)
        self._listed = _read(path) if path is not None else {}
        if self._listed:
            for index in range(len(split)):
                reason = self._listed.get((split.path(index), split.origin(index)))
                if reason is not None:
                    self._reasons[index] = reason
        self.mask[list(self._reasons)] = True

    def __len__(self) -> int:
        """Returns the number of examples skipped."""
        return len(self._reasons)

    @property
    def limit(self) -> int:
        """The number of examples that may be skipped."""
        # A whole percentage of a round number must not fall short of it by the rounding of binary fractions.
        return max(1, int(self._max_fraction * len(self._split) + 1e-9))

    def are_skipped(self, indices: Any) -> np.ndarray:
        """Tells which of the examples with these numbers are skipped."""
        return self.mask[indices]

    def first_good(self, _: Any = None) -> int:
        """Returns the number of the first example that is not skipped; `add` sees to it that there is one."""
        return int(np.argmin(self.mask))

    def add(self, faults: Mapping[int, Fault]) -> list[int]:
        """Skips further examples, and any others that name the same files.

        Each is written to the list file at once, and warned of, up to ten; of the rest there is a count now and then.

        Args:
            faults: By example number; of bad images only.

        Returns:
            The numbers of the examples that were not skipped before.

        Raises:
            UserError: If that makes too many, or leaves none; the message lists them. They are in the list file all the
                same.
        """
        assert all(fault.is_bad_image for fault in faults.values())
        added = {
            other: fault.reason
            for index, fault in faults.items()
            for other in self._of_same_file(index)
            if other not in self._reasons
        }
        self._note(added)
        self._warn(added)
        self._check_limit()
        return list(added)

    def add_damaged_shards(self, damaged: Sequence[DamagedShard]) -> bool:
        """Skips the records of some shards from the damage on. Each shard is warned of.

        Args:
            damaged: The shards. If one cannot be opened, none is skipped.

        Returns:
            Whether any record was not skipped before.

        Raises:
            UserError: As `add`.
        """
        split = self._split
        assert isinstance(split, RecordSplit)
        if any(shard.record is None for shard in damaged):
            return False
        added: dict[int, str] = {}
        for shard in damaged:
            assert shard.record is not None
            rest = range(int(split.firsts[shard.shard]) + shard.record, int(split.firsts[shard.shard + 1]))
            new = {index: _BEHIND + shard.reason for index in rest if index not in self._reasons}
            if new:
                count = "1 record" if len(new) == 1 else f"{len(new)} records"
                _log.warning("Skipped the rest of a damaged shard, %s: %s", count, shard.reason)
            added.update(new)
        self._note(added)
        self._check_limit()
        return bool(added)

    def leave_out(self, indices: Sequence[int], reason: str) -> None:
        """Skips examples that are known to be unusable, without a word and whatever the limit; one must be left."""
        self._reasons.update(dict.fromkeys(indices, reason))
        self.mask[list(indices)] = True
        assert not self.mask.all()

    def num_to_read(self, shard: Any) -> int:
        """Returns how many records from its first one on are wanted of a shard; what is behind them is skipped."""
        split = self._split
        assert isinstance(split, RecordSplit)
        is_wanted = ~self.mask[split.firsts[shard] : split.firsts[shard + 1]]
        return int(np.flatnonzero(is_wanted)[-1]) + 1 if is_wanted.any() else 0

    def _note(self, added: Mapping[int, str]) -> None:
        self._reasons.update(added)
        self.mask[list(added)] = True
        self._write(added)

    def _check_limit(self) -> None:
        if len(self._reasons) > self.limit or self.mask.all():
            raise UserError(self._too_many())

    def _of_same_file(self, index: int) -> list[int]:
        split = self._split
        if isinstance(split, RecordSplit):
            return [index]
        if self._examples is None:  # Needed only once there is a bad image.
            self._examples = {}
            for number, path in enumerate(split.paths):
                self._examples.setdefault(path, []).append(number)
        return self._examples[split.paths[index]]

    def _write(self, added: Mapping[int, str]) -> None:
        if self._path is None:
            return
        rows = []
        for index, reason in added.items():
            key = (self._split.path(index), self._split.origin(index))
            if key not in self._listed:
                self._listed[key] = reason
                rows.append((*key, reason))
        if rows:
            _append(self._path, rows)

    def _warn(self, added: Mapping[int, str]) -> None:
        for index, reason in added.items():
            self._num_new += 1
            if self._num_new <= _MOST_WARNINGS:
                _log.warning("Skipped a bad image: %s: %s", self._name(index), reason)
        if added and self._num_new > _MOST_WARNINGS:
            where = "" if self._path is None else f"; {self._path} lists them"
            _log.warning("Skipped %d bad images of %s so far%s.", len(self), self._split.source, where)

    def _too_many(self) -> str:
        behind: dict[str, int] = {}
        for reason in self._reasons.values():
            if reason.startswith(_BEHIND):
                behind[reason] = behind.get(reason, 0) + 1
        lines = [
            f"  {count} records, the first of them damaged: {reason.removeprefix(_BEHIND)}"
            for reason, count in list(behind.items())[:_MOST_LISTED]
        ]
        alone = [(index, reason) for index, reason in self._reasons.items() if reason not in behind]
        lines += [f"  {self._name(index)}: {reason}" for index, reason in alone[: _MOST_LISTED - len(lines)]]
        if len(behind) + len(alone) > len(lines):
            where = "" if self._path is None else f" ({self._path} lists all)"
            lines.append(f"  and {len(behind) + len(alone) - len(lines)} more{where}")
        rule = f"dataset.max_bad_fraction={self._max_fraction:g} lets {self.limit} be skipped"
        if self.mask.all():
            rule = "none is left"
        return (
            f"{len(self)} of the {len(self._split)} images of {self._split.source} cannot be read, and {rule}:\n"
            + "\n".join(lines)
            + "\nMend or replace the files, take them out of the list, or raise dataset.max_bad_fraction."
        )

    def _name(self, index: int) -> str:
        return f"{self._split.origin(index)}: {self._split.path(index)!r}"


def _read(path: Path) -> dict[tuple[str, str], str]:
    """Reads a list file; a row that a crash cut short is left out."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    whole = text[: text.rfind("\n") + 1]
    rows = [row for row in csv.reader(io.StringIO(whole)) if len(row) == len(_COLUMNS)]
    return {(row[0], row[1]): row[2] for row in rows if tuple(row) != _COLUMNS}


def _append(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Adds rows to a list file, which is begun if it is not there, and sees to it that they reach the disk."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    with open(path, "ab+") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        if whole == 0:
            writer.writerow(_COLUMNS)
        writer.writerows(rows)
        file.write(buffer.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())
