"""A sweep's record, `SWEEP_DIR/sweep.json`: what was asked for, and what has become of each job."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slimexp.errors import UserError

__all__ = [
    "ENDED",
    "FAILED",
    "FINISHED",
    "KILLED",
    "NOT_RUN",
    "PRUNED",
    "RECORD_FILE",
    "RUNNING",
    "Sweep",
    "SweepJob",
    "edit_sweep",
    "first_line",
    "note_job",
    "read_sweep",
]

_log = logging.getLogger("slimexp")

RECORD_FILE = "sweep.json"
RUNNING, FINISHED, FAILED, KILLED, PRUNED, NOT_RUN = "RUNNING", "FINISHED", "FAILED", "KILLED", "PRUNED", "NOT_RUN"
# What a job is that will not change any more within this start of its sweep.
ENDED = (FINISHED, FAILED, KILLED, PRUNED)


@dataclasses.dataclass
class SweepJob:
    """One job of a sweep.

    Attributes:
        number: Its number, from 0.
        dir: Its run folder, relative to the sweep's.
        name: What tells it from the others, e.g. `vgg16 threads=8`.
        overrides: All that its command set, e.g. `pipeline.threads=8`, but for Hydra's own keys.
        swept: The values of the keys in which the jobs of the sweep differ, as text.
        hash: The identity of its configuration.
        status: NOT_RUN, RUNNING, FINISHED, FAILED, KILLED or PRUNED.
        exit_code: That of its process; as in a shell, 128 + N after signal N. None before its end.
        reason: Why it did not finish, in a line.
        run_id: Its run in the tracking store.
        started: When it began last, ISO 8601 with the zone.
        secs: How long it took then, in seconds.
        asked: Whether the command that the sweep was started with last has this job; a folder keeps those of others.
    """

    number: int
    dir: str
    name: str
    overrides: list[str] = dataclasses.field(default_factory=list)
    swept: dict[str, str] = dataclasses.field(default_factory=dict)
    hash: str = ""
    status: str = NOT_RUN
    exit_code: int | None = None
    reason: str = ""
    run_id: str | None = None
    started: str | None = None
    secs: float | None = None
    asked: bool = True


@dataclasses.dataclass
class Sweep:
    """What one command started.

    Attributes:
        command: The command line, secrets masked.
        overrides: The overrides of the command, sweeps unexpanded.
        start_dir: The folder that it was started in.
        status: RUNNING, FINISHED, FAILED (a job failed) or KILLED.
        jobs: The jobs by number.
        name: What is swept, e.g. `vgg16 threads`.
        started: When it began last, ISO 8601 with the zone.
        secs: How long it took then, in seconds.
        parent_run_id: The run in the tracking store that the jobs' runs belong to.
        experiment: The experiment there.
        uri: The store, its password masked.
        metric: `sweep.metric`.
        direction: `sweep.direction`.
        on_failure: `sweep.on_failure`.
    """

    command: list[str] = dataclasses.field(default_factory=list)
    overrides: list[str] = dataclasses.field(default_factory=list)
    start_dir: str = ""
    status: str = RUNNING
    jobs: list[SweepJob] = dataclasses.field(default_factory=list)
    name: str = ""
    started: str | None = None
    secs: float | None = None
    parent_run_id: str | None = None
    experiment: str | None = None
    uri: str | None = None
    metric: str | None = None
    direction: str | None = None
    on_failure: str = "continue"

    def job(self, number: int) -> SweepJob:
        """Returns the job with a number.

        Raises:
            KeyError: If there is none.
        """
        for job in self.jobs:
            if job.number == number:
                return job
        raise KeyError(number)

    @property
    def asked(self) -> list[SweepJob]:
        """The jobs of the command that the sweep was started with last."""
        return [job for job in self.jobs if job.asked]

    def write(self, sweep_dir: Path) -> None:
        """Writes the record into a sweep's folder, whole or not at all; `edit_sweep` is for what others may change.

        Raises:
            UserError: If it cannot be written, as on a full disk.
        """
        path = sweep_dir / RECORD_FILE
        temporary = path.with_name(f"{RECORD_FILE}.{os.getpid()}.tmp")
        text = json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1)
        try:
            temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise UserError(_unwritable(path, error)) from error


def read_sweep(sweep_dir: Path) -> Sweep:
    """Reads the record in a sweep's folder.

    Raises:
        UserError: If there is none, or it is not one of ours.
    """
    path = Path(sweep_dir) / RECORD_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        jobs = [SweepJob(**_known(SweepJob, job)) for job in content["jobs"]]
        sweep = Sweep(**{**_known(Sweep, content), "jobs": jobs})
        _add_unwritten(sweep, Path(sweep_dir))
        return sweep
    except FileNotFoundError:
        raise UserError(f"{sweep_dir}: is no folder of a sweep, as it has no {RECORD_FILE}.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read as the record of a sweep: {error}") from error


@contextlib.contextmanager
def edit_sweep(sweep_dir: Path) -> Iterator[Sweep]:
    """Yields the record and writes it at the end; jobs side by side take turns.

    Nothing is written if the block raises.

    Raises:
        UserError: If the record cannot be read or written.
    """
    with _locked(sweep_dir):
        sweep = read_sweep(sweep_dir)
        yield sweep
        sweep.write(sweep_dir)
        _unwritten.pop(sweep_dir, None)


def note_job(sweep_dir: Path, number: int, **values: Any) -> None:
    """Notes what has become of a job. On a full disk this process remembers it until the record can be written."""
    try:
        with edit_sweep(sweep_dir) as sweep:
            _set(sweep.job(number), values)
    except UserError as error:
        if sweep_dir not in _unwritten:
            print(f"slimexp: warning: {error}", file=sys.stderr, flush=True)
        _unwritten.setdefault(sweep_dir, {}).setdefault(number, {}).update(values)


# What a disk did not take, by sweep and job.
_unwritten: dict[Path, dict[int, dict[str, Any]]] = {}


def _add_unwritten(sweep: Sweep, sweep_dir: Path) -> None:
    notes = _unwritten.get(sweep_dir, {})
    for job in sweep.jobs:
        _set(job, notes.get(job.number, {}))


def _set(job: SweepJob, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        setattr(job, key, value)


def _unwritable(path: Path, error: OSError) -> str:
    return (
        f"{path}: cannot be written ({error.strerror or error}). Make room or set its permissions right; the same "
        "command then runs what is missing."
    )


@contextlib.contextmanager
def _locked(sweep_dir: Path) -> Iterator[None]:
    # Where there are no file locks, jobs side by side may lose each other's last word; the run folders still have it.
    import fcntl

    lock_file = sweep_dir / f".{RECORD_FILE}.lock"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(lock_file, "a", encoding="utf-8"))
        except OSError as error:
            raise UserError(_unwritable(lock_file, error)) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            _log.debug("%s cannot be locked: %s", sweep_dir, error)
        yield


def _known(kind: type, values: Any) -> dict[str, Any]:
    """Returns the values that a record of this version has; another version may have written more."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {key: value for key, value in values.items() if key in names}


def first_line(text: str) -> str:
    """Returns a text's first line, with the next one where the first only announces it."""
    lines = text.strip().splitlines() or [""]
    return f"{lines[0]} {lines[1].strip()}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
