"""Writes to one run of a store, and tells apart why something does not get through.

What the store refuses for good is counted and passed over. A run that is gone ends all sending. Everything else, an
outage above all, is the caller's to try again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slimexp.tracking.backlog import MAX_POINTS
from slimexp.tracking.datasets import to_input
from slimexp.tracking.mlflow_store import cause_of, is_refusal
from slimexp.tracking.outbox import MAX_ENTRIES, Entry
from slimexp.tracking.run import OpenRun
from slimexp.tracking.sqlite_metrics import Point, RunDeletedError, SqliteMetrics
from slimexp.tracking.unsent import Refused

__all__ = ["Delivery", "RunGoneError"]


class RunGoneError(Exception):
    """The run was deleted from the store while we were logging to it."""


class Delivery:
    """The calls that reach one run, for the one thread that sends.

    Its methods raise RunGoneError if the run is no more, and else what the call raised, if that is no refusal.

    Args:
        run: The run.
        refused: Where refusals are counted.
        on_success: Called after each call that got through.

    Attributes:
        run: The run.
    """

    def __init__(self, run: OpenRun, refused: Refused, on_success: Callable[[], None]) -> None:
        self.run = run
        self._client: Any = run.store.client
        self._run_id = run.run_id
        self._database = run.store.database
        self._sqlite: SqliteMetrics | None = None
        self._refused = refused
        self._on_success = on_success

    def close(self) -> None:
        """Closes the connection to the database, if there is one."""
        if self._sqlite is not None:
            self._sqlite.close()

    def send_entries(self, entries: list[Entry]) -> None:
        """Sends entries of one kind, at most MAX_ENTRIES."""
        from mlflow.entities import Param, RunTag

        kind = entries[0].kind
        try:
            if kind == "datasets":
                inputs = [to_input(json.loads(entry.value)) for entry in entries]
                self._call(lambda: self._client.log_inputs(self._run_id, datasets=inputs))
            else:
                make = Param if kind == "params" else RunTag
                values = [make(entry.key, entry.value) for entry in entries]
                self._call(lambda: self._client.log_batch(self._run_id, **{kind: values}))
        except Exception as error:
            if not is_refusal(error):
                raise
            if len(entries) > 1:  # One of them is refused, not all.
                for entry in entries:
                    self.send_entries([entry])
                return
            self._refused.entries += 1
            self._refused.warn(f"the {kind[:-1]} {entries[0].key}", error)

    def send_tags(self, tags: Mapping[str, str]) -> None:
        """Sends any number of tags."""
        entries = [Entry("tags", key, value) for key, value in tags.items()]
        for start in range(0, len(entries), MAX_ENTRIES):
            self.send_entries(entries[start : start + MAX_ENTRIES])

    def send_points(self, points: list[Point]) -> None:
        """Sends any number of points.

        More than MAX_POINTS take several calls; when a later one fails, MLflow passes over those of the earlier ones
        that come again.
        """
        for start in range(0, len(points), MAX_POINTS):
            self._send_points(points[start : start + MAX_POINTS])

    def send_file(self, path: Path, folder: str | None) -> None:
        """Sends a file, or a folder of files; one that is gone counts as refused."""
        try:
            if not path.exists():
                raise FileNotFoundError(f"{path} is gone")
            self._call(lambda: self._client.log_artifact(self._run_id, str(path), folder))
        except RunGoneError:
            raise
        except Exception as error:
            if not is_refusal(error) and path.exists():
                self._refused.warn("a file", error)
                raise
            self._refused.artifacts.append(str(path))
            self._refused.warn(f"the file {path}", error)

    def end(self, status: str, end_ms: int | None) -> None:
        """Gives the run its final status."""
        self._call(lambda: self._client.set_terminated(self._run_id, status, end_ms))

    def _send_points(self, points: list[Point]) -> None:
        from mlflow.entities import Metric

        sqlite = self._open_sqlite()
        if sqlite is not None:
            try:
                sqlite.write(self._run_id, points)
            except RunDeletedError as error:
                raise RunGoneError(str(error)) from error
            self._on_success()
            return
        metrics = [Metric(point.key, point.value, point.time_ms, point.step) for point in points]
        try:
            self._call(lambda: self._client.log_batch(self._run_id, metrics=metrics))
        except Exception as error:
            if not is_refusal(error):
                raise
            self._refused.points += len(points)
            self._refused.warn("metrics", error)

    def _open_sqlite(self) -> SqliteMetrics | None:
        """Returns the connection for the metrics of a SQLite store whose tables are known; looks at them once."""
        if self._database is not None:
            database, self._database = self._database, None
            self._sqlite = SqliteMetrics.open(database)
        return self._sqlite

    def _call(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            # Deleted from the store, or in its trash.
            gone = getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST"
            if gone or "must be in the 'active' state" in str(error):
                raise RunGoneError(cause_of(error)) from error
            raise
        self._on_success()
