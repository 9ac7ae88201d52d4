"""The run in the tracking store that the runs of a sweep's jobs belong to."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slimexp.config import Config
from slimexp.sweep.jobs import SweepJob
from slimexp.tracking import Tracker, provenance
from slimexp.tracking.location import resolve_uri
from slimexp.tracking.record import RECORD_FILE
from slimexp.tracking.run import MESSAGE_TAG
from slimexp.validation import flatten

__all__ = ["ParentRun"]

_log = logging.getLogger("slimexp")


class ParentRun:
    """A sweep's run. Opening it makes the database and the experiment before any job needs them.

    Args:
        config: The configuration of one of the jobs, for where runs are tracked and what all have in common.
        sweep_dir: The sweep's folder, which keeps `run.json` and `metrics.jsonl` as a job's does. A sweep that goes on
            goes on in its run.
        name: What the sweep is called.
        keys: The keys that it is over.
        overrides: What its command set.

    Raises:
        UserError: If the store is wrong, or does not answer and `tracking.on_error` is `fail`.
    """

    def __init__(
        self, config: Config, sweep_dir: Path, *, name: str, keys: Iterable[str], overrides: Iterable[str]
    ) -> None:
        self._config = config
        keys = list(keys)
        earlier = _earlier(sweep_dir)
        tracking = config.tracking
        common = {
            key: value
            for key, value in flatten(config).items()
            if not any(key == swept or key.startswith(f"{swept}.") for swept in keys) and key != "run_dir"
        }
        self.tracker = Tracker.start(
            backend=tracking.backend.value,
            uri=tracking.uri,
            experiment=tracking.experiment,
            run_name=f"{tracking.run_name or 'sweep'} {name}".strip(),
            run_dir=sweep_dir,
            tags={
                **provenance.tags(provenance.collect(sys.argv, os.getcwd())),
                "sweep": str(sweep_dir),
                "sweep.keys": ", ".join(keys),
                "sweep.overrides": " ".join(overrides),
                **tracking.tags,
            },
            params=common,
            on_error=tracking.on_error.value,
            resume_run_id=earlier.get("run_id"),
        )

    @property
    def run_id(self) -> str | None:
        """Its id in the store; None without one, or offline."""
        return self.tracker.run_id

    def settle(self, job: SweepJob, job_dir: Path) -> None:
        """Puts right in the store what the run of a job that has ended could not say itself.

        Args:
            job: The job.
            job_dir: Its folder.
        """
        record = _read(job_dir / RECORD_FILE)
        left_open = record.get("status") == "RUNNING"
        pruned = job.status == "PRUNED"
        if self.run_id is None or not record.get("run_id") or not (left_open or pruned):
            return
        try:
            import mlflow

            client = mlflow.MlflowClient(tracking_uri=resolve_uri(self._config.tracking.uri, Path.cwd()).uri)
            if pruned:
                client.set_tag(record["run_id"], "pruned", job.reason)
            if left_open:
                client.set_tag(record["run_id"], MESSAGE_TAG, job.reason)
                client.set_terminated(record["run_id"], "FAILED" if job.status == "FAILED" else "KILLED")
        except Exception as error:  # The store may be down; the sweep's own record has it in any case.
            _log.warning("The run of job %d could not be closed in the store: %s", job.number, error)

    def supersede(self, earlier: str, later: str) -> None:
        """Marks the run that a job left at an earlier start, where it has begun another one since."""
        if self.run_id is None:
            return
        try:
            import mlflow

            client = mlflow.MlflowClient(tracking_uri=resolve_uri(self._config.tracking.uri, Path.cwd()).uri)
            client.set_tag(earlier, "superseded_by", later)
        except Exception as error:  # As above.
            _log.warning("The run %s could not be marked as superseded by %s: %s", earlier, later, error)

    def log(self, *, metrics: Mapping[str, float], tags: Mapping[str, str], files: Iterable[Path]) -> None:
        """Records what the sweep came to."""
        if metrics:
            self.tracker.log_metrics(0, metrics)
        if tags:
            self.tracker.set_tags(tags)
        for path in files:
            self.tracker.log_artifact(path)

    def finish(self, status: str, message: str | None) -> None:
        """Ends the run; only the first call counts."""
        try:
            self.tracker.finish(status, message)
        except OSError as error:  # A full disk: the folder's notes are behind, the store need not be.
            _log.warning("The notes on the sweep's run could not be written: %s", error)


def _earlier(sweep_dir: Path) -> dict[str, Any]:
    return _read(sweep_dir / RECORD_FILE)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
