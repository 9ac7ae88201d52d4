"""metrics.jsonl: the durable copy of a run's metrics, and the queue that the tracking server is fed from.

One line a call of the trainer, appended and handed to the operating system at once:

    {"step": 10, "time": 1767225600.25, "metrics": {"train/loss": 0.5, "train/gradient_norm": "NaN"}}

`time` is in Unix seconds. JSON has no number for what is not finite, so that is the text "NaN", "Infinity" or
"-Infinity". A process may be killed within a line: such a last line has no line end, is passed over by readers and
cut off before the next line is appended.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "MetricsFile",
    "MetricsRow",
    "columns",
    "describe_broken",
    "read_metrics",
    "scan_metrics",
    "truncate_after",
]

_LOG = logging.getLogger(__name__)
_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_READ_BYTES = 1 << 20


class MetricsRow(NamedTuple):
    """One line of the file.

    Attributes:
        step: The training step that the values belong to.
        time: Unix seconds.
        metrics: Values by name; may hold NaN and infinities.
    """

    step: int
    time: float
    metrics: dict[str, float]


class MetricsFile:
    """Appends rows to a metrics file and reads them back by position, from two threads at once.

    The writer never moves a shared file position, so a reader in the background sees whole lines in their order.
    """

    def __init__(self, path: Path | None) -> None:
        """Opens the file for appending and cuts off a half-written last line.

        Args:
            path: The file, created if needed; None keeps the rows in an unnamed temporary file.
        """
        self.path = path
        self._lock = threading.Lock()
        if path is None:
            self._file: Any = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115 (kept open for the run)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut_half_line(path)
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 (kept open for the run)
        self._size = os.fstat(self._file.fileno()).st_size

    def append(self, row: MetricsRow) -> None:
        """Appends one row.

        Raises:
            OSError: If the disk is full or gone; the file then ends with the last whole row.
        """
        line = encode_row(row)
        with self._lock:
            try:
                written = self._file.write(line)
                if written != len(line):
                    raise OSError(f"only {written} of {len(line)} bytes were written")
            except OSError:
                os.ftruncate(self._file.fileno(), self._size)
                self._file.seek(self._size)
                raise
            self._size += len(line)

    def read_from(self, offset: int, max_rows: int) -> list[tuple[MetricsRow, int]]:
        """Reads whole rows from a byte position on.

        Args:
            offset: Where to begin: 0, or the end of a row from an earlier call.
            max_rows: How many rows to return at most.

        Returns:
            Rows, each with the position where it ends; empty when all has been read.
        """
        rows: list[tuple[MetricsRow, int]] = []
        wanted = _READ_BYTES
        while offset < self._size and len(rows) < max_rows:
            block = os.pread(self._file.fileno(), min(wanted, self._size - offset), offset)
            if not block:
                break  # Somebody else cut the file.
            if b"\n" not in block:
                if len(block) < wanted:
                    break
                wanted *= 2  # A row longer than the block.
                continue
            for line in block.split(b"\n")[:-1]:
                if len(rows) == max_rows:
                    break
                offset += len(line) + 1
                row = _decode_row(line)
                if row is not None:
                    rows.append((row, offset))
        return rows

    def close(self) -> None:
        """Closes the file; an unnamed one is gone then."""
        self._file.close()


def encode_row(row: MetricsRow) -> bytes:
    """Returns the row as a line of JSON, UTF-8, with its line end."""
    metrics = {name: _json_number(value) for name, value in row.metrics.items()}
    content = {"step": row.step, "time": row.time, "metrics": metrics}
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


def read_metrics(path: str | os.PathLike[str]) -> list[MetricsRow]:
    """Reads a metrics file.

    A half-written last line is passed over; any other line that is no row is passed over with a warning.

    Args:
        path: The `metrics.jsonl` of a run.

    Returns:
        The rows in the order in which they were logged.
    """
    rows, broken = scan_metrics(path)
    if broken:
        _LOG.warning("%s: passed over %s", path, describe_broken(broken))
    return rows


def scan_metrics(path: str | os.PathLike[str]) -> tuple[list[MetricsRow], list[int]]:
    """Reads a metrics file; returns its rows and the numbers of the lines that are none, counted from 1."""
    rows, broken = [], []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            row = _decode_row(line)
            if row is None:
                broken.append(number)
            else:
                rows.append(row)
    return rows, broken


def describe_broken(numbers: Sequence[int]) -> str:
    """Says how many lines are unreadable, and which ones to begin with."""
    first = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} unreadable line(s): {first}"


def columns(rows: Iterable[MetricsRow]) -> dict[str, tuple[list[int], list[float]]]:
    """Turns rows into one column a metric: its steps and its values, in the order of the rows."""
    result: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, value in row.metrics.items():
            steps, values = result.setdefault(name, ([], []))
            steps.append(row.step)
            values.append(value)
    return result


def truncate_after(path: str | os.PathLike[str], step: int) -> int:
    """Drops the rows of later steps, so that a run resumed from a checkpoint logs each step once.

    Args:
        path: The `metrics.jsonl` of a run; it need not exist.
        step: The checkpoint's step, the last one that is kept.

    Returns:
        How many rows were dropped; unreadable lines, which are dropped as well, are said in a warning.
    """
    path = Path(path)
    if not path.exists():
        return 0
    dropped = 0
    broken: list[int] = []
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(path, "rb") as source, open(temporary, "wb") as target:
            for number, line in enumerate(source, start=1):
                row = _decode_row(line) if line.endswith(b"\n") else None
                if row is not None and row.step <= step:
                    target.write(line)
                elif row is None and line.endswith(b"\n"):
                    broken.append(number)
                else:
                    dropped += row is not None
            target.flush()
            os.fsync(target.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if broken:
        _LOG.warning("%s: dropped %s", path, describe_broken(broken))
    return dropped


def _json_number(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _decode_row(line: bytes) -> MetricsRow | None:
    try:
        content = json.loads(line)
        metrics: Mapping[str, Any] = content["metrics"]
        values = {name: _NONFINITE[v] if isinstance(v, str) else float(v) for name, v in metrics.items()}
        row = MetricsRow(int(content["step"]), float(content["time"]), values)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    # What no store could take: it has 64 bits for a step and for a time in milliseconds.
    return row if abs(row.step) < 1 << 63 and 0 <= row.time < 1e15 else None


def _cut_half_line(path: Path) -> None:
    """Cuts the file behind its last line end."""
    if not path.exists():
        return
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 4096)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                position = start + newline + 1
                break
            position = start
        if position < end:
            file.truncate(position)
