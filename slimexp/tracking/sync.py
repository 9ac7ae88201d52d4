"""Sends what tracking servers have missed of runs: `python -m slimexp.tracking.sync [RUN_DIR ...]`.

A run's folder holds all that a store is told of it, in `metrics.jsonl` and `run.json`; what the store has is asked of
it, and the difference sent, by the same sender as while the run was on. So it may be done again and again. Runs that
are running now send for themselves and are left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slimexp.errors import UserError

# The lock is the run folder's, and whoever runs there holds it.
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.tracking.location import Location, resolve_uri
from slimexp.tracking.masking import MASK, mask_text
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow, describe_broken, scan_metrics
from slimexp.tracking.mlflow_store import Store, StoreUnavailableError, cause_of, open_store
from slimexp.tracking.process import PROCESS_TAG, Process, this_process
from slimexp.tracking.record import RECORD_FILE, RunRecord, new_key, read_record
from slimexp.tracking.run import (
    KEY_TAG,
    MESSAGE_TAG,
    METRICS_FILE,
    RESUME_COUNT_TAG,
    OpenRun,
    current_user,
    find_run,
    resume_entries,
    take_up,
)
from slimexp.tracking.sender import Sender
from slimexp.tracking.stale import RUN_DIR_TAG
from slimexp.tracking.tracker import PARENT_RUN_TAG, STATUSES

__all__ = ["Synced", "find_runs", "main", "sync_run"]

_LOG = logging.getLogger(__name__)

# A sweep's list of its jobs, see slimexp/sweep/jobs.py.
SWEEP_FILE = "sweep.json"
_IDLE_SECS, _TOTAL_SECS = 30.0, 3600.0
_RUNNING = "is running now and sends for itself; left alone"
_KILLED_MESSAGE = "The process ended without a word."


@dataclasses.dataclass(frozen=True)
class Synced:
    """What became of one folder.

    Attributes:
        folder: The run's.
        ok: False if something could not be sent.
        text: What was done or why not, in a line.
    """

    folder: Path
    ok: bool
    text: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.text}"


@dataclasses.dataclass
class _Missing:
    """What a store lacks of a run."""

    points: int = 0
    params: dict[str, str] = dataclasses.field(default_factory=dict)
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    datasets: list[dict[str, str]] = dataclasses.field(default_factory=list)
    artifacts: list[tuple[Path, str | None]] = dataclasses.field(default_factory=list)
    gone: list[str] = dataclasses.field(default_factory=list)
    status: str | None = None

    def __bool__(self) -> bool:
        return bool(self.points or self.params or self.tags or self.datasets or self.artifacts or self.status)

    def __str__(self) -> str:
        counts = {
            "metric value": self.points,
            "param": len(self.params),
            "tag": len(self.tags),
            "dataset": len(self.datasets),
            "file": len(self.artifacts),
        }
        parts = [f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items() if count]
        return ", ".join([*parts, *([f"status {self.status}"] if self.status else [])]) or "nothing"


class _SyncError(Exception):
    """Why a run cannot be sent; the message is the whole reason."""


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Returns the folders of runs among the given ones and below them, in order of their start.

    Raises:
        UserError: If a path is no folder, or none holds a run.
    """
    found: dict[Path, int] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: is no folder. Name a run's folder, or one with runs in it, e.g. outputs.")
        for record in path.rglob(RECORD_FILE):
            try:
                found[record.parent] = int(read_record(record).get("started_ms") or 0)
            except (OSError, ValueError):
                found[record.parent] = 0
    if not found:
        raise UserError(f"{', '.join(map(str, paths))}: no run in there: none of the folders has a {RECORD_FILE}.")
    return sorted(found, key=lambda folder: (found[folder], folder))


