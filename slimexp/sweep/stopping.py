"""How a sweep's processes, which may be on several machines, learn that it is to stop: by a file in its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["PRUNE_FILE", "Stop", "clear", "prune_request", "request", "requested"]

_FILE = ".stop"
# Written into a job's folder by a search that has seen enough of it.
PRUNE_FILE = "stop.json"

# What a disk did not take, by sweep.
_unwritten: dict[Path, Stop] = {}


@dataclasses.dataclass(frozen=True)
class Stop:
    """A wish that the sweep stops.

    Attributes:
        signum: The signal that the running jobs are to get; 0 lets them finish and only begins no other.
        count: How often it was wished; at the third time they are killed.
    """

    signum: int
    count: int = 1


def request(sweep_dir: Path, stop: Stop) -> None:
    """Asks all processes of a sweep to stop."""
    _unwritten.pop(sweep_dir, None)
    temporary = sweep_dir / f"{_FILE}.{os.getpid()}.tmp"
    try:
        temporary.write_text(json.dumps(dataclasses.asdict(stop)), encoding="utf-8")
        temporary.replace(sweep_dir / _FILE)
    except OSError:  # A full disk is no reason not to stop; the processes of a parallel launcher end with theirs.
        _unwritten[sweep_dir] = stop
        with contextlib.suppress(OSError):
            temporary.unlink()


def requested(sweep_dir: Path) -> Stop | None:
    """Returns what was asked for; None if nothing was."""
    if sweep_dir in _unwritten:
        return _unwritten[sweep_dir]
    content = _read(sweep_dir / _FILE)
    return Stop(int(content.get("signum", 0)), int(content.get("count", 1))) if content else None


def clear(sweep_dir: Path) -> None:
    """Takes back what an earlier start was asked for."""
    _unwritten.pop(sweep_dir, None)
    with contextlib.suppress(OSError):  # Read-only: then there is no file of this start either.
        (sweep_dir / _FILE).unlink(missing_ok=True)


def prune_request(job_dir: Path) -> dict[str, Any] | None:
    """Returns what a search wrote to end one job: `status`, `step` and `reason`; None if it has not."""
    return _read(job_dir / PRUNE_FILE)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
