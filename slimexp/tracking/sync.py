"""Sends what tracking servers have missed of runs: `python -m slimexp.tracking.sync [RUN_DIR ...]`.

A run's folder holds all that a store is told of it, in `metrics.jsonl` and `run.json`; what the store has is asked of
it, and the difference sent, by the same sender as while the run was on. So it may be done again and again. Runs that
are running now send for themselves and are left alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slimexp.errors import UserError

# The lock is the run folder's, and whoever runs there holds it.
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.tracking.location import Location, resolve_uri
from slimexp.tracking.masking import MASK, mask_text
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow, describe_broken, scan_metrics
from slimexp.tracking.missing import Missing, find_missing, wanted_tags
from slimexp.tracking.mlflow_store import Store, StoreUnavailableError, cause_of, open_store
from slimexp.tracking.process import PROCESS_TAG, Process, this_process
from slimexp.tracking.record import RECORD_FILE, RunRecord, new_key, read_record
from slimexp.tracking.run import (
    KEY_TAG,
    METRICS_FILE,
    OpenRun,
    current_user,
    find_run,
    take_up,
)
from slimexp.tracking.sender import Sender
from slimexp.tracking.tracker import STATUSES
from slimexp.tracking.unsent import Unsent

__all__ = ["Synced", "find_runs", "main", "sync_run"]

_LOG = logging.getLogger(__name__)

_IDLE_SECS, _TOTAL_SECS = 30.0, 3600.0
_RUNNING = "is running now and sends for itself; left alone"


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
        missing = find_missing(content, folder, None, location.display)
        return Synced(folder, True, f"would make the run in {location.display} and send {missing}")
    store = open_store(location, content.get("experiment") or "slimexp")
    run = _find(store, content)
    if run is not None and run.info.lifecycle_stage != "active":
        return Synced(folder, True, f"run {run.info.run_id} was deleted in {location.display}; left alone")
    known = take_up(store, run) if run is not None else None
    missing = find_missing(content, folder, known, location.display)
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
        **wanted_tags(content, folder, where),
        KEY_TAG: key,
        # Else the next start of a run here would close it as one whose process is gone.
        PROCESS_TAG: str(this_process()),
    }
    created = store.client.create_run(
        store.experiment_id, content.get("started_ms"), tags=tags, run_name=content.get("run_name")
    )
    record.update(key=key, run_id=created.info.run_id)
    return OpenRun(store, created.info.run_id, params={}, tags=dict(created.data.tags), last_steps={})


def _send(folder: Path, content: dict[str, Any], run: OpenRun, missing: Missing, location: Location) -> Unsent:
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
