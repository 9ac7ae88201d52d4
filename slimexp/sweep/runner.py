"""Runs the jobs of a sweep through a launcher, whatever becomes of them, and sums them up.

Both sweepers, `grid` and `search`, work through `SweepRunner`: they say which jobs, it does the rest.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from slimexp.config import Config, show
from slimexp.errors import UserError
from slimexp.hydra_errors import explain
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.jobs.starting import disk_trouble
from slimexp.sweep import stopping
from slimexp.sweep.answer import sum_up, verdict
from slimexp.sweep.identity import sweep_name
from slimexp.sweep.jobs import (
    ENDED,
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    Sweep,
    SweepJob,
    edit_sweep,
    note_job,
    read_sweep,
)
from slimexp.sweep.plan import PlannedJob, lists_swept, masked, plan_job, quoted
from slimexp.sweep.process import read_result, write_job
from slimexp.sweep.resume import Earlier, find_earlier
from slimexp.sweep.task import outcome_of
from slimexp.validation import flatten

__all__ = ["SweepRunner", "active", "exit_codes"]

# What the sweeps of this process came to; an exception would be announced by Hydra once more on its way.
exit_codes: list[int] = []
_SHOWN = 30
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_active: list[SweepRunner] = []
# Where a job writes beside its folder, by the job.
_OUTPUTS = {"predict": "predict.output", "export": "export.dir"}


def active() -> bool:
    """Tells whether this is the process that runs a sweep, and not a launcher's worker."""
    return bool(_active)


