"""What a store lacks of a run: what the run's folder holds, compared with what the store has."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slimexp.tracking.backlog import Backlog
from slimexp.tracking.metrics_file import MetricsFile
from slimexp.tracking.mlflow_store import Store, cause_of
from slimexp.tracking.record import RECORD_FILE, read_record
from slimexp.tracking.run import MESSAGE_TAG, METRICS_FILE, RESUME_COUNT_TAG, OpenRun, resume_entries
from slimexp.tracking.stale import RUN_DIR_TAG
from slimexp.tracking.tracker import PARENT_RUN_TAG, STATUSES

__all__ = ["Missing", "find_missing", "wanted_tags"]

_LOG = logging.getLogger(__name__)

# A sweep's list of its jobs, see slimexp/sweep/jobs.py.
_SWEEP_FILE = "sweep.json"
_KILLED_MESSAGE = "The process ended without a word."


@dataclasses.dataclass
class Missing:
    """What a store lacks of a run.

    Attributes:
        points: How many metric values.
        params: The params; likewise `tags` and `datasets`.
        tags: See `params`.
        datasets: See `params`.
        artifacts: The files, each with its folder in the store.
        gone: The files that the run's folder has no more either.
        status: The status that the run is to get; None if it has it.
    """

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


def find_missing(content: dict[str, Any], folder: Path, run: OpenRun | None, where: str) -> Missing:
    """Compares what a run's folder holds with what a store has.

    Args:
        content: The folder's `run.json`.
        folder: The folder.
        run: The store's run; None if it has none.
        where: The store's address, its password masked.
    """
    missing = Missing()
    known = run or OpenRun(Store(None, ""), "", params={}, tags={}, last_steps={})
    metrics_path = folder / METRICS_FILE
    if metrics_path.is_file():
        metrics = MetricsFile(metrics_path)
        try:
            missing.points = Backlog(metrics, run).count_points()
        finally:
            metrics.close()
    params, tags = dict(content.get("params", {})), wanted_tags(content, folder, where)
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


def wanted_tags(content: dict[str, Any], folder: Path, where: str) -> dict[str, str]:
    """Returns the tags that a store should have of a run; the arguments are those of `find_missing`."""
    tags = dict(content.get("tags", {}))
    if content.get("status") not in STATUSES:
        tags.setdefault(MESSAGE_TAG, _KILLED_MESSAGE)
    # The sweep's own run may have come into being later than its job.
    for sweep in _sweep_folders(tags, folder) if PARENT_RUN_TAG not in tags else ():
        with contextlib.suppress(OSError, ValueError):
            parent = read_record(sweep / RECORD_FILE)
            # A job that is no longer in its sweep's folder may lie in that of another run.
            named = parent.get("tags", {})
            is_sweep = tags["sweep"] in (named.get("sweep"), named.get(RUN_DIR_TAG)) or (sweep / _SWEEP_FILE).is_file()
            is_own = parent.get("key") is not None and parent.get("key") == content.get("key")
            if is_sweep and not is_own and parent.get("run_id") and parent.get("uri") == where:
                tags[PARENT_RUN_TAG] = parent["run_id"]
                break
    return tags


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


def _sweep_folders(tags: dict[str, str], folder: Path) -> list[Path]:
    """Returns where the sweep of a job may lie; none if the run is of no sweep, or is the sweep's own.

    The tags have the folders as they were when it ran; they may have been moved or copied since, jobs and sweep alike,
    so what lies around the job comes first.
    """
    sweep, job = tags.get("sweep"), tags.get(RUN_DIR_TAG)
    if not sweep or sweep == job or (folder / _SWEEP_FILE).is_file() or Path(sweep) == folder:
        return []
    depth = 1
    if job and Path(job).is_relative_to(sweep):
        depth = len(Path(job).relative_to(sweep).parts)
    return [Path(os.path.normpath(folder.joinpath(*[os.pardir] * depth))), Path(sweep)]
