"""Hands jobs to a launcher, and puts right afterwards what they could not note of themselves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.plugins.launcher import Launcher

from slimexp.jobs.starting import disk_trouble
from slimexp.sweep.jobs import ENDED, FAILED, KILLED, RUNNING, SweepJob, note_job, read_sweep
from slimexp.sweep.plan import PlannedJob, quoted
from slimexp.sweep.process import read_result, write_job
from slimexp.sweep.screen import say
from slimexp.sweep.task import outcome_of

if TYPE_CHECKING:
    from slimexp.sweep.parent import ParentRun

__all__ = ["launch"]


def launch(
    batch: Sequence[PlannedJob],
    launcher: Launcher,
    *,
    sweep_dir: Path,
    parent: ParentRun,
    start_dir: Path,
    is_stopping: Callable[[], bool],
) -> None:
    """Runs jobs and waits for them; how each ended stands in the sweep's record, in its folder and in the store.

    Args:
        batch: The jobs, which the record has.
        launcher: Set up.
        sweep_dir: The sweep's folder.
        parent: Its run.
        start_dir: The folder the user started in.
        is_stopping: Tells whether the sweep is to stop; the launcher's failures are then part of that.
    """
    where = f"hydra.sweep.dir={quoted(str(sweep_dir))}"
    before = {job.number: job.run_id for job in read_sweep(sweep_dir).jobs}
    ready = [job for job in batch if _prepare(job, sweep_dir, parent, start_dir)]
    jobs = [[*job.overrides, where, f"hydra.sweep.subdir={quoted(job.subdir)}"] for job in ready]
    trouble = None
    try:
        if ready:
            launcher.launch(jobs, initial_job_idx=ready[0].number)
    except OSError as error:  # Of Hydra's own notes in a job's folder; the other jobs may fare better.
        trouble = disk_trouble(error, sweep_dir)
        if trouble is None and not is_stopping():
            raise
    except BaseException:
        # What workers were waiting for has lost them; the jobs end by themselves, with their checkpoints.
        if not is_stopping():
            raise
    finally:
        numbers = {job.number for job in batch}
        for job in read_sweep(sweep_dir).jobs:
            if job.number in numbers:
                _settle(job, sweep_dir, parent, before.get(job.number), trouble)


def _prepare(job: PlannedJob, sweep_dir: Path, parent: ParentRun, start_dir: Path) -> bool:
    """Writes what a job's process is to do; where that fails, the job has failed."""
    try:
        _write_job(job, sweep_dir, parent, start_dir)
    except OSError as error:
        reason = disk_trouble(error, sweep_dir / job.subdir) or str(error)
        say(f"\nJob {job.number}: {job.name}\nJob {job.number}: {FAILED}: {reason}")
        note_job(sweep_dir, job.number, status=FAILED, exit_code=1, reason=reason)
        return False
    return True


def _write_job(job: PlannedJob, sweep_dir: Path, parent: ParentRun, start_dir: Path) -> None:
    numbers = {}
    for key, value in job.swept.items():
        with contextlib.suppress(ValueError):
            numbers[key] = float(value)
    write_job(
        sweep_dir / job.subdir,
        {
            "program": sys.argv[0],
            "overrides": job.overrides,
            "start_dir": str(start_dir),
            "config": job.values,
            "identity": job.identity,
            "logging": job.logging,
            "verbose": job.verbose,
            "job": {
                "sweep": str(sweep_dir),
                "number": job.number,
                "name": job.name,
                "parent_run_id": parent.run_id,
                "numbers": numbers,
            },
        },
    )


def _settle(job: SweepJob, sweep_dir: Path, parent: ParentRun, earlier_run: str | None, trouble: str | None) -> None:
    """Puts right what a job that was launched could not note itself, in the record and in the store."""
    if job.status == RUNNING:
        result = read_result(sweep_dir / job.dir)
        job.status, job.exit_code, job.reason = KILLED, 137, "the process that waited for it was ended"
        if result is not None:
            job.status, outcome = outcome_of(result.exit_code, result)
            job.exit_code, job.reason = outcome.exit_code, outcome.reason
        note_job(sweep_dir, job.number, status=job.status, exit_code=job.exit_code, reason=job.reason)
    elif trouble is not None and job.status not in ENDED:
        say(f"Job {job.number}: {FAILED}: {trouble}")
        job.status, job.exit_code, job.reason = FAILED, 1, trouble
        note_job(sweep_dir, job.number, status=FAILED, exit_code=1, reason=trouble)
    parent.settle(job, sweep_dir / job.dir)
    if earlier_run and job.run_id and job.run_id != earlier_run:
        parent.supersede(earlier_run, job.run_id)