def sync_run(folder: Path, *, tracking_uri: str | None = None, dry_run: bool = False) -> Synced:
    """Sends what the store lacks of one run.

    Args:
        folder: The run's.
        tracking_uri: The store; by default the one that the run was to be in. A run that another store has is sent
            there as a whole, and is that store's from then on; so is one that was made with `tracking=none`.
        dry_run: Whether only to say what would be sent.

    Returns:
        What became of it.
    """
    try:
        with exclusive(folder):
            synced = _sync_locked(folder, tracking_uri, dry_run)
            _, broken = _rows(folder / METRICS_FILE)
            if broken:
                passed = f"passed over {describe_broken(broken)} of {METRICS_FILE}"
                synced = dataclasses.replace(synced, text=f"{synced.text}; {passed}")
            return synced
    except BusyError:
        return Synced(folder, True, _RUNNING)
    except OSError as error:
        return Synced(folder, False, f"cannot be read or written: {error.strerror or error}")
    except (UserError, StoreUnavailableError, _SyncError) as error:
        return Synced(folder, False, mask_text(str(error)))
    except Exception as error:  # One run must not keep the others from being sent.
        _LOG.debug("%s", folder, exc_info=True)
        return Synced(folder, False, f"{type(error).__name__}: {cause_of(error)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Sends what is missing of each run and says so in a line; returns the exit code, 1 if something was not sent."""
    parser = argparse.ArgumentParser(
        prog="python -m slimexp.tracking.sync",
        description="Sends to MLflow what it has missed of runs: a server was down, a process killed.",
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("outputs")], metavar="RUN_DIR|OUTPUT_ROOT")
    parser.add_argument("--tracking-uri", help="the store, where it is not the one that the run names")
    parser.add_argument("--dry-run", action="store_true", help="only say what is missing")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        folders = find_runs([folder.absolute() for folder in options.folders])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    failed = 0
    for folder in folders:
        synced = sync_run(folder, tracking_uri=options.tracking_uri, dry_run=options.dry_run)
        failed += not synced.ok
        print(synced, flush=True)
    if failed:
        print(f"{failed} of {len(folders)} run(s) could not be sent whole.", file=sys.stderr)
    return int(failed > 0)


def _sync_locked(folder: Path, tracking_uri: str | None, dry_run: bool) -> Synced:
    try:
        content = read_record(folder / RECORD_FILE)
    except ValueError as error:
        raise _SyncError(f"{RECORD_FILE} cannot be read: {error}") from error
    if content.get("backend") == "none" and tracking_uri is None:
        return Synced(folder, True, "was made with tracking=none; left alone (--tracking-uri sends it)")
    process = Process.parse(content.get("process") or "")
    if content.get("status") not in STATUSES and process is not None and process.is_gone() is False:
        return Synced(folder, True, _RUNNING)  # A sweep's own folder, or one where files cannot be locked.
    location = _location(content, tracking_uri)
    record = RunRecord(folder / RECORD_FILE, content)
    is_new = not content.get("run_id") or (location.database is not None and not location.database.exists())
    if dry_run and is_new:  # Opening the store would make the database, or the experiment.
        missing = _missing(content, folder, None, location.display)
        return Synced(folder, True, f"would make the run in {location.display} and send {missing}")
    store = open_store(location, content.get("experiment") or "slimexp")
    run = _find(store, content)
    if run is not None and run.info.lifecycle_stage != "active":
        return Synced(folder, True, f"run {run.info.run_id} was deleted in {location.display}; left alone")
    known = take_up(store, run) if run is not None else None
    missing = _missing(content, folder, known, location.display)
    if dry_run:
        if known is None:
            return Synced(folder, True, f"would make the run in {location.display} and send {missing}")
        return Synced(folder, True, f"would send {missing}" if missing else f"has all in {location.display}")
    if known is None:
        known = _create(store, content, record, folder, location.display)
    elif not missing:
        _note(record, content, known, location)
        return Synced(folder, True, f"{location.display} has all of run {known.run_id}")
    unsent = _send(folder, content, known, missing, location)
    if unsent:
        record.update(unsent=dataclasses.asdict(unsent))
        raise _SyncError(f"{location.display} did not take all of run {known.run_id}: {unsent.cause}")
    _note(record, content, known, location)
    gone = f"; no more there to be sent: {', '.join(missing.gone)}" if missing.gone else ""
    return Synced(folder, True, f"sent {missing} to run {known.run_id} in {location.display}{gone}")