class SweepRunner:
    """Runs the jobs of one sweep; entered, it holds the sweep's folder and takes the signals.

    On the way out it closes the record and the parent run, prints the summary, and leaves the exit code.

    Args:
        hydra_context: As a sweeper gets it from Hydra, like the next two.
        task_function: See above.
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
        task_function: TaskFunction,
        config: DictConfig,
        launcher: Launcher,
        arguments: Sequence[str],
    ) -> None:
        self._context, self._task, self._config, self._launcher = hydra_context, task_function, config, launcher
        self._start_dir = Path.cwd()
        for argument in arguments:
            if argument.lstrip("+").startswith(("sweep.", "dry_run=")) and "," in argument and "[" not in argument:
                raise UserError(f"{argument}: is the same for all jobs of a sweep; give it one value.")
        # The choice of a sweeper is part of what was asked for; a launcher is not, nor a folder.
        chosen = [str(override).lstrip("+") for override in config.hydra.overrides.hydra]
        sweepers = [o for o in chosen if o.startswith(("hydra/sweeper", "hydra.sweeper"))]
        self._arguments = masked([*arguments, *sweepers])
        self.dry_run = OmegaConf.select(config, "dry_run") is True
        self._open = contextlib.ExitStack()
        self.dir, self.record = self._find_earlier()
        if self.record is not None and not self.dry_run:
            # Held from here on: another start would change the record that the plan is made from.
            self._lock()
            self.record = read_sweep(self.dir)
        self._earlier = Earlier(self.record, self.dir)
        self._next = self._earlier.next_number()
        self._keys: list[str] = []
        self._subdirs = {job.dir: job.number for job in self._earlier.jobs}
        self._secrets: dict[str, list[str]] = {}
        self._outputs: dict[tuple[str, str], int] = {}
        self._parent: Any = None
        self._signum, self._signals = 0, 0
        self._began = time.monotonic()
        self._handlers: dict[int, Any] = {}
        self._is_open = False

    @property
    def stopping(self) -> bool:
        """Whether no further job is to begin: after a signal, or a failure with `sweep.on_failure=stop`."""
        return self._signals > 0 or (self._is_open and stopping.requested(self.dir) is not None)

    def warn_about_lists(self, overrides: Sequence[Override]) -> None:
        """Says where a list may have been meant instead of a sweep."""
        for shown in lists_swept(self._config, overrides):
            key, _, values = shown.partition("=")
            _say(
                f"slimexp: warning: {shown}: with -m each of these values becomes a job of its own, though {key} holds "
                f"a list. For one list write {key}=[{values}]."
            )

    def plan(
        self,
        jobs: Sequence[Sequence[str]],
        *,
        swept: Sequence[str],
        numbers: Sequence[int] | None = None,
        match: bool = True,
    ) -> list[PlannedJob]:
        """Composes and checks jobs, and finds out which of them an earlier start has run.

        Args:
            jobs: The overrides of each.
            swept: The keys that the sweep is over.
            numbers: The jobs' numbers, where the caller knows; else those of the earlier start, or the next free ones.
            match: Whether a job with the same settings as one of the earlier start is that job.

        Returns:
            The jobs; what is wrong with one is in its `error`.
        """
        self._keys = list(dict.fromkeys([*self._keys, *swept]))
        planned = []
        for i, overrides in enumerate(jobs):
            number = self._next if numbers is None else numbers[i]
            job = self._plan_job(overrides, number, swept)
            found = self._earlier.find(job) if numbers is None and match else None
            if found is not None and found.number != number:
                error, number = job.error, found.number
                job = self._plan_job(overrides, number, swept)
                job.error = error
            if found is not None:
                job.subdir, job.why = found.dir, self._earlier.why(found)
            owner = self._subdirs.setdefault(job.subdir, number)
            if owner != number and job.error is None:
                job.error = (
                    f"hydra.sweep.subdir={job.subdir}: the jobs {owner} and {number} would share this folder. Let it "
                    "hold what tells them apart, e.g. ${hydra.job.num}."
                )
            self._refuse_shared_output(job)
            self._next = max(self._next, number + 1)
            planned.append(job)
        return planned

    def leave_out_others(self, planned: Sequence[PlannedJob]) -> None:
        """Lets only these jobs count: a folder may hold those of another command, or of a preset as it was before."""
        numbers = {job.number for job in planned}
        for job in self._earlier.jobs:
            job.asked = job.number in numbers
        others = [str(job.number) for job in self._earlier.jobs if not job.asked]
        if others:
            _say(
                f"slimexp: note: {self.dir} also holds jobs that are none of this command's "
                f"({', '.join(others[:_SHOWN])}{', ...' if len(others) > _SHOWN else ''}): they are kept and count for "
                "nothing here. For a folder of its own choose another hydra.sweep.dir."
            )

    def check(self, jobs: Sequence[Sequence[str]], *, swept: Sequence[str]) -> list[PlannedJob]:
        """Composes and checks jobs that are not to be run: their numbers count for nothing."""
        return [self._plan_job(overrides, number, swept) for number, overrides in enumerate(jobs)]

    def begin(self, config: Config, keys: Sequence[str]) -> None:
        """Makes the sweep's folder, its record and the parent run before the first job is known; else `run` does.

        Args:
            config: Of any job.
            keys: The keys that the sweep is over.
        """
        self._keys = list(dict.fromkeys([*self._keys, *keys]))
        if not self._is_open:
            self._begin(config)

    def refuse_errors(self, planned: Sequence[PlannedJob]) -> None:
        """Raises one error that names all jobs whose settings are wrong, each message once."""
        wrong: dict[str, list[PlannedJob]] = {}
        for job in planned:
            if job.error is not None:
                wrong.setdefault(job.error, []).append(job)
        if not wrong:
            return
        if len(wrong) == 1 and len(planned) == sum(map(len, wrong.values())):
            raise UserError(next(iter(wrong)))
        count = sum(map(len, wrong.values()))
        lines = [f"job {', '.join(str(job.number) for job in jobs)}: {error}" for error, jobs in wrong.items()]
        raise UserError("\n".join([f"{count} of {len(planned)} jobs cannot be run; none was begun.", *lines]))

    def announce(self, planned: Sequence[PlannedJob]) -> None:
        """Shows how many jobs there are, and which."""
        config = next(job.config for job in planned if job.config is not None)
        due = [job for job in planned if not self._is_done(job)]
        what = sweep_name(config.model.name, self._keys)
        if self.record is None:
            _say(f"Sweep of {len(planned)} job{'s' if len(planned) != 1 else ''}: {what}")
        elif due:
            done = len(planned) - len(due)
            _say(f"Going on with the sweep in {self.dir}: {done} of {len(planned)} jobs have finished. To run:")
        else:
            _say(
                f"All {len(planned)} jobs of this sweep have finished, in {self.dir}. To run them again: "
                "sweep.resume=never."
            )
        if due and not self._is_serial and config.job.name == "benchmark":
            _say("slimexp: warning: benchmarks side by side slow each other down; leave hydra/launcher out for them.")
        for job in due[:_SHOWN]:
            _say(f"  {job.number}  {job.name}{f'  ({job.why})' if job.why and self.record else ''}")
        if len(due) > _SHOWN:
            _say(f"  ... and {len(due) - _SHOWN} more")

    def rehearse(self, planned: Sequence[PlannedJob]) -> None:
        """Checks all that can be checked of the jobs without running them, prints it, and sets the exit code."""
        from slimexp.sweep.dry_run import rehearse

        exit_codes.append(rehearse(planned))

    def __enter__(self) -> SweepRunner:
        self._handlers = {
            number: signal.signal(number, self._on_signal)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN  # As under nohup.
        }
        _active.append(self)
        return self

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
        self._open_record(planned)
        due = [job for job in planned if not self._is_done(job) and job.error is None]
        # One at a time, so that no folder is made for a job that is not begun.
        batches = [[job] for job in due] if self._is_serial else [due]
        for batch in batches:
            if batch and not self.stopping:
                self._launch(batch)
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
            self._open.close()
            _active.remove(self)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    @property
    def _is_serial(self) -> bool:
        return type(self._launcher).__name__ == "BasicLauncher"

    def _plan_job(self, overrides: Sequence[str], number: int, swept: Sequence[str]) -> PlannedJob:
        return plan_job(
            self._context,
            self._config,
            overrides,
            number=number,
            keys=swept,
            start_dir=self._start_dir,
            sweep_dir=self.dir,
            explain=explain,
            hide=self._hide,
        )

    def _find_earlier(self) -> tuple[Path, Sweep | None]:
        return find_earlier(
            Path(os.path.abspath(OmegaConf.select(self._config, "hydra.sweep.dir"))),
            sweeps=Path(os.path.abspath(OmegaConf.select(self._config, "output_root"))) / "sweeps",
            overrides=self._arguments,
            start_dir=self._start_dir,
            anew=show(OmegaConf.select(self._config, "sweep.resume")) == "never",
        )

    def _lock(self) -> None:
        """Takes the sweep's folder for this process until it is left."""
        try:
            self._open.enter_context(exclusive(self.dir))
        except BusyError as error:
            raise UserError(
                f"{self.dir}: this sweep is running now. Wait for it, or begin another of the same command: "
                "sweep.resume=never."
            ) from error
        except OSError as error:
            raise UserError(_unusable(self.dir, "written", error)) from error

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

    def _is_done(self, planned: PlannedJob) -> bool:
        return any(job.number == planned.number and job.status == FINISHED for job in self._earlier.jobs)

    def _open_record(self, planned: Sequence[PlannedJob]) -> None:
        """Adds jobs to the record; the first time makes what all jobs need."""
        if not self._is_open:
            config = next((job.config for job in planned if job.config is not None), None)
            if config is None:
                raise UserError(next(job.error for job in planned if job.error) or "There are no jobs.")
            self._begin(config)
        from slimexp.tracking.masking import mask_text

        with edit_sweep(self.dir) as record:
            known = {job.number: job for job in record.jobs}
            for job in planned:
                old = known.get(job.number)
                if old is not None and old.status == FINISHED:
                    # Another command may have been over other keys.
                    old.name, old.swept, old.asked = job.name, job.swept, True
                    continue
                new = SweepJob(job.number, job.subdir, job.name, masked(job.overrides), job.swept, job.hash)
                if old is not None:  # What is known of it stands until it is begun again.
                    new.status, new.reason, new.run_id = old.status, old.reason, old.run_id
                    new.exit_code, new.started, new.secs = old.exit_code, old.started, old.secs
                if job.error is not None:
                    new.status, new.exit_code, new.reason = FAILED, 1, job.error
                known[job.number] = new
            record.jobs = [known[number] for number in sorted(known)]
            for noted in record.jobs:
                noted.reason = mask_text(noted.reason)

    def _begin(self, config: Config) -> None:
        new = [folder for folder in (self.dir, *self.dir.parents) if not folder.exists()]
        try:
            self.dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_unusable(self.dir, "made", error)) from error
        if self.record is None:
            self._lock()
        stopping.clear(self.dir)
        from slimexp.tracking import provenance

        sweep = config.sweep
        record = Sweep(
            command=shlex.split(provenance.tags(provenance.collect(sys.argv, os.getcwd()))["command"]),
            overrides=self._arguments,
            start_dir=str(self._start_dir),
            jobs=self._earlier.jobs,
            name=sweep_name(config.model.name, self._keys),
            started=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            experiment=config.tracking.experiment,
            metric=sweep.metric,
            direction=show(sweep.direction) if sweep.direction else None,
            on_failure=show(sweep.on_failure),
        )
        from slimexp.sweep.parent import ParentRun

        # Before the record: a store that cannot be used leaves no sweep that would seem to have been run.
        try:
            self._parent = ParentRun(config, self.dir, name=record.name, keys=self._keys, overrides=self._arguments)
        except OSError as error:
            _remove_empty(new)
            raise UserError(_unusable(self.dir, "written", error)) from error
        except UserError:
            _remove_empty(new)
            raise
        record.parent_run_id, record.uri = self._parent.run_id, self._parent.tracker.uri
        try:
            record.write(self.dir)
        except UserError as error:
            self._parent.finish(FAILED, str(error))
            raise
        self._is_open = True

    def _write_job(self, job: PlannedJob) -> None:
        assert job.config is not None
        numbers = {}
        for key, value in job.swept.items():
            with contextlib.suppress(ValueError):
                numbers[key] = float(value)
        write_job(
            self.dir / job.subdir,
            {
                "program": sys.argv[0],
                "overrides": job.overrides,
                "start_dir": str(self._start_dir),
                "config": job.values,
                "identity": job.identity,
                "logging": job.logging,
                "verbose": job.verbose,
                "job": {
                    "sweep": str(self.dir),
                    "number": job.number,
                    "name": job.name,
                    "parent_run_id": self._parent.run_id,
                    "numbers": numbers,
                },
            },
        )

    def _launch(self, batch: Sequence[PlannedJob]) -> None:
        where = f"hydra.sweep.dir={quoted(str(self.dir))}"
        before = {job.number: job.run_id for job in read_sweep(self.dir).jobs}
        ready = [job for job in batch if self._prepare(job)]
        jobs = [[*job.overrides, where, f"hydra.sweep.subdir={quoted(job.subdir)}"] for job in ready]
        trouble = None
        try:
            if ready:
                self._launcher.launch(jobs, initial_job_idx=ready[0].number)
        except OSError as error:  # Of Hydra's own notes in a job's folder; the other jobs may fare better.
            trouble = disk_trouble(error, self.dir)
            if trouble is None and not self.stopping:
                raise
        except BaseException:
            # What workers were waiting for has lost them; the jobs end by themselves, with their checkpoints.
            if not self.stopping:
                raise
        finally:
            numbers = {job.number for job in batch}
            for job in read_sweep(self.dir).jobs:
                if job.number in numbers:
                    self._settle(job, before.get(job.number), trouble)

    def _prepare(self, job: PlannedJob) -> bool:
        """Writes what a job's process is to do; where that fails, the job has failed."""
        try:
            self._write_job(job)
        except OSError as error:
            reason = disk_trouble(error, self.dir / job.subdir) or str(error)
            _say(f"\nJob {job.number}: {job.name}\nJob {job.number}: {FAILED}: {reason}")
            note_job(self.dir, job.number, status=FAILED, exit_code=1, reason=reason)
            return False
        return True

    def _settle(self, job: SweepJob, earlier_run: str | None, trouble: str | None) -> None:
        """Puts right what a job that was launched could not note itself, in the record and in the store."""
        if job.status == RUNNING:
            result = read_result(self.dir / job.dir)
            job.status, job.exit_code, job.reason = KILLED, 137, "the process that waited for it was ended"
            if result is not None:
                job.status, outcome = outcome_of(result.exit_code, result)
                job.exit_code, job.reason = outcome.exit_code, outcome.reason
            note_job(self.dir, job.number, status=job.status, exit_code=job.exit_code, reason=job.reason)
        elif trouble is not None and job.status not in ENDED:
            _say(f"Job {job.number}: {FAILED}: {trouble}")
            job.status, job.exit_code, job.reason = FAILED, 1, trouble
            note_job(self.dir, job.number, status=FAILED, exit_code=1, reason=trouble)
        self._parent.settle(job, self.dir / job.dir)
        if earlier_run and job.run_id and job.run_id != earlier_run:
            self._parent.supersede(earlier_run, job.run_id)

    def _close(self, error: BaseException | None) -> None:
        """Says in the record, in the store and on the screen how the sweep ended."""
        status, code, reason = FAILED, 1, None
        try:
            status, code, reason = verdict(read_sweep(self.dir).asked, self._signum, error)
            try:
                with edit_sweep(self.dir) as record:
                    record.status, record.secs = status, round(time.monotonic() - self._began, 1)
            except UserError as trouble:
                _say(f"slimexp: error: {trouble}")
                code = code or 1
            stopping.clear(self.dir)
            try:
                sum_up(self.dir, self._parent, self._start_dir)
            except Exception as trouble:  # The jobs' results stand in their folders, whatever fails here.
                why = disk_trouble(trouble, self.dir) or f"{type(trouble).__name__}: {trouble}"
                _say(f"slimexp: error: the sweep could not be summed up: {why}")
                code = code or 1
        finally:
            exit_codes.append(code)
            if self._parent is not None:
                self._parent.finish(status, reason)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._signum = self._signum or number
        if self._signals > 3:
            signal.signal(number, signal.default_int_handler)
        if self._is_open:
            stopping.request(self.dir, stopping.Stop(number, self._signals))
        if self._signals == 1:
            _say("\nslimexp: stopping: what runs saves its checkpoint; what has not begun is left. Once more: at once.")


def _unusable(sweep_dir: Path, how: str, error: OSError) -> str:
    return (
        f"hydra.sweep.dir={sweep_dir}: cannot be {how} ({error.strerror or error}). Choose a folder of your own: "
        "hydra.sweep.dir=PATH, or output_root=PATH for all."
    )


def _remove_empty(folders: Sequence[Path]) -> None:
    """Removes folders that were made for a sweep which cannot begin."""
    for folder in folders:
        with contextlib.suppress(OSError):
            (folder / ".lock").unlink(missing_ok=True)
            folder.rmdir()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
