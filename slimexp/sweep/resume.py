"""Finds the earlier start of a sweep, and which of its jobs have been done."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from slimexp.errors import UserError
from slimexp.sweep.identity import changed_keys
from slimexp.sweep.jobs import (
    FAILED,
    FINISHED,
    KILLED,
    NOT_RUN,
    PRUNED,
    RECORD_FILE,
    RUNNING,
    Sweep,
    SweepJob,
    read_sweep,
)
from slimexp.sweep.plan import PlannedJob, masked
from slimexp.sweep.process import JOB_FILE, read_result
from slimexp.sweep.task import outcome_of

__all__ = ["Earlier", "find_earlier"]

# Keys that say how a sweep is run and where it is recorded, not what it is.
_APART = (
    *(
        "sweep.on_failure=",
        "sweep.gpus_per_job=",
        "sweep.resume=",
        "sweep.search.",
        "sweep.metric=",
        "sweep.direction=",
    ),
    *("dry_run=", "tracking.run_name="),
)
_WHY = {
    RUNNING: "it was begun",
    KILLED: "it was stopped",
    FAILED: "it failed",
    PRUNED: "it was pruned",
    NOT_RUN: "it was not begun",
}


def find_earlier(
    sweep_dir: Path, *, sweeps: Path, overrides: Sequence[str], start_dir: Path, anew: bool
) -> tuple[Path, Sweep | None]:
    """Returns the folder for a sweep, and the record of its earlier start if there was one.

    Args:
        sweep_dir: The folder that Hydra chose, or the user.
        sweeps: The folder in which sweeps have theirs, at DAY/TIME.
        overrides: The command's.
        start_dir: The folder the user started in.
        anew: Whether to leave earlier ones alone.

    Raises:
        UserError: If `anew`, and the folder itself has a sweep already.
    """
    if (sweep_dir / RECORD_FILE).is_file():
        if anew:
            raise UserError(
                f"sweep.resume=never: hydra.sweep.dir={sweep_dir} holds a sweep. Choose another folder, delete it, or "
                "go on there with sweep.resume=auto."
            )
        return sweep_dir, read_sweep(sweep_dir)
    # A folder elsewhere was named by the user: what there is not, is not.
    found = [] if anew or sweeps not in sweep_dir.parents else sorted(sweeps.glob(f"*/*/{RECORD_FILE}"), reverse=True)
    for path in found:
        with contextlib.suppress(UserError):  # Another version's, or damaged: a sweep anew.
            record = read_sweep(path.parent)
            if record.start_dir == str(start_dir) and _same(record.overrides, overrides):
                return path.parent, record
    return sweep_dir, None


class Earlier:
    """The jobs of a sweep's earlier starts, each to be found again once.

    Args:
        record: The earlier record; None for none.
        sweep_dir: The sweep's folder.
    """

    def __init__(self, record: Sweep | None, sweep_dir: Path) -> None:
        self._sweep_dir = sweep_dir
        self.jobs = list(record.jobs) if record else []
        self._left = list(self.jobs)
        for job in self.jobs:
            self._settle(job)

    def next_number(self) -> int:
        """Returns the first number that no job has."""
        return max((job.number for job in self.jobs), default=-1) + 1

    def find(self, planned: PlannedJob) -> SweepJob | None:
        """Returns the job that a planned one is; where its settings have changed since, the plan gets an error."""
        same = next((job for job in self._left if job.hash and job.hash == planned.hash), None)
        if same is None:
            overrides = masked(planned.overrides)
            same = next((job for job in self._left if job.overrides == overrides), None)
            if same is not None and planned.config is not None and same.hash:
                before = self._identity(same)
                if before and same.status != NOT_RUN:
                    planned.error = (
                        f"{same.name}: its folder {self._sweep_dir / same.dir} holds a job with other settings: "
                        f"{changed_keys(before, planned.identity)}. Put them back to go on, or begin the sweep anew: "
                        "sweep.resume=never."
                    )
        if same is not None:
            self._left.remove(same)
        return same

    def why(self, job: SweepJob) -> str:
        """Says why a job is started again."""
        return _WHY.get(job.status, "its folder is gone" if job.status == FINISHED else "")

    def _settle(self, job: SweepJob) -> None:
        """Works out what became of a job that the sweep did not see the end of."""
        folder = self._sweep_dir / job.dir
        if job.status == RUNNING:
            result = read_result(folder)
            job.status, job.exit_code, job.reason = KILLED, 137, "the sweep was ended while it ran"
            if result is not None:  # It ended by itself after that.
                job.status, outcome = outcome_of(result.exit_code, result)
                job.exit_code, job.reason = outcome.exit_code, outcome.reason
        elif job.status == FINISHED and not folder.is_dir():
            job.status, job.reason = NOT_RUN, "its folder is gone"

    def _identity(self, job: SweepJob) -> dict[str, object]:
        try:
            return dict(json.loads((self._sweep_dir / job.dir / JOB_FILE).read_text(encoding="utf-8"))["identity"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _same(first: Sequence[str], second: Sequence[str]) -> bool:
    def kept(overrides: Sequence[str]) -> list[str]:
        return sorted(override for override in overrides if not override.lstrip("+").startswith(_APART))

    return kept(first) == kept(second)