def _location(content: dict[str, Any], tracking_uri: str | None) -> Location:
    if tracking_uri:
        return resolve_uri(tracking_uri, Path.cwd())
    uri = content.get("uri")
    if not uri:
        raise _SyncError(f"{RECORD_FILE} names no store; say which by --tracking-uri")
    if MASK not in uri:
        return resolve_uri(uri, Path.cwd())
    # A password is never written down, but may be where it came from.
    environment = os.environ.get("MLFLOW_TRACKING_URI", "")
    if mask_text(environment) != uri:
        raise _SyncError(
            f"the address of its store, {uri}, has a password, which {RECORD_FILE} does not keep; give it by "
            "--tracking-uri, or in MLFLOW_TRACKING_URI"
        )
    return resolve_uri(environment, Path.cwd())


def _find(store: Store, content: dict[str, Any]) -> Any | None:
    """Returns the store's run, by its id or by its key; None if the store has none."""
    from mlflow.exceptions import MlflowException

    if content.get("run_id"):
        try:
            return store.client.get_run(content["run_id"])
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise StoreUnavailableError(cause_of(error)) from error
    return find_run(store, content["key"]) if content.get("key") else None


def _create(store: Store, content: dict[str, Any], record: RunRecord, folder: Path, where: str) -> OpenRun:
    key = content.get("key") or new_key()
    tags = {
        "mlflow.user": content.get("tags", {}).get("user", current_user()),
        **_wanted_tags(content, folder, where),
        KEY_TAG: key,
        # Else the next start of a run here would close it as one whose process is gone.
        PROCESS_TAG: str(this_process()),
    }
    created = store.client.create_run(
        store.experiment_id, content.get("started_ms"), tags=tags, run_name=content.get("run_name")
    )
    record.update(key=key, run_id=created.info.run_id)
    return OpenRun(store, created.info.run_id, params={}, tags=dict(created.data.tags), last_steps={})


def _wanted_tags(content: dict[str, Any], folder: Path, where: str) -> dict[str, str]:
    tags = dict(content.get("tags", {}))
    if content.get("status") not in STATUSES:
        tags.setdefault(MESSAGE_TAG, _KILLED_MESSAGE)
    # The sweep's own run may have come into being later than its job.
    for sweep in _sweep_folders(tags, folder) if PARENT_RUN_TAG not in tags else ():
        with contextlib.suppress(OSError, ValueError):
            parent = read_record(sweep / RECORD_FILE)
            # A job that is no longer in its sweep's folder may lie in that of another run.
            named = parent.get("tags", {})
            is_sweep = tags["sweep"] in (named.get("sweep"), named.get(RUN_DIR_TAG)) or (sweep / SWEEP_FILE).is_file()
            is_own = parent.get("key") is not None and parent.get("key") == content.get("key")
            if is_sweep and not is_own and parent.get("run_id") and parent.get("uri") == where:
                tags[PARENT_RUN_TAG] = parent["run_id"]
                break
    return tags


def _sweep_folders(tags: dict[str, str], folder: Path) -> list[Path]:
    """Returns where the sweep of a job may lie; none if the run is of no sweep, or is the sweep's own.

    The tags have the folders as they were when it ran; they may have been moved or copied since, jobs and sweep alike,
    so what lies around the job comes first.
    """
    sweep, job = tags.get("sweep"), tags.get(RUN_DIR_TAG)
    if not sweep or sweep == job or (folder / SWEEP_FILE).is_file() or Path(sweep) == folder:
        return []
    depth = 1
    if job and Path(job).is_relative_to(sweep):
        depth = len(Path(job).relative_to(sweep).parts)
    return [Path(os.path.normpath(folder.joinpath(*[os.pardir] * depth))), Path(sweep)]


