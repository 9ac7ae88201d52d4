"""Runs the jobs of a sweep through a launcher, whatever becomes of them, and sums them up.

Both sweepers, `grid` and `search`, work through `SweepRunner`: they say which jobs, it does the rest. Overrides become
jobs in the roster; these go into the sweep's folder, to the launcher, and into the sweep's answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from hydra.core.override_parser.types import Override
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from slimexp.config import Config
from slimexp.errors import UserError
from slimexp.jobs.starting import disk_trouble
from slimexp.sweep import screen, stopping
from slimexp.sweep.answer import sum_up, verdict
from slimexp.sweep.folder import SweepFolder
from slimexp.sweep.jobs import FAILED, Sweep, SweepJob, edit_sweep, read_sweep
from slimexp.sweep.launch import launch
from slimexp.sweep.plan import PlannedJob
from slimexp.sweep.roster import Roster
from slimexp.sweep.signals import SweepSignals
from slimexp.sweep.stopping import Stop

__all__ = ["SweepRunner", "active", "exit_codes"]

# What the sweeps of this process came to; an exception would be announced by Hydra once more on its way.
exit_codes: list[int] = []
_active: list[SweepRunner] = []


def active() -> bool:
    """Tells whether this is the process that runs a sweep, and not a launcher's worker."""
    return bool(_active)


