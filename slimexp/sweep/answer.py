"""How a sweep ended: for its record, for the shell, for the screen and for its run in the store."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, NOT_RUN, SweepJob, first_line, read_sweep

if TYPE_CHECKING:
    from slimexp.sweep.parent import ParentRun

__all__ = ["sum_up", "verdict"]


def verdict(jobs: Sequence[SweepJob], signum: int, error: BaseException | None) -> tuple[str, int, str | None]:
    """Works out what a sweep came to.

    Args:
        jobs: Its jobs.
        signum: The signal that it was stopped by; 0 for none.
        error: What went wrong outside of its jobs; None for nothing.

    Returns:
        Its status, its exit code, and the reason where it did not finish. The exit code is that of the first job that
        failed, or 128 + N after signal N.
    """
    if signum:
        return KILLED, 128 + signum, f"stopped by {signal.Signals(signum).name}"
    if error is not None:
        return FAILED, 1, f"{type(error).__name__}: {error}"
    failed = [job for job in jobs if job.status in (FAILED, KILLED)]
    if failed or any(job.status == NOT_RUN for job in jobs):
        names = ", ".join(f"{job.number} ({first_line(job.reason).rstrip('.')})" for job in failed)
        code = next((job.exit_code for job in failed if job.exit_code), 1)
        return FAILED, code, f"{len(failed)} of {len(jobs)} jobs failed: {names}"
    return FINISHED, 0, None


def sum_up(sweep_dir: Path, parent: ParentRun | None, start_dir: Path) -> None:
    """Prints the table of a sweep and where all is, and records it in the sweep's run.

    Args:
        sweep_dir: Its folder.
        parent: Its run; None without.
        start_dir: The folder the user started in.
    """
    from slimexp.sweep.summary import summarize

    record = read_sweep(sweep_dir)
    print(flush=True)
    summary = summarize(sweep_dir, record.metric, record.direction, start_dir=start_dir)
    print(f"Sweep folder: {sweep_dir}")
    if parent is not None and parent.run_id:
        print(f"MLflow run:   {parent.run_id} in experiment {record.experiment}")
        print(f"Compare:      {parent.tracker.ui_command}")
    sys.stdout.flush()
    if any(job.status in (FAILED, KILLED, NOT_RUN) for job in record.asked):
        print("To go on: the same command again runs what is missing.", file=sys.stderr, flush=True)
    if summary is not None and parent is not None:
        parent.log(metrics=summary.metrics, tags=summary.tags, files=summary.files)
