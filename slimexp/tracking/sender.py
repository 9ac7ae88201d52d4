"""Sends what a run logs to its tracking store, in the background: when to send, and how long to be patient.

The training thread only appends to `metrics.jsonl` and to the outbox; this thread reads both from where it stopped
last. A server that is away is tried again, ever more rarely; one that is away at the start gets the run when it is
there, as if it had been there all along.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slimexp.errors import UserError
from slimexp.tracking.backlog import Backlog
from slimexp.tracking.delivery import Delivery, RunGoneError
from slimexp.tracking.metrics_file import MetricsFile
from slimexp.tracking.mlflow_store import StoreUnavailableError, cause_of
from slimexp.tracking.outbox import Entry, Outbox
from slimexp.tracking.run import OpenRun
from slimexp.tracking.unsent import Refused, Unsent

__all__ = ["FLUSH_SECS", "Sender"]

_LOG = logging.getLogger(__name__)

FLUSH_SECS = 2.0
_MAX_RETRY_SECS = 60.0
_CLOSING_RETRY_SECS = 0.5


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
        self._connect = connect
        self._on_open = on_open
        self._chore = chore
        self._name = name
        self._flush_secs = flush_secs
        self._outbox = Outbox()
        self._backlog = Backlog(metrics, run)

        # The thread's own; `finish` reads them while it waits, and when the thread has ended or hangs.
        self._refused = Refused(name)
        self._failures = self._file_failures = 0
        self._file_retry_at = 0.0
        self._outage_told = False
        self._uploading = False
        self._last_success = time.monotonic()
        self._has_answered = run is not None
        self._delivery = Delivery(run, self._refused, self._note_answer) if run is not None else None
        self._thread = threading.Thread(target=self._loop, name="tracking-sender", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def put_params(self, params: Mapping[str, str]) -> None:
        """Queues params; keys and values as MLflow takes them."""
        self._outbox.put(Entry("params", key, value) for key, value in params.items())

    def put_tags(self, tags: Mapping[str, str]) -> None:
        """Queues tags; keys and values as MLflow takes them."""
        self._outbox.put(Entry("tags", key, value) for key, value in tags.items())

    def put_dataset(self, described: Mapping[str, str]) -> None:
        """Queues a dataset, see `describe_dataset`."""
        self._outbox.put([Entry("datasets", described["name"], json.dumps(dict(described)))])

    def put_artifact(self, path: Path, folder: str | None) -> None:
        """Queues a file or a folder of files; it is read when it is sent, so it has to stay."""
        self._outbox.put_file(path, folder)

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
        began = self._last_success = time.monotonic()
        self._outbox.close(status, end_ms)
        while self._thread.is_alive():
            give_up_at = began + total_secs
            if not self._uploading:
                patience = idle_secs if absent_secs is None or self._has_answered else absent_secs
                give_up_at = min(give_up_at, self._last_success + patience)
            left = give_up_at - time.monotonic()
            if left <= 0:
                break
            self._thread.join(min(left, 0.5))
        self._outbox.abandon()
        # Lets a call that is about to end do so; one that hangs dies with the process.
        self._thread.join(0.2)
        entries, files, is_open = self._outbox.left()
        return Unsent(
            points=self._refused.points + self._backlog.count_points(),
            artifacts=(*self._refused.artifacts, *files),
            entries=self._refused.entries + entries,
            status=is_open,
            cause=self._refused.cause,
            run=self._delivery is None,
        )

    # From here on: the thread.

    def _loop(self) -> None:
        try:
            self._send_until_closed()
        finally:
            if self._delivery is not None:
                self._delivery.close()

    def _send_until_closed(self) -> None:
        while True:
            closing = self._wait()
            if self._outbox.abandoned:
                return
            try:
                delivery = self._delivery or self._open_run()
                self._do_chore(delivery.run)
                self._send_all(delivery, closing)
            except _RefusedError as error:
                self._refused.cause = cause_of(error)
                _LOG.warning("%s The run is only in its folder.", error)
                return
            except RunGoneError as error:
                self._refused.cause = str(error)
                _LOG.warning("%s has lost the run: %s. From here on it is only in its folder.", self._name, error)
                return
            except Exception as error:  # Whatever it is, training goes on and the next try may succeed.
                self._note_failure(error)
                continue
            if self._failures:
                _LOG.info("%s answers again; it has all metrics up to now.", self._name)
                self._failures = 0
            if closing and self._outbox.is_empty:
                return

    def _wait(self) -> bool:
        """Waits until it is time to send; returns whether the run has ended."""
        delay = min(2.0**self._failures, _MAX_RETRY_SECS) if self._failures else self._flush_secs
        is_failing = self._failures or self._file_failures
        return self._outbox.wait(
            delay, for_news=not self._failures, closing_secs=_CLOSING_RETRY_SECS if is_failing else 0.0
        )

    def _open_run(self) -> Delivery:
        assert self._connect is not None
        try:
            run = self._connect(self._note_answer)
        except StoreUnavailableError:
            raise
        except UserError as error:
            raise _RefusedError(str(error)) from error
        if self._on_open is not None:
            self._on_open(run)
        self._has_answered = True
        self._backlog.compare_with(run)
        self._delivery = Delivery(run, self._refused, self._note_answer)
        self._failures = 0
        _LOG.info("%s is there now and has the run %s; what it missed is being sent.", self._name, run.run_id)
        return self._delivery

    def _do_chore(self, run: OpenRun) -> None:
        chore, self._chore = self._chore, None
        if chore is not None:
            try:
                chore(run)
            except Exception as error:
                _LOG.warning("%s: earlier runs could not be looked at: %s", self._name, cause_of(error))

    def _send_all(self, delivery: Delivery, closing: bool) -> None:
        outbox, backlog = self._outbox, self._backlog
        while not outbox.abandoned and (entries := outbox.first_entries()):
            delivery.send_entries(entries)
            outbox.drop_entries(len(entries))
        while not outbox.abandoned and (portion := backlog.next_portion()) is not None:
            delivery.send_points(portion.points)
            delivery.send_tags(portion.tags)
            backlog.done(portion)
        if closing or time.monotonic() >= self._file_retry_at:
            self._send_files(delivery)
        if closing and outbox.end is not None and not outbox.abandoned:
            delivery.end(*outbox.end)
            outbox.drop_end()

    def _send_files(self, delivery: Delivery) -> None:
        outbox = self._outbox
        for _ in range(outbox.num_files):
            if outbox.abandoned:
                return
            self._uploading = True
            try:
                delivery.send_file(*outbox.first_file())
            except RunGoneError:
                raise
            except Exception:  # It has been said; the file comes again later.
                self._file_failures += 1
                self._file_retry_at = time.monotonic() + min(2.0**self._file_failures, _MAX_RETRY_SECS)
                outbox.put_file_back()
            else:
                outbox.drop_file()
            finally:
                self._uploading = False
        if not outbox.num_files:
            self._file_failures = 0

    def _note_answer(self) -> None:
        self._has_answered = True
        self._last_success = time.monotonic()

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self._refused.cause = cause_of(error)
        # Of a store that was not there at the start it has been said.
        if self._delivery is not None and self._failures == 1 and not self._outage_told:
            self._outage_told = True
            _LOG.warning(
                "%s does not answer: %s. The run goes on; metrics.jsonl keeps what will be sent when it is back.",
                self._name,
                self._refused.cause,
            )
        else:
            _LOG.debug("%s: try %d failed: %s", self._name, self._failures, self._refused.cause)
