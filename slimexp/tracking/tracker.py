"""The one object through which a job records its run: metrics, params, tags, files and how it ended."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from slimexp.errors import Interrupted, UserError
from slimexp.tracking.events import FOLDER as EVENTS_FOLDER
from slimexp.tracking.events import EventFiles
from slimexp.tracking.location import Location, resolve_uri
from slimexp.tracking.masking import is_secret_key, mask_text
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow, truncate_after
from slimexp.tracking.params import MAX_TAG_LENGTH, flatten, legal_key, shorten
from slimexp.tracking.run import (
    MESSAGE_TAG,
    METRICS_FILE,
    RESUME_COUNT_TAG,
    OpenRun,
    close_stale_run,
    open_or_go_offline,
)
from slimexp.tracking.sender import FLUSH_SECS, NONFINITE_TAG, Sender, Unsent

__all__ = ["METRICS_FILE", "PARENT_RUN_TAG", "RECORD_FILE", "STATUSES", "Tracker"]

_LOG = logging.getLogger(__name__)

RECORD_FILE = "run.json"
PARENT_RUN_TAG = "mlflow.parentRunId"
STATUSES = ("FINISHED", "FAILED", "KILLED")
_IDLE_SECS, _TOTAL_SECS = 20.0, 180.0


class Tracker:
    """Records one run.

    Metrics go to `metrics.jsonl` in the run's folder first, and from there to the store in the background; params, tags
    and files go straight to the background. So nothing here waits for a server, or fails because of one. As a context
    manager it ends the run by what happened: FINISHED, FAILED on an error, KILLED on Ctrl-C or a signal.

    Make one with `Tracker.start`.
    """

    def __init__(
        self,
        location: Location | None,
        run: OpenRun | None,
        metrics: MetricsFile,
        record: _Record,
        flush_secs: float,
        events: EventFiles | None = None,
    ) -> None:
        self._location = location
        self._run = run
        self._metrics = metrics
        self._events = events
        self._record = record
        self._params = dict(run.params) if run else {}
        self._finished = False
        self._write_error: str | None = None
        self._lost_rows = 0
        self._spent_secs = 0.0
        self._sender: Sender | None = None
        if run is not None and location is not None:
            self._sender = Sender(
                run.store.client,
                run.run_id,
                metrics,
                name=f"MLflow ({location.display})",
                last_steps=run.last_steps,
                nonfinite=[t.removeprefix(NONFINITE_TAG) for t in run.tags if t.startswith(NONFINITE_TAG)],
                flush_secs=flush_secs,
            )

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
    ) -> Tracker:
        """Opens the store and a run in it.

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

        Returns:
            The tracker.

        Raises:
            UserError: If the store is wrong, or does not answer and `on_error` is `fail`.
        """
        if backend not in ("mlflow", "none"):
            raise UserError(f"tracking.backend={backend} is unknown; use mlflow or none.")
        if on_error not in ("offline", "fail"):
            raise UserError(f"tracking.on_error={on_error} is unknown; use offline or fail.")
        location = run = None
        flat = flatten(params)
        clean = {legal_key(key): _tag_value(key, value) for key, value in tags.items()}
        if backend == "mlflow":
            location = resolve_uri(uri, start_dir or Path.cwd())
            run = open_or_go_offline(location, experiment, run_name, clean, resume_run_id, on_error)
            if run is not None and stale_run_id is not None:
                close_stale_run(run.store, stale_run_id)
        try:
            metrics = _open_metrics(run_dir, resume_step, anew=resume_run_id is None)
        except OSError as error:
            if run is not None:
                run.store.client.set_terminated(run.run_id, "FAILED")
            reason = error.strerror or error
            raise UserError(f"run_dir={run_dir}: {METRICS_FILE} cannot be written: {reason}.") from error
        record = _Record(
            path=run_dir / RECORD_FILE if run_dir else None,
            content={
                "backend": backend,
                "uri": location.display if location else None,
                "experiment": experiment,
                "run_id": run.run_id if run else None,
                "run_name": run_name,
                "status": "RUNNING",
                "tags": clean,
                "params": flat,
            },
        )
        events = EventFiles(run_dir / EVENTS_FOLDER, resume_step=resume_step) if tensorboard and run_dir else None
        tracker = cls(location, run, metrics, record, flush_secs, events)
        record.write()
        if run is not None and run.resumes:
            tracker._send_resume(run, flat, clean, resume_step)
        else:
            tracker.log_params(flat)
        return tracker

    @property
    def run_id(self) -> str | None:
        """The store's id of the run; None without a store, or offline."""
        return self._run.run_id if self._run else None

    @property
    def experiment_id(self) -> str | None:
        """The store's id of the experiment; None without a store, or offline."""
        return self._run.store.experiment_id if self._run else None

    @property
    def uri(self) -> str | None:
        """The store's address with its password masked; None without a store."""
        return self._location.display if self._location else None

    @property
    def ui_command(self) -> str | None:
        """The shell command that opens the UI on the store, or a server's URL; None without a store."""
        return self._location.ui_command if self._location else None

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
        row = MetricsRow(int(step), time.time(), {name: float(value) for name, value in metrics.items()})
        if not self._finished:
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
        for key, value in flat.items():
            if self._params.get(key, value) != value:
                _LOG.warning("The param %s stays %s; it cannot become %s.", key, self._params[key], value)
        new = {key: value for key, value in flat.items() if key not in self._params}
        self._params.update(new)
        self._record.content["params"] = {**self._record.content["params"], **new}
        self._record.write()  # A run that is killed goes on with these.
        if self._sender is not None:
            self._sender.put_params(new)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags; a later value replaces an earlier one."""
        clean = {legal_key(key): _tag_value(key, value) for key, value in tags.items()}
        self._record.content["tags"] = {**self._record.content["tags"], **clean}
        if self._sender is not None:
            self._sender.put_tags(clean)

    def log_artifact(self, path: str | os.PathLike[str], folder: str | None = None) -> None:
        """Sends a file, or a folder with all in it, in the background; it has to stay until `finish`.

        Args:
            path: The file or folder.
            folder: The folder within the run's artifacts, e.g. `figures`.
        """
        if self._sender is not None:
            self._sender.put_artifact(Path(os.path.abspath(path)), folder)

    def finish(self, status: str = "FINISHED", message: str | None = None) -> Unsent:
        """Sends what is left and ends the run; only the first call counts.

        Takes at most 20 s when nothing gets through, and at most 3 min when files are slow to upload.

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
        self._finished = True
        if self._events is not None:
            self._events.close()
        unsent = Unsent()
        if self._sender is not None:
            unsent = self._sender.finish(status, idle_secs=_IDLE_SECS, total_secs=_TOTAL_SECS)
        self._metrics.close()
        self._record.content.update(
            status=status, message=message and mask_text(message), unsent=dataclasses.asdict(unsent) if unsent else None
        )
        self._record.write()
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

    def _send_resume(self, run: OpenRun, params: dict[str, str], tags: dict[str, str], resume_step: int | None) -> None:
        """Adds what is new to a run that goes on, and records beside it what has changed."""
        prefix = f"resume.{run.resumes}"
        changes = {f"{prefix}.{key}": v for key, v in params.items() if run.params.get(key, v) != v}
        for key, value in tags.items():
            if run.tags.get(key, value) != value and not key.startswith("mlflow."):
                changes[f"{prefix}.{key}"] = value
        self.log_params({key: value for key, value in params.items() if key not in run.params})
        new = {key: value for key, value in tags.items() if key not in run.tags}
        since = {prefix: f"from step {resume_step}"} if resume_step is not None else {}
        self.set_tags({**new, **changes, **since, RESUME_COUNT_TAG: str(run.resumes)})

    def _unsent_message(self, unsent: Unsent) -> str:
        parts = []
        if unsent.points:
            parts.append(f"{unsent.points} metric values are only in {self._metrics.path or 'memory'}")
        if unsent.artifacts:
            parts.append(f"{len(unsent.artifacts)} files were not uploaded")
        if unsent.entries:
            parts.append(f"{unsent.entries} params and tags were not stored")
        if unsent.status:
            parts.append("the run still counts as RUNNING there")
        cause = f" ({unsent.cause})" if unsent.cause else ""
        return f"MLflow ({self.uri}) did not take everything{cause}: {'; '.join(parts)}."


@dataclasses.dataclass
class _Record:
    """`run.json`: what a script needs to send a run later, and what became of it."""

    path: Path | None
    content: dict[str, Any]

    def write(self) -> None:
        if self.path is None:
            return
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            text = json.dumps(self.content, ensure_ascii=False, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
            os.replace(temporary, self.path)
        except OSError as error:
            _LOG.warning("%s cannot be written: %s.", self.path, error.strerror or error)


def _tag_value(key: str, value: object) -> str:
    return "***" if is_secret_key(key) and value else shorten(mask_text(str(value)), MAX_TAG_LENGTH)


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
