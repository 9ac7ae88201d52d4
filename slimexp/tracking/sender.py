"""Sends what a run logs to its tracking store, in the background and in batches.

The training thread only appends to `metrics.jsonl`; this thread reads the rows back from where it stopped last. So the
file is the queue: a server that is away for hours costs no memory, what it missed is sent when it is back, and a
resumed run also sends what the process before it could not. A server that is away at the start is tried again and
again, and then gets the run as if it had been there.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slimexp.errors import UserError
from slimexp.tracking.datasets import to_input
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.mlflow_store import StoreUnavailableError, cause_of, is_refusal
from slimexp.tracking.params import legal_key
from slimexp.tracking.run import OpenRun
from slimexp.tracking.sqlite_metrics import Point, RunDeletedError, SqliteMetrics

__all__ = ["FLUSH_SECS", "NONFINITE_TAG", "Sender", "Unsent"]

_LOG = logging.getLogger(__name__)

FLUSH_SECS = 2.0
NONFINITE_TAG = "nonfinite."
_MAX_RETRY_SECS = 60.0
_CLOSING_RETRY_SECS = 0.5
# MLflow's limits for one call of log_batch.
_MAX_METRICS, _MAX_PARAMS_OR_TAGS = 1000, 100
# A trainer's row holds some 10 to 20 values, so this many fill a call.
_READ_ROWS = 100


class _Entry(NamedTuple):
    kind: str  # `params`, `tags` or `datasets`
    key: str
    value: str


@dataclasses.dataclass(frozen=True)
class Unsent:
    """What a store did not take.

    Attributes:
        points: Metric values that are only in `metrics.jsonl`.
        artifacts: Files that are only in the run's folder.
        entries: Params, tags and datasets.
        status: Whether the run's final status did not get through.
        cause: The last error in one line, or an empty text.
        run: Whether the run itself never came into being there.
    """

    points: int = 0
    artifacts: tuple[str, ...] = ()
    entries: int = 0
    status: bool = False
    cause: str = ""
    run: bool = False

    def __bool__(self) -> bool:
        return bool(self.points or self.artifacts or self.entries or self.status or self.run)


class _RunGoneError(Exception):
    """The run was deleted from the store while we were logging to it."""


class _RefusedError(Exception):
    """The store was reached at last and does not take the run."""


class Sender:
    """A thread that feeds one run of a store.

    It never raises into the training thread: what fails is tried again, ever more rarely, and reported by `finish`.
    """

    def __init__(
        self,
        metrics: MetricsFile,
        *,
        name: str,
        run: OpenRun | None = None,
        connect: Callable[[Callable[[], None]], OpenRun] | None = None,
        on_open: Callable[[OpenRun], None] | None = None,
        chore: Callable[[OpenRun], None] | None = None,
        flush_secs: float = FLUSH_SECS,
    ) -> None:
        """Makes a sender; `start` begins to send.

        Args:
            metrics: Where the rows come from, read from its beginning. Up to the last step that the store has of a
                metric nothing is sent.
            name: The store's address for messages, without a password.
            run: The run; None if the store did not answer.
            connect: Opens the run then; called in the thread until it no more raises StoreUnavailableError. It calls
                what it is given once the store is known to be there.
            on_open: Called in the thread with a run that was opened there, before anything is sent to it.
            chore: Called once in the thread when the run is open; what it raises is only logged.
            flush_secs: How often rows are sent.
        """
        assert run is not None or connect is not None
        self._run: OpenRun | None = None
        self._connect = connect
        self._on_open = on_open
        self._chore = chore
        self._metrics = metrics
        self._name = name
        self._last_steps: Mapping[str, int] = {}
        self._nonfinite: set[str] = set()
        self._flush_secs = flush_secs
        self._keys: dict[str, str] = {}

        # Shared with the training thread, under the lock of `_changed`.
        self._changed = threading.Condition()
        self._entries: collections.deque[_Entry] = collections.deque()
        self._artifacts: collections.deque[tuple[Path, str | None]] = collections.deque()
        self._status: str | None = None
        self._end_ms: int | None = None
        self._urgent = self._closing = self._abandoned = False

        # The thread's own; `finish` reads them when the thread has ended or hangs.
        self._offset = 0
        self._refused_points = self._refused_entries = 0
        self._refused_artifacts: list[str] = []
        self._failures = self._artifact_failures = 0
        self._artifact_retry_at = 0.0
        self._cause = ""
        self._warned: set[str] = set()
        self._uploading = False
        self._last_success = time.monotonic()
        self._has_answered = False
        self._sqlite: SqliteMetrics | None = None
        self._sqlite_tried = False
        if run is not None:
            self._adopt(run)
        self._thread = threading.Thread(target=self._loop, name="tracking-sender", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def put_params(self, params: Mapping[str, str]) -> None:
        """Queues params; keys and values as MLflow takes them."""
        self._put(_Entry("params", key, value) for key, value in params.items())

    def put_tags(self, tags: Mapping[str, str]) -> None:
        """Queues tags; keys and values as MLflow takes them."""
        self._put(_Entry("tags", key, value) for key, value in tags.items())

    def put_dataset(self, described: Mapping[str, str]) -> None:
        """Queues a dataset, see `describe_dataset`."""
        self._put([_Entry("datasets", described["name"], json.dumps(dict(described)))])

    def put_artifact(self, path: Path, folder: str | None) -> None:
        """Queues a file or a folder of files; it is read when it is sent, so it has to stay."""
        with self._changed:
            self._artifacts.append((path, folder))
            self._urgent = True
            self._changed.notify_all()

    def finish(
        self,
        status: str | None,
        *,
        idle_secs: float,
        total_secs: float,
        absent_secs: float | None = None,
        end_ms: int | None = None,
    ) -> Unsent:
        """Sends what is left, then the run's status, and ends the thread.

        Args:
            status: FINISHED, FAILED or KILLED; None leaves it as it is.
            idle_secs: Give up when nothing got through for so long; a running upload is waited for longer.
            total_secs: Give up after so long in any case.
            absent_secs: In place of `idle_secs` as long as the store has never answered.
            end_ms: When the run ended, in Unix milliseconds; None means now.

        Returns:
            What did not get through.
        """
        began = time.monotonic()
        with self._changed:
            self._last_success = began
            self._status, self._end_ms = status, end_ms
            self._closing = True
            self._changed.notify_all()
        while self._thread.is_alive():
            give_up_at = began + total_secs
            if not self._uploading:
                patience = idle_secs if absent_secs is None or self._has_answered else absent_secs
                give_up_at = min(give_up_at, self._last_success + patience)
            left = give_up_at - time.monotonic()
            if left <= 0:
                break
            self._thread.join(min(left, 0.5))
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()
        # Lets a call that is about to end do so; one that hangs dies with the process.
        self._thread.join(0.2)
        return self._unsent()

    def _put(self, entries: Iterable[_Entry]) -> None:
        with self._changed:
            self._entries.extend(entries)
            self._urgent = True
            self._changed.notify_all()

    def count_unsent(self) -> int:
        """Counts the metric values that the store lacks; exact when nothing is being sent."""
        waiting, offset = 0, self._offset
        while rows := self._metrics.read_from(offset, _MAX_METRICS):
            waiting += sum(len(self._points(row)[0]) for row, _ in rows)
            offset = rows[-1][1]
        return waiting

    def _unsent(self) -> Unsent:
        waiting = self.count_unsent()
        with self._changed:
            return Unsent(
                points=self._refused_points + waiting,
                artifacts=(*self._refused_artifacts, *(str(path) for path, _ in self._artifacts)),
                entries=self._refused_entries + len(self._entries),
                status=self._status is not None,
                cause=self._cause,
                run=self._run is None,
            )

    # From here on: the thread.

    def _loop(self) -> None:
        try:
            self._send_until_closed()
        finally:
            if self._sqlite is not None:
                self._sqlite.close()

    def _send_until_closed(self) -> None:
        while True:
            with self._changed:
                self._wait()
                if self._abandoned:
                    return
                self._urgent = False
                closing = self._closing
            try:
                if self._run is None:
                    self._open_run()
                self._do_chore()
                self._send_all(closing)
            except _RefusedError as error:
                self._cause = cause_of(error)
                _LOG.warning("%s The run is only in its folder.", error)
                return
            except _RunGoneError as error:
                self._cause = str(error)
                _LOG.warning("%s has lost the run: %s. From here on it is only in its folder.", self._name, error)
                return
            except Exception as error:  # Whatever it is, training goes on and the next try may succeed.
                self._note_failure(error)
                continue
            if self._failures:
                _LOG.info("%s answers again; it has all metrics up to now.", self._name)
                self._failures = 0
            if closing and not self._artifacts and not self._entries:
                return

    def _open_run(self) -> None:
        assert self._connect is not None
        try:
            run = self._connect(self._note_answer)
        except StoreUnavailableError:
            raise
        except UserError as error:
            raise _RefusedError(str(error)) from error
        if self._on_open is not None:
            self._on_open(run)
        self._adopt(run)
        self._failures = 0
        _LOG.info("%s is there now and has the run %s; what it missed is being sent.", self._name, run.run_id)

    def _note_answer(self) -> None:
        self._has_answered = True
        self._last_success = time.monotonic()

    def _adopt(self, run: OpenRun) -> None:
        self._has_answered = True
        self._last_steps = run.last_steps
        self._nonfinite = {tag.removeprefix(NONFINITE_TAG) for tag in run.tags if tag.startswith(NONFINITE_TAG)}
        self._run = run

    def _do_chore(self) -> None:
        chore, self._chore = self._chore, None
        if chore is not None:
            assert self._run is not None
            try:
                chore(self._run)
            except Exception as error:
                _LOG.warning("%s: earlier runs could not be looked at: %s", self._name, cause_of(error))

    def _wait(self) -> None:
        failing = self._failures or (self._closing and self._artifact_failures)
        if self._closing:
            if failing:
                self._changed.wait_for(lambda: self._abandoned, _CLOSING_RETRY_SECS)
            return
        delay = min(2.0**self._failures, _MAX_RETRY_SECS) if self._failures else self._flush_secs
        self._changed.wait_for(lambda: self._closing or self._abandoned or (self._urgent and not self._failures), delay)

    def _send_all(self, closing: bool) -> None:
        self._send_entries()
        self._send_metrics()
        self._send_artifacts(closing)
        if closing and self._status is not None and not self._abandoned:
            status, end_ms = self._status, self._end_ms
            self._call(lambda: self._client.set_terminated(self._run_id, status, end_ms))
            self._status = None

    def _send_entries(self) -> None:
        while self._entries and not self._abandoned:
            with self._changed:
                batch = _same_kind(self._entries)
            self._send_batch(batch)
            with self._changed:
                for _ in batch:
                    self._entries.popleft()

    def _send_batch(self, batch: list[_Entry]) -> None:
        from mlflow.entities import Param, RunTag

        kind = batch[0].kind
        try:
            if kind == "datasets":
                inputs = [to_input(json.loads(entry.value)) for entry in batch]
                self._call(lambda: self._client.log_inputs(self._run_id, datasets=inputs))
            else:
                make = Param if kind == "params" else RunTag
                values = [make(entry.key, entry.value) for entry in batch]
                self._call(lambda: self._client.log_batch(self._run_id, **{kind: values}))
        except Exception as error:
            if not is_refusal(error):
                raise
            if len(batch) > 1:  # One of them is refused, not all.
                for entry in batch:
                    self._send_batch([entry])
                return
            self._refused_entries += 1
            self._warn(f"the {kind[:-1]} {batch[0].key}", error)

    def _send_metrics(self) -> None:
        while not self._abandoned:
            rows = self._metrics.read_from(self._offset, _READ_ROWS)
            if not rows:
                return
            points: list[Point] = []
            tags: dict[str, str] = {}
            end = self._offset
            for row, row_end in rows:
                row_points, row_tags = self._points(row)
                if points and len(points) + len(row_points) > _MAX_METRICS:
                    break
                points += row_points
                tags = {**row_tags, **tags}  # The first row that was not finite counts.
                end = row_end
            # A row of more than 1000 points takes several calls; when a later one fails, MLflow passes over those of
            # the earlier ones that come again.
            for start in range(0, len(points), _MAX_METRICS):
                self._send_points(points[start : start + _MAX_METRICS])
            for batch in _batches([_Entry("tags", key, value) for key, value in tags.items()]):
                self._send_batch(batch)
            self._nonfinite.update(key.removeprefix(NONFINITE_TAG) for key in tags)
            self._offset = end

    def _send_points(self, points: list[Point]) -> None:
        from mlflow.entities import Metric

        sqlite = self._open_sqlite()
        if sqlite is not None:
            try:
                sqlite.write(self._run_id, points)
            except RunDeletedError as error:
                raise _RunGoneError(str(error)) from error
            self._last_success = time.monotonic()
            return
        metrics = [Metric(point.key, point.value, point.time_ms, point.step) for point in points]
        try:
            self._call(lambda: self._client.log_batch(self._run_id, metrics=metrics))
        except Exception as error:
            if not is_refusal(error):
                raise
            self._refused_points += len(points)
            self._warn("metrics", error)

    def _open_sqlite(self) -> SqliteMetrics | None:
        """Returns the connection for the metrics of a SQLite store whose tables are known, once it is looked at."""
        assert self._run is not None
        database = self._run.store.database
        if database is None:
            return None
        if not self._sqlite_tried:
            self._sqlite_tried = True
            self._sqlite = SqliteMetrics.open(database)
        return self._sqlite

    @property
    def _client(self) -> Any:
        assert self._run is not None
        return self._run.store.client

    @property
    def _run_id(self) -> str:
        assert self._run is not None
        return self._run.run_id

    def _points(self, row: MetricsRow) -> tuple[list[Point], dict[str, str]]:
        """Splits a row into what the store lacks of it and the tags for what is not finite."""
        points, tags = [], {}
        for name, value in row.metrics.items():
            key = self._keys.get(name) or self._keys.setdefault(name, legal_key(name))
            if not math.isfinite(value):
                if key not in self._nonfinite:
                    tags[legal_key(NONFINITE_TAG + key)] = f"{value} at step {row.step}"
            elif row.step > self._last_steps.get(key, -math.inf):
                points.append(Point(key, value, int(row.time * 1000), row.step))
        return points, tags

    def _send_artifacts(self, closing: bool) -> None:
        if not closing and time.monotonic() < self._artifact_retry_at:
            return
        for _ in range(len(self._artifacts)):
            if self._abandoned:
                return
            path, folder = self._artifacts[0]
            try:
                self._send_artifact(path, folder)
            except _RunGoneError:
                raise
            except Exception as error:
                if not is_refusal(error) and path.exists():
                    self._artifact_failures += 1
                    self._artifact_retry_at = time.monotonic() + min(2.0**self._artifact_failures, _MAX_RETRY_SECS)
                    self._cause = cause_of(error)
                    self._warn("a file", error)
                    with self._changed:
                        self._artifacts.rotate(-1)  # It must not hold up the others.
                    continue
                self._refused_artifacts.append(str(path))
                self._warn(f"the file {path}", error)
            with self._changed:
                self._artifacts.popleft()
        if not self._artifacts:
            self._artifact_failures = 0

    def _send_artifact(self, path: Path, folder: str | None) -> None:
        if not path.exists():
            raise FileNotFoundError(f"{path} is gone")
        self._uploading = True
        try:
            self._call(lambda: self._client.log_artifact(self._run_id, str(path), folder))
        finally:
            self._uploading = False

    def _call(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            # Deleted from the store, or in its trash.
            gone = getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST"
            if gone or "must be in the 'active' state" in str(error):
                raise _RunGoneError(cause_of(error)) from error
            raise
        self._last_success = time.monotonic()

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self._cause = cause_of(error)
        # Of a store that was not there at the start it has been said.
        if self._run is not None and self._failures == 1 and "outage" not in self._warned:
            self._warned.add("outage")
            _LOG.warning(
                "%s does not answer: %s. The run goes on; metrics.jsonl keeps what will be sent when it is back.",
                self._name,
                self._cause,
            )
        else:
            _LOG.debug("%s: try %d failed: %s", self._name, self._failures, self._cause)

    def _warn(self, what: str, error: Exception) -> None:
        """Says once for each thing that the store did not take it."""
        self._cause = cause_of(error)
        if what not in self._warned:
            self._warned.add(what)
            _LOG.warning("%s does not take %s: %s", self._name, what, self._cause)


def _same_kind(entries: Iterable[_Entry]) -> list[_Entry]:
    """Returns the first entries that may go in one call."""
    _, group = next(itertools.groupby(entries, key=lambda entry: entry.kind))
    return list(itertools.islice(group, _MAX_PARAMS_OR_TAGS))


def _batches(entries: list[_Entry]) -> list[list[_Entry]]:
    return [entries[i : i + _MAX_PARAMS_OR_TAGS] for i in range(0, len(entries), _MAX_PARAMS_OR_TAGS)]
