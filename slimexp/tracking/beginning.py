"""Begins a run: in its store if that answers, then in its folder; anew, or where an earlier start of it left off."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimexp.errors import UserError
from slimexp.tracking.events import FOLDER as EVENTS_FOLDER
from slimexp.tracking.location import resolve_uri
from slimexp.tracking.masking import MASK, is_secret_key, mask_text
from slimexp.tracking.metrics_file import MetricsFile, truncate_after
from slimexp.tracking.params import MAX_TAG_LENGTH, flatten, legal_key, shorten
from slimexp.tracking.process import this_process
from slimexp.tracking.record import RECORD_FILE, RunRecord, new_key, now_ms, read_record
from slimexp.tracking.run import METRICS_FILE, OpenRun, RunRequest, open_or_go_offline
from slimexp.tracking.stale import RUN_DIR_TAG

__all__ = ["Beginning", "begin", "clean_tags"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Beginning:
    """A run that has begun.

    Attributes:
        request: What was wanted of the store; None without a store.
        run: The store's run; None without a store, or as long as it does not answer.
        metrics: The file of its metrics, open.
        record: Its `run.json`, written.
        missed: Files that an earlier start could not send, absolute, each with its folder in the store.
    """

    request: RunRequest | None
    run: OpenRun | None
    metrics: MetricsFile
    record: RunRecord
    missed: list[tuple[str, str | None]]


def begin(
    *,
    backend: str,
    uri: str | None,
    experiment: str,
    run_name: str,
    run_dir: Path | None,
    tags: Mapping[str, str],
    params: Mapping[str, Any],
    on_error: str,
    resume_run_id: str | None,
    resume_step: int | None,
    start_dir: Path,
) -> Beginning:
    """Opens the store, the run in it, and the run's folder; see `Tracker.start` for the arguments.

    Raises:
        UserError: If the store is wrong, or does not answer and `on_error` is `fail`; if the folder cannot be written.
    """
    if backend not in ("mlflow", "none"):
        raise UserError(f"tracking.backend={backend} is unknown; use mlflow or none.")
    if on_error not in ("offline", "fail"):
        raise UserError(f"tracking.on_error={on_error} is unknown; use offline or fail.")
    flat = flatten(params)
    clean = clean_tags(tags if run_dir is None else {RUN_DIR_TAG: os.path.abspath(run_dir), **tags})
    earlier = _earlier_record(run_dir, resume_run_id) if resume_step is not None or resume_run_id is not None else {}
    if resume_run_id is None:
        clean = {**earlier.get("tags", {}), **clean}
    request = run = None
    key, started_ms = earlier.get("key") or new_key(), earlier.get("started_ms") or now_ms()
    if backend == "mlflow":
        location = resolve_uri(uri, start_dir)
        request = RunRequest(location, experiment, run_name, clean, key, resume_run_id, started_ms)
        # Without a store's id, an earlier start of this folder may still have made the run there.
        run = open_or_go_offline(request, on_error, was_tried=bool(earlier.get("key")))
    try:
        metrics = _open_metrics(run_dir, resume_step, anew=resume_run_id is None)
    except OSError as error:
        if run is not None:
            run.store.client.set_terminated(run.run_id, "FAILED")
        reason = error.strerror or error
        raise UserError(f"run_dir={run_dir}: {METRICS_FILE} cannot be written: {reason}.") from error
    record = RunRecord(
        run_dir / RECORD_FILE if run_dir else None,
        {
            "backend": backend,
            "uri": request.location.display if request else None,
            "experiment": experiment,
            "run_id": run.run_id if run else resume_run_id,
            "run_name": run_name,
            "key": key,
            "process": str(this_process()),
            "status": "RUNNING",
            "message": None,
            "started_ms": started_ms,
            "ended_ms": None,
            "tags": clean,
            "params": flat,
            "artifacts": earlier.get("artifacts", []),
            "datasets": earlier.get("datasets", []),
            "unsent": None,
            **({"resume": resume_step} if resume_run_id is not None and run is None else {}),
        },
    )
    record.update()
    return Beginning(request, run, metrics, record, _missed_files(run_dir, earlier))


def clean_tags(tags: Mapping[str, object]) -> dict[str, str]:
    """Returns tags as a store takes them: legal keys, secrets masked, values shortened with a note."""
    return {
        legal_key(key): MASK if is_secret_key(key) and value else shorten(mask_text(str(value)), MAX_TAG_LENGTH)
        for key, value in tags.items()
    }


def _earlier_record(run_dir: Path | None, run_id: str | None) -> dict[str, Any]:
    """Returns what the folder says of the run's earlier start; nothing if that was another run."""
    try:
        earlier = read_record(run_dir / RECORD_FILE) if run_dir is not None else {}
    except (OSError, ValueError):
        return {}
    return earlier if earlier.get("run_id") == run_id else {}


def _missed_files(run_dir: Path | None, earlier: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Returns the files that an earlier start of the run could not send; its metrics are in their file."""
    missed = {os.path.abspath(path) for path in (earlier.get("unsent") or {}).get("artifacts", ())}
    listed = [(os.path.abspath(Path(run_dir or "") / path), folder) for path, folder in earlier.get("artifacts", ())]
    return [(path, folder) for path, folder in listed if path in missed]


def _open_metrics(run_dir: Path | None, resume_step: int | None, anew: bool) -> MetricsFile:
    if run_dir is None:
        return MetricsFile(None)
    path = run_dir / METRICS_FILE
    if resume_step is not None:
        truncate_after(path, resume_step)
    elif anew:
        _set_aside(path)
        _set_aside(run_dir / EVENTS_FOLDER)
    return MetricsFile(path)


def _set_aside(path: Path) -> None:
    """Renames the metrics of an earlier run in the same folder."""
    if not path.exists() or not path.stat().st_size:
        return
    number = 1
    while (target := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    path.rename(target)
    _LOG.info("The metrics of an earlier run in %s are now in %s.", path.parent, target.name)