def _missing(content: dict[str, Any], folder: Path, run: OpenRun | None, where: str) -> _Missing:
    """Compares what the folder holds with what the store at `where` has; `run` is None if it has nothing."""
    missing = _Missing()
    known = run or OpenRun(Store(None, ""), "", params={}, tags={}, last_steps={})
    metrics_path = folder / METRICS_FILE
    if metrics_path.is_file():
        metrics = MetricsFile(metrics_path)
        try:
            missing.points = Sender(metrics, name="", run=known).count_unsent()
        finally:
            metrics.close()
    params, tags = dict(content.get("params", {})), _wanted_tags(content, folder, where)
    if run is not None and "resume" in content:
        number = int(run.tags.get(RESUME_COUNT_TAG, "0")) + 1
        params, tags = resume_entries(dataclasses.replace(run, resumes=number), params, tags, content["resume"])
        if MESSAGE_TAG in content.get("tags", {}):
            tags[MESSAGE_TAG] = content["tags"][MESSAGE_TAG]
    missing.params = {key: value for key, value in params.items() if key not in known.params}
    # A store that got as far as the run's end may have been edited since.
    is_whole = run is not None and not content.get("unsent") and content.get("status") in STATUSES
    missing.tags = {
        key: value
        for key, value in tags.items()
        if key not in known.tags or (known.tags[key] != value and not is_whole and not key.startswith("mlflow."))
    }
    missing.datasets = [d for d in content.get("datasets", []) if (d["name"], d["digest"]) not in known.datasets]
    missing.artifacts, missing.gone = _missing_files(content, folder, run)
    if content.get("status") in STATUSES:
        missing.status = content["status"] if run is None or run.status != content["status"] else None
    elif run is None or run.status == "RUNNING":  # Else its sweep, or the next start, has closed it.
        missing.status = "KILLED"
    return missing


def _missing_files(
    content: dict[str, Any], folder: Path, run: OpenRun | None
) -> tuple[list[tuple[Path, str | None]], list[str]]:
    unsent = {os.path.abspath(path) for path in (content.get("unsent") or {}).get("artifacts", ())}
    listed: dict[str, dict[str, int | None]] = {}
    files, gone = [], []
    for name, target in content.get("artifacts", []):
        path = folder / name
        if not path.exists():
            gone.append(str(name))
            continue
        for file, inside in _files(path, target):
            if inside not in listed:
                listed[inside] = _list_artifacts(run, inside)
            # A file that was written anew since it was sent differs in size, or is known to be unsent.
            if listed[inside].get(file.name, -1) != file.stat().st_size or os.path.abspath(path) in unsent:
                files.append((file, inside or None))
    return files, gone


def _files(path: Path, target: str | None) -> Iterator[tuple[Path, str]]:
    """Yields the files that an artifact stands for, each with its folder in the store."""
    if path.is_file():
        yield path, target or ""
        return
    root = Path(target or "") / path.name
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield file, str(root / file.parent.relative_to(path))


def _list_artifacts(run: OpenRun | None, folder: str) -> dict[str, int | None]:
    """Returns the sizes of a run's files in one of its folders, by name."""
    if run is None:
        return {}
    try:
        found = run.store.client.list_artifacts(run.run_id, folder or None)
    except Exception as error:  # Where they lie may have gone; then they are sent again.
        _LOG.debug("%s: %s", folder, cause_of(error))
        return {}
    return {os.path.basename(item.path): item.file_size for item in found if not item.is_dir}


def _send(folder: Path, content: dict[str, Any], run: OpenRun, missing: _Missing, location: Location) -> Any:
    metrics_path = folder / METRICS_FILE
    metrics = MetricsFile(metrics_path if metrics_path.is_file() else None)
    try:
        sender = Sender(metrics, name=f"MLflow ({location.display})", run=run)
        sender.put_params(missing.params)
        sender.put_tags({key: value for key, value in missing.tags.items() if run.tags.get(key) != value})
        for described in missing.datasets:
            sender.put_dataset(described)
        for path, target in missing.artifacts:
            sender.put_artifact(path, target)
        sender.start()
        end_ms = content.get("ended_ms")
        if end_ms is None:
            rows, _ = _rows(metrics_path)
            end_ms = max((int(1000 * row.time) for row in rows), default=content.get("started_ms"))
        return sender.finish(missing.status, idle_secs=_IDLE_SECS, total_secs=_TOTAL_SECS, end_ms=end_ms)
    finally:
        metrics.close()


def _rows(path: Path) -> tuple[list[MetricsRow], list[int]]:
    return scan_metrics(path) if path.is_file() else ([], [])


def _note(record: RunRecord, content: dict[str, Any], run: OpenRun, location: Location) -> None:
    """Remembers where the run is, and that all of it is there."""
    wanted = {"backend": "mlflow", "uri": location.display, "run_id": run.run_id, "unsent": None}
    if "resume" in content or any(content.get(key) != value for key, value in wanted.items()):
        record.content.pop("resume", None)
        record.update(**wanted)


if __name__ == "__main__":
    sys.exit(main())
