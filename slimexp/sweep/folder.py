"""A sweep's folder: found, held against other processes, and given what all jobs need before the first one begins."""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from slimexp.config import Config, show
from slimexp.errors import UserError
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.sweep import stopping
from slimexp.sweep.identity import sweep_name
from slimexp.sweep.jobs import FAILED, FINISHED, Sweep, SweepJob, edit_sweep, read_sweep
from slimexp.sweep.plan import PlannedJob, masked
from slimexp.sweep.resume import find_earlier

if TYPE_CHECKING:
    from slimexp.sweep.parent import ParentRun

__all__ = ["SweepFolder"]


class SweepFolder:
    """The folder of one sweep, with its lock, its record and its run in the store.

    Args:
        config: The sweep's configuration, without a job's overrides.
        arguments: The overrides of the command.
        start_dir: The folder the user started in.
        hold: Whether to hold the folder from here on, if an earlier start has made it.

    Attributes:
        dir: The folder, absolute; that of an earlier start of the same sweep, where there was one.
        record: The record of that as it was found; None without.
        parent: The sweep's run; None before `open`, and after it failed.

    Raises:
        UserError: If the folder cannot be used, or another process runs this sweep.
    """

    def __init__(self, config: DictConfig, arguments: Sequence[str], *, start_dir: Path, hold: bool) -> None:
        # The choice of a sweeper is part of what was asked for; a launcher is not, nor a folder.
        chosen = [str(override).lstrip("+") for override in config.hydra.overrides.hydra]
        sweepers = [o for o in chosen if o.startswith(("hydra/sweeper", "hydra.sweeper"))]
        self._overrides = masked([*arguments, *sweepers])
        self._start_dir = start_dir
        self._lock = contextlib.ExitStack()
        self.parent: ParentRun | None = None
        self.dir, self.record = find_earlier(
            Path(os.path.abspath(OmegaConf.select(config, "hydra.sweep.dir"))),
            sweeps=Path(os.path.abspath(OmegaConf.select(config, "output_root"))) / "sweeps",
            overrides=self._overrides,
            start_dir=start_dir,
            anew=show(OmegaConf.select(config, "sweep.resume")) == "never",
        )
        if self.record is not None and hold:
            # Held from here on: another start would change the record that the plan is made from.
            self._hold()
            self.record = read_sweep(self.dir)

    def open(self, config: Config, *, keys: Sequence[str], jobs: list[SweepJob]) -> None:
        """Makes the folder, the record and the parent run, or takes them up again.

        Args:
            config: Of any job.
            keys: The keys that the sweep is over.
            jobs: Those of the earlier start.

        Raises:
            UserError: If the folder or the tracking store cannot be used, or another process runs this sweep.
        """
        new = [folder for folder in (self.dir, *self.dir.parents) if not folder.exists()]
        try:
            self.dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_unusable(self.dir, "made", error)) from error
        if self.record is None:
            self._hold()
        stopping.clear(self.dir)
        from slimexp.sweep.parent import ParentRun
        from slimexp.tracking import provenance

        record = Sweep(
            command=shlex.split(provenance.tags(provenance.collect(sys.argv, os.getcwd()))["command"]),
            overrides=self._overrides,
            start_dir=str(self._start_dir),
            jobs=jobs,
            name=sweep_name(config.model.name, keys),
            started=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            experiment=config.tracking.experiment,
            metric=config.sweep.metric,
            direction=show(config.sweep.direction) if config.sweep.direction else None,
            on_failure=show(config.sweep.on_failure),
        )
        # Before the record: a store that cannot be used leaves no sweep that would seem to have been run.
        try:
            parent = ParentRun(config, self.dir, name=record.name, keys=keys, overrides=self._overrides)
        except OSError as error:
            _remove_empty(new)
            raise UserError(_unusable(self.dir, "written", error)) from error
        except UserError:
            _remove_empty(new)
            raise
        record.parent_run_id, record.uri = parent.run_id, parent.tracker.uri
        try:
            record.write(self.dir)
        except UserError as error:
            parent.finish(FAILED, str(error))
            raise
        self.parent = parent

    def add(self, planned: Sequence[PlannedJob]) -> None:
        """Adds jobs to the record of the open folder; one with an `error` has FAILED for that reason."""
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

    def release(self) -> None:
        """Lets other processes have the folder."""
        self._lock.close()

    def _hold(self) -> None:
        try:
            self._lock.enter_context(exclusive(self.dir))
        except BusyError as error:
            raise UserError(
                f"{self.dir}: this sweep is running now. Wait for it, or begin another of the same command: "
                "sweep.resume=never."
            ) from error
        except OSError as error:
            raise UserError(_unusable(self.dir, "written", error)) from error


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
