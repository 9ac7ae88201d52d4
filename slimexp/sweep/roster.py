"""Which jobs a sweep has: each with a number and a folder that no other one has, and which of them have been done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hydra.types import HydraContext
from omegaconf import DictConfig

from slimexp.hydra_errors import explain
from slimexp.sweep.jobs import FINISHED, Sweep, SweepJob
from slimexp.sweep.plan import PlannedJob, plan_job
from slimexp.sweep.resume import Earlier
from slimexp.validation import flatten

__all__ = ["Roster"]

# Where a job writes beside its folder, by the job.
_OUTPUTS = {"predict": "predict.output", "export": "export.dir"}


class Roster:
    """Plans the jobs of one sweep, some at a time.

    Args:
        context: Hydra's.
        config: The sweep's configuration, without a job's overrides.
        start_dir: The folder the user started in.
        sweep_dir: The sweep's folder.
        record: The record of its earlier start; None without one.

    Attributes:
        keys: The keys that the sweep is over, as far as they are known.
    """

    def __init__(
        self, context: HydraContext, config: DictConfig, *, start_dir: Path, sweep_dir: Path, record: Sweep | None
    ) -> None:
        self._context, self._config = context, config
        self._start_dir, self._sweep_dir = start_dir, sweep_dir
        self._earlier = Earlier(record, sweep_dir)
        self._next = self._earlier.next_number()
        self._subdirs = {job.dir: job.number for job in self._earlier.jobs}
        self._secrets: dict[str, list[str]] = {}
        self._outputs: dict[tuple[str, str], int] = {}
        self.keys: list[str] = []

    @property
    def earlier_jobs(self) -> list[SweepJob]:
        """The jobs of the earlier start, as they have ended."""
        return self._earlier.jobs

    def add_keys(self, keys: Sequence[str]) -> None:
        """Adds to the keys that the sweep is over."""
        self.keys = list(dict.fromkeys([*self.keys, *keys]))

    def plan(
        self, jobs: Sequence[Sequence[str]], *, swept: Sequence[str], numbers: Sequence[int] | None = None
    ) -> list[PlannedJob]:
        """Composes and checks jobs, and finds out which of them an earlier start has run.

        Args:
            jobs: The overrides of each.
            swept: The keys that the sweep is over.
            numbers: The jobs' numbers, where the caller knows; else those that the earlier start gave to jobs with the
                same settings, or the next free ones.

        Returns:
            The jobs; what is wrong with one is in its `error`.
        """
        self.add_keys(swept)
        planned = []
        for i, overrides in enumerate(jobs):
            number = self._next if numbers is None else numbers[i]
            job = self._plan_job(overrides, number, swept)
            found = self._earlier.find(job) if numbers is None else None
            if found is not None and found.number != number:
                error, number = job.error, found.number
                job = self._plan_job(overrides, number, swept)
                job.error = error
            if found is not None:
                job.subdir, job.why = found.dir, self._earlier.why(found)
            self._refuse_shared_folder(job)
            self._refuse_shared_output(job)
            self._next = max(self._next, number + 1)
            planned.append(job)
        return planned

    def check(self, jobs: Sequence[Sequence[str]], *, swept: Sequence[str]) -> list[PlannedJob]:
        """Composes and checks jobs that are not to be run: their numbers count for nothing."""
        return [self._plan_job(overrides, number, swept) for number, overrides in enumerate(jobs)]

    def due(self, planned: Sequence[PlannedJob]) -> list[PlannedJob]:
        """Returns those of the jobs that have not finished."""
        done = {job.number for job in self._earlier.jobs if job.status == FINISHED}
        return [job for job in planned if job.number not in done]

    def leave_out_others(self, planned: Sequence[PlannedJob]) -> list[int]:
        """Lets only these jobs count: a folder may hold those of another command, or of a preset as it was before.

        Returns:
            The numbers of the others.
        """
        numbers = {job.number for job in planned}
        for job in self._earlier.jobs:
            job.asked = job.number in numbers
        return [job.number for job in self._earlier.jobs if not job.asked]

    def _plan_job(self, overrides: Sequence[str], number: int, swept: Sequence[str]) -> PlannedJob:
        return plan_job(
            self._context,
            self._config,
            overrides,
            number=number,
            keys=swept,
            start_dir=self._start_dir,
            sweep_dir=self._sweep_dir,
            explain=explain,
            hide=self._hide,
        )

    def _hide(self, key: str, value: str) -> str:
        """Returns a swept value as it may be kept and shown: of secrets only which of them it is."""
        from slimexp.tracking.masking import MASK, is_secret_key, mask_text

        if not is_secret_key(key):
            text = mask_text(f"{key}={value}").partition("=")[2]
            if text == value:
                return value
        known = self._secrets.setdefault(key, [])
        if value not in known:
            known.append(value)
        return f"{MASK}{known.index(value) + 1}"

    def _refuse_shared_folder(self, job: PlannedJob) -> None:
        """Gives a job an error if its folder is another one's."""
        owner = self._subdirs.setdefault(job.subdir, job.number)
        if owner != job.number and job.error is None:
            job.error = (
                f"hydra.sweep.subdir={job.subdir}: the jobs {owner} and {job.number} would share this folder. Let it "
                "hold what tells them apart, e.g. ${hydra.job.num}."
            )

    def _refuse_shared_output(self, job: PlannedJob) -> None:
        """Gives a job an error if it would write where another one does, and take its results away."""
        if job.config is None or job.error is not None:
            return
        values = flatten(job.config)
        for name, key in _OUTPUTS.items():
            path = values.get(key)
            is_screen = Path(str(path)).name == "-" or str(path).startswith("/dev/")
            if job.config.job.name != name or path is None or is_screen:
                continue
            owner = self._outputs.setdefault((key, os.path.realpath(str(path))), job.number)
            if owner != job.number:
                job.error = (
                    f"{key}={path}: the jobs {owner} and {job.number} would both write there. Leave it out, which "
                    "gives each job a place in its own folder, or sweep over it as well."
                )
