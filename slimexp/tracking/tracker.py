"""The one object through which a job records its run: metrics, params, tags, files and how it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from slimexp.errors import Interrupted, UserError
from slimexp.tracking.datasets import describe_dataset
from slimexp.tracking.events import FOLDER as EVENTS_FOLDER
from slimexp.tracking.events import MAX_BYTES as MAX_EVENTS_BYTES
from slimexp.tracking.events import EventFiles
from slimexp.tracking.location import resolve_uri
from slimexp.tracking.masking import MASK, is_secret_key, mask_text
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow, truncate_after
from slimexp.tracking.params import MAX_TAG_LENGTH, flatten, legal_key, shorten
from slimexp.tracking.process import this_process
from slimexp.tracking.record import RECORD_FILE, RunRecord, new_key, now_ms, read_record
from slimexp.tracking.run import (
    MESSAGE_TAG,
    METRICS_FILE,
    OpenRun,
    RunRequest,
    open_or_go_offline,
    open_run,
    resume_entries,
)
from slimexp.tracking.sender import FLUSH_SECS, Sender, Unsent
from slimexp.tracking.stale import RUN_DIR_TAG, close_run, close_stale_runs
from slimexp.tracking.system_metrics import SystemSampler, find_psutil

__all__ = ["METRICS_FILE", "PARENT_RUN_TAG", "RECORD_FILE", "STATUSES", "Tracker", "sync_command", "tag_value"]

_LOG = logging.getLogger(__name__)

PARENT_RUN_TAG = "mlflow.parentRunId"
STATUSES = ("FINISHED", "FAILED", "KILLED")
# How long the end of a run waits for a store: when nothing gets through, when it never was there, and at most.
_IDLE_SECS, _ABSENT_SECS, _TOTAL_SECS = 20.0, 5.0, 180.0


class Tracker:
    """Records one run.

    Metrics go to `metrics.jsonl` in the run's folder first, and from there to the store in the background; params, tags
    and files go straight to the background. So nothing here waits for a server, or fails because of one. As a context
    manager it ends the run by what happened: FINISHED, FAILED on an error, KILLED on Ctrl-C or a signal.

    Make one with `Tracker.start`.
    """

    def __init__(
        self,
        request: RunRequest | None,
        run: OpenRun | None,
        metrics: MetricsFile,
        record: RunRecord,
        *,
        resume_step: int | None,
        stale_run_id: str | None,
        flush_secs: float,
        events: EventFiles | None,
        sampler: SystemSampler | None,
    ) -> None:
        self._request = request
        self._run: OpenRun | None = None
        self._metrics = metrics
        self._events = events
        self._sampler = sampler
        self._record = record
        self._first_params: dict[str, str] = record.content["params"]
        self._params = dict(self._first_params)
        self._lock = threading.Lock()  # Of `_params`: a store that comes late brings some.
        self._resume_step = resume_step
        self._stale_run_id = stale_run_id
        self._finished = False
        self._last_step = resume_step or 0  # Of a run that goes on and logs nothing.
        self._write_error: str | None = None
        self._lost_rows = 0
        self._spent_secs = 0.0
        self._sender: Sender | None = None
        if request is not None:
            self._sender = Sender(
                metrics,
                name=f"MLflow ({request.location.display})",
                run=run,
                connect=lambda on_answer: open_run(request, was_tried=True, on_answer=on_answer),
                on_open=self._begin,
                chore=self._close_stale_runs,
                flush_secs=flush_secs,
            )
            if run is not None:
                self._begin(run)
            self._sender.start()

    @classmethod
    def start(
        cls,
        *,
        backend: str,
        uri: str | None,
        experiment: str,
        run_name: str,
        run_dir: Path | None,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        on_error: str = "offline",
        resume_run_id: str | None = None,
        resume_step: int | None = None,
        stale_run_id: str | None = None,
        start_dir: Path | None = None,
        flush_secs: float = FLUSH_SECS,
        tensorboard: bool = False,
        events_max_bytes: int = MAX_EVENTS_BYTES,
        system_metrics: str = "false",
        system_every_secs: float = 10.0,
    ) -> Tracker:
        """Opens the store and a run in it.

        A store that does not answer now is asked again while the run goes on. Runs of this host and experiment whose
        process was killed are closed, in the background.

        Imports MLflow, unless `backend` is `none` (1 to 5 s). Sets environment variables that steer MLflow where the
        user has not: MLFLOW_DISABLE_TELEMETRY=true, MLFLOW_LOGGING_LEVEL=WARNING, and, as trying again is done here
        and in the background, MLFLOW_HTTP_REQUEST_MAX_RETRIES=0 and MLFLOW_HTTP_REQUEST_TIMEOUT=60 (seconds).
        MLFLOW_RUN_ID and MLFLOW_EXPERIMENT_NAME play no part.

        Args:
            backend: `mlflow`, or `none` for `metrics.jsonl` alone.
            uri: The store: sqlite:///FILE, http(s)://SERVER, or a database server's address. None means
                MLFLOW_TRACKING_URI, and without that `mlflow.db` in `start_dir`; its files go to `mlflow-artifacts`
                beside it.
            experiment: The experiment's name, created if needed.
            run_name: The run's name.
            run_dir: The run's folder, for `metrics.jsonl` and `run.json`; None for a run without one.
            tags: Tags, e.g. from `provenance.tags`; `{PARENT_RUN_TAG: id}` puts the run under another.
            params: The configuration, nested or flat. Secrets are masked.
            on_error: What to do when the store does not answer now: go on `offline`, or `fail`. What the user has to
                mend (an address, a folder, a deleted experiment) is an error in both cases.
            resume_run_id: A run to go on with. If the store has it no more, a new one gets its whole `metrics.jsonl`.
            resume_step: The step of the checkpoint that training goes on from: later rows of `metrics.jsonl` are
                dropped, and the store gets those that it lacks. None with `resume_run_id` only appends. None without
                it begins anew: an older `metrics.jsonl` is renamed to `metrics-1.jsonl`.
            stale_run_id: A run that was killed and will not go on: the store is told that it is KILLED.
            start_dir: The folder the user started in; by default the working folder.
            flush_secs: How often metrics are sent.
            tensorboard: Whether to write event files below `run_dir` as well; the first row then imports TensorFlow.
            events_max_bytes: How large the event files of the run may become in all.
            system_metrics: Whether to add what the machine does, as `system/...`: `true`, `false`, or `auto` for yes if
                the package psutil is installed.
            system_every_secs: How often that is looked at.

        Returns:
            The tracker.

        Raises:
            UserError: If the store is wrong, or does not answer and `on_error` is `fail`; if psutil is missing and
                `system_metrics` is `true`.
        """
        if backend not in ("mlflow", "none"):
            raise UserError(f"tracking.backend={backend} is unknown; use mlflow or none.")
        if on_error not in ("offline", "fail"):
            raise UserError(f"tracking.on_error={on_error} is unknown; use offline or fail.")
        psutil = find_psutil(system_metrics)
        flat = flatten(params)
        clean = {legal_key(key): tag_value(key, value) for key, value in tags.items()}
        if run_dir is not None:
            clean.setdefault(RUN_DIR_TAG, tag_value(RUN_DIR_TAG, os.path.abspath(run_dir)))
        goes_on = resume_step is not None or resume_run_id is not None
        earlier = _earlier_record(run_dir) if goes_on else {}
        if earlier.get("run_id") != resume_run_id:
            earlier = {}
        if resume_run_id is None:
            clean = {**earlier.get("tags", {}), **clean}
        request = run = None
        key, started_ms = earlier.get("key") or new_key(), earlier.get("started_ms") or now_ms()
        if backend == "mlflow":
            location = resolve_uri(uri, start_dir or Path.cwd())
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
        events = None
        if tensorboard and run_dir:
            events = EventFiles(run_dir / EVENTS_FOLDER, resume_step=resume_step, max_bytes=events_max_bytes)
        record.update()
        tracker = cls(
            request,
            run,
            metrics,
            record,
            resume_step=resume_step,
            stale_run_id=stale_run_id,
            flush_secs=flush_secs,
            events=events,
            sampler=SystemSampler(psutil, system_every_secs) if psutil is not None else None,
        )
        # What an earlier start of the run could not send; its metrics are in the file.
        missed = {os.path.abspath(path) for path in (earlier.get("unsent") or {}).get("artifacts", ())}
        for path, folder in earlier.get("artifacts", ()):
            absolute = os.path.abspath(run_dir / path) if run_dir is not None else path
            if absolute in missed:
                tracker.log_artifact(absolute, folder)
        return tracker

    @property
    def run_id(self) -> str | None:
        """The store's id of the run; None without a store, or as long as it has not answered."""
        return self._run.run_id if self._run else None

    @property
    def experiment_id(self) -> str | None:
        """The store's id of the experiment; None without a store, or as long as it has not answered."""
        return self._run.store.experiment_id if self._run else None

    @property
    def uri(self) -> str | None:
        """The store's address with its password masked; None without a store."""
        return self._request.location.display if self._request else None

    @property
    def ui_command(self) -> str | None:
        """The shell command that opens the UI on the store, or a server's URL; None without a store."""
        return self._request.location.ui_command if self._request else None

    @property
    def spent_secs(self) -> float:
        """How long the calls of `log_metrics` took so far: what tracking costs the training loop."""
        return self._spent_secs

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends a line to `metrics.jsonl`; the store gets it within some seconds, and the event files.

        A value that is not finite stays in the file, as text. The store gets a tag for the first one of each metric,
        e.g. `nonfinite.train/loss` = `nan at step 12`.

        Args:
            step: The training step.
            metrics: Values by name, e.g. `train/loss`.
        """
        began = time.perf_counter()
        values = {name: float(value) for name, value in metrics.items()}
        if self._sampler is not None:
            values.update(self._sampler.take(int(step)))
        row = MetricsRow(int(step), time.time(), values)
        if not self._finished:
            self._last_step = row.step
            try:
                self._metrics.append(row)
            except OSError as error:
                self._lost_rows += 1
                if self._write_error is None:
                    self._write_error = error.strerror or str(error)
                    _LOG.warning("%s cannot be written: %s. The run goes on.", self._metrics.path, self._write_error)
            if self._events is not None:
                self._events.write(row.step, row.metrics, row.time)
        self._spent_secs += time.perf_counter() - began

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Adds params, nested or flat; one that the run has with another value is left as it is, with a warning."""
        flat = flatten(params)
        with self._lock:
            known = dict(self._params)
            new = {key: value for key, value in flat.items() if key not in known}
            self._params.update(new)
        for key, value in flat.items():
            if known.get(key, value) != value:
                _LOG.warning("The param %s stays %s; it cannot become %s.", key, known[key], value)
        self._record.merge("params", new)  # A run that is killed goes on with these.
        if self._sender is not None:
            self._sender.put_params(new)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags; a later value replaces an earlier one."""
        clean = {legal_key(key): tag_value(key, value) for key, value in tags.items()}
        self._record.merge("tags", clean)
        if self._sender is not None:
            self._sender.put_tags(clean)

    def log_artifact(self, path: str | os.PathLike[str], folder: str | None = None) -> None:
        """Sends a file, or a folder with all in it, in the background; it has to stay until `finish`.

        Args:
            path: The file or folder.
            folder: The folder within the run's artifacts, e.g. `figures`.
        """
        absolute = Path(os.path.abspath(path))
        self._record.add_artifact(absolute, folder)
        if self._sender is not None:
            self._sender.put_artifact(absolute, folder)

    def log_dataset(
        self,
        *,
        name: str,
        context: str,
        digest: str,
        source: str,
        num_examples: int,
        num_classes: int,
        task: str,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """Says which data the run uses; MLflow's UI shows it in the column "Dataset".

        Args:
            name: The dataset's name, e.g. `digits`.
            context: What it is for: `train` or `eval`.
            digest: Of its examples, e.g. from `slimexp.dataset.summary.fingerprint`; at most 36 characters.
            source: The list file, folder or pattern that it comes from.
            num_examples: How many images.
            num_classes: How many classes or labels.
            task: `single` or `multi`.
            counts: Images a class, or positive ones a label, by name; None where only reading would tell.
        """
        described = describe_dataset(
            name=name,
            context=context,
            digest=digest,
            source=source,
            num_examples=num_examples,
            num_classes=num_classes,
            task=task,
            counts=counts,
        )
        self._record.append("datasets", described)
        if self._sender is not None:
            self._sender.put_dataset(described)

    def finish(self, status: str = "FINISHED", message: str | None = None) -> Unsent:
        """Sends what is left and ends the run; only the first call counts.

        Takes at most 20 s when nothing gets through (5 s if the store has never answered), and at most 3 min when
        files are slow to upload.

        Args:
            status: FINISHED, FAILED or KILLED.
            message: Why, in a line; becomes the tag `status.message`.

        Returns:
            What the store did not take; it is also logged as a warning.
        """
        assert status in STATUSES, status
        if self._finished:
            return Unsent()
        if message:
            self.set_tags({MESSAGE_TAG: message})
        if self._sampler is not None:
            self._log_last_sample(self._sampler)
        self._finished = True
        ended_ms = now_ms()
        # Before the store is told, which may take a while: who stops the process now does not unmake its work.
        self._record.update(status=status, message=message and mask_text(message), ended_ms=ended_ms)
        if self._events is not None:
            self._events.close()
        unsent = Unsent()
        if self._sender is not None:
            unsent = self._sender.finish(
                status, idle_secs=_IDLE_SECS, total_secs=_TOTAL_SECS, absent_secs=_ABSENT_SECS, end_ms=ended_ms
            )
        self._metrics.close()
        self._record.update(unsent=dataclasses.asdict(unsent) if unsent else None)
        if unsent:
            _LOG.warning("%s", self._unsent_message(unsent))
        if self._lost_rows:
            _LOG.warning("%d line(s) of metrics are lost: %s.", self._lost_rows, self._write_error)
        return unsent

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish("FINISHED")
        elif isinstance(error, (KeyboardInterrupt, Interrupted)):
            self.finish("KILLED", str(error) or "Interrupted.")
        else:
            self.finish("FAILED", f"{type(error).__name__}: {error}")

    def _begin(self, run: OpenRun) -> None:
        """Takes the store's run as ours, at the start or, in the sender's thread, when the store is there at last."""
        assert self._sender is not None
        with self._lock:
            self._params.update(run.params)
        if run.resumes:
            start_tags = self._request.tags if self._request else {}
            params, tags = resume_entries(run, self._first_params, start_tags, self._resume_step)
            kept = {key: value for key, value in run.tags.items() if not key.startswith(("mlflow.", "slimexp."))}
            # As the store should have them: what the run was started with stays, what changed stands beside it.
            self._record.merge("tags", {**kept, **tags})
            self._sender.put_tags(tags)
        else:
            params = {key: value for key, value in self._first_params.items() if key not in run.params}
        self._sender.put_params(params)
        for described in self._record.content["datasets"]:
            if (described["name"], described["digest"]) not in run.datasets:
                self._sender.put_dataset(described)
        self._run = run
        self._record.content.pop("resume", None)
        self._record.update(run_id=run.run_id)

    def _close_stale_runs(self, run: OpenRun) -> None:
        if self._stale_run_id is not None:
            close_run(run.store, self._stale_run_id, "Killed; the folder's next run began anew.")
        close_stale_runs(run.store)

    def _log_last_sample(self, sampler: SystemSampler) -> None:
        """Adds a row for a run that was too short for any."""
        values = sampler.stop(self._last_step)
        if values:
            with contextlib.suppress(OSError):
                self._metrics.append(MetricsRow(self._last_step, time.time(), values))

    def _unsent_message(self, unsent: Unsent) -> str:
        parts = []
        if unsent.run:
            parts.append("it has no run of it")
        if unsent.points:
            parts.append(f"{unsent.points} metric values are only in {self._metrics.path or 'memory'}")
        if unsent.artifacts:
            parts.append(f"{len(unsent.artifacts)} files were not uploaded")
        if unsent.entries:
            parts.append(f"{unsent.entries} params, tags and datasets were not stored")
        if unsent.status and not unsent.run:
            parts.append("the run still counts as RUNNING there")
        cause = f" ({unsent.cause})" if unsent.cause else ""
        later = ""
        if self._record.path is not None:
            later = f" To send it when MLflow is back: {sync_command(self._record.path.parent, self.uri)}"
            if MASK in (self.uri or ""):
                later += f" (with its password, which {RECORD_FILE} does not keep; or set MLFLOW_TRACKING_URI to it)"
        return f"MLflow ({self.uri}) did not take everything{cause}: {'; '.join(parts)}.{later}"


def sync_command(folder: Path, uri: str | None = None) -> str:
    """Returns the shell command that sends what a store has missed of a run.

    Args:
        folder: The run's.
        uri: The store's address as `run.json` has it. Where its password is masked, the command has to give it.
    """
    command = f"{shlex.quote(sys.executable)} -m slimexp.tracking.sync {shlex.quote(str(folder))}"
    return f"{command} --tracking-uri {shlex.quote(uri)}" if uri and MASK in uri else command


def tag_value(key: str, value: object) -> str:
    """Returns a tag's value as a store takes it: secrets masked, shortened with a note."""
    return MASK if is_secret_key(key) and value else shorten(mask_text(str(value)), MAX_TAG_LENGTH)


def _earlier_record(run_dir: Path | None) -> dict[str, Any]:
    try:
        return read_record(run_dir / RECORD_FILE) if run_dir is not None else {}
    except (OSError, ValueError):
        return {}


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