class SweepRunner:
    """Runs the jobs of one sweep; entered, it takes the signals.

    On the way out it closes the record and the parent run, prints the summary, leaves the exit code, and lets go of the
    sweep's folder.

    Args:
        hydra_context: As a sweeper gets it from Hydra, like the next one.
        config: See above; without a job's overrides.
        launcher: Set up.
        arguments: The overrides of the command.

    Attributes:
        dir: The sweep's folder, absolute; that of an earlier start of the same sweep, where there was one.
        record: The record of that; None without.
        dry_run: Whether nothing is to be run.
    """

    def __init__(
        self,
        *,
        hydra_context: HydraContext,
        config: DictConfig,
        launcher: Launcher,
        arguments: Sequence[str],
    ) -> None:
        for argument in arguments:
            if argument.lstrip("+").startswith(("sweep.", "dry_run=")) and "," in argument and "[" not in argument:
                raise UserError(f"{argument}: is the same for all jobs of a sweep; give it one value.")
        self._config, self._launcher = config, launcher
        self._start_dir = Path.cwd()
        self.dry_run = OmegaConf.select(config, "dry_run") is True
        self._folder = SweepFolder(config, arguments, start_dir=self._start_dir, hold=not self.dry_run)
        self.dir: Path = self._folder.dir
        self.record: Sweep | None = self._folder.record
        self._roster = Roster(hydra_context, config, start_dir=self._start_dir, sweep_dir=self.dir, record=self.record)
        self._signals = SweepSignals(self._pass_on)
        self._began = time.monotonic()

    @property
    def stopping(self) -> bool:
        """Whether no further job is to begin: after a signal, or a failure with `sweep.on_failure=stop`."""
        return self._signals.count > 0 or (self._is_open and stopping.requested(self.dir) is not None)

    def warn_about_lists(self, overrides: Sequence[Override]) -> None:
        """Says where a list may have been meant instead of a sweep."""
        screen.warn_about_lists(self._config, overrides)

    def plan(
        self, jobs: Sequence[Sequence[str]], *, swept: Sequence[str], numbers: Sequence[int] | None = None
    ) -> list[PlannedJob]:
        """Composes and checks jobs, see `Roster.plan`."""
        return self._roster.plan(jobs, swept=swept, numbers=numbers)

    def check(self, jobs: Sequence[Sequence[str]], *, swept: Sequence[str]) -> list[PlannedJob]:
        """Composes and checks jobs that are not to be run: their numbers count for nothing."""
        return self._roster.check(jobs, swept=swept)

    def rehearse(self, planned: Sequence[PlannedJob]) -> None:
        """Checks all that can be checked of the jobs without running them, prints it, and sets the exit code."""
        from slimexp.sweep.dry_run import rehearse

        exit_codes.append(rehearse(planned))

    def refuse_errors(self, planned: Sequence[PlannedJob]) -> None:
        """Raises one error that names all jobs whose settings are wrong, each message once."""
        screen.refuse_errors(planned)

    def leave_out_others(self, planned: Sequence[PlannedJob]) -> None:
        """Lets only these jobs count, and says which others the folder holds."""
        screen.note_others(self.dir, self._roster.leave_out_others(planned))

    def announce(self, planned: Sequence[PlannedJob]) -> None:
        """Shows how many jobs there are, and which."""
        screen.announce(
            planned,
            self._roster.due(planned),
            keys=self._roster.keys,
            earlier_dir=self.dir if self.record is not None else None,
            side_by_side=not self._is_serial,
        )

    def __enter__(self) -> SweepRunner:
        self._signals.take()
        _active.append(self)
        return self

    def begin(self, config: Config, keys: Sequence[str]) -> None:
        """Makes the sweep's folder, its record and the parent run before the first job is known; else `run` does.

        Args:
            config: Of any job.
            keys: The keys that the sweep is over.
        """
        self._roster.add_keys(keys)
        if not self._is_open:
            self._folder.open(config, keys=self._roster.keys, jobs=self._roster.earlier_jobs)

    def run(self, planned: Sequence[PlannedJob]) -> list[SweepJob]:
        """Runs those of the jobs that have not finished, through the launcher.

        The first call makes the sweep's folder, its record and the parent run.

        Args:
            planned: From `plan`.

        Returns:
            The jobs as they ended, or were not begun. One with an `error` is FAILED for that reason.

        Raises:
            UserError: If the folder or the tracking store cannot be used, or another process runs this sweep.
        """
        if not self._is_open:
            config = next((job.config for job in planned if job.config is not None), None)
            if config is None:
                raise UserError(next(job.error for job in planned if job.error) or "There are no jobs.")
            self.begin(config, ())
        self._folder.add(planned)
        due = [job for job in self._roster.due(planned) if job.error is None]
        # One at a time, so that no folder is made for a job that is not begun.
        batches = [[job] for job in due] if self._is_serial else [due]
        for batch in batches:
            if batch and not self.stopping:
                assert self._folder.parent is not None
                launch(
                    batch,
                    self._launcher,
                    sweep_dir=self.dir,
                    parent=self._folder.parent,
                    start_dir=self._start_dir,
                    is_stopping=lambda: self.stopping,
                )
        numbers = {job.number for job in planned}
        return [job for job in read_sweep(self.dir).jobs if job.number in numbers]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A signal from here on is for a sweep that has ended; its summary takes seconds.
        try:
            if self._is_open:
                self._close(error)
        finally:
            self._folder.release()
            _active.remove(self)
            self._signals.restore()

    @property
    def _is_open(self) -> bool:
        return self._folder.parent is not None

    @property
    def _is_serial(self) -> bool:
        return type(self._launcher).__name__ == "BasicLauncher"

    def _pass_on(self, stop: Stop) -> None:
        if self._is_open:
            stopping.request(self.dir, stop)

    def _close(self, error: BaseException | None) -> None:
        """Says in the record, in the store and on the screen how the sweep ended."""
        parent = self._folder.parent
        assert parent is not None
        status, code, reason = FAILED, 1, None
        try:
            status, code, reason = verdict(read_sweep(self.dir).asked, self._signals.first, error)
            try:
                with edit_sweep(self.dir) as record:
                    record.status, record.secs = status, round(time.monotonic() - self._began, 1)
            except UserError as trouble:
                screen.say(f"slimexp: error: {trouble}")
                code = code or 1
            stopping.clear(self.dir)
            try:
                sum_up(self.dir, parent, self._start_dir)
            except Exception as trouble:  # The jobs' results stand in their folders, whatever fails here.
                why = disk_trouble(trouble, self.dir) or f"{type(trouble).__name__}: {trouble}"
                screen.say(f"slimexp: error: the sweep could not be summed up: {why}")
                code = code or 1
        finally:
            exit_codes.append(code)
            parent.finish(status, reason)
