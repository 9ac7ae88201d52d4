"""The one object through which a job records its run: metrics, params, tags, files and how it ended."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from slimexp.errors import Interrupted
from slimexp.tracking.beginning import begin, clean_tags
from slimexp.tracking.datasets import describe_dataset
from slimexp.tracking.events import FOLDER as EVENTS_FOLDER
from slimexp.tracking.events import MAX_BYTES as MAX_EVENTS_BYTES
from slimexp.tracking.events import EventFiles
from slimexp.tracking.masking import mask_text
from slimexp.tracking.mirror import Mirror
from slimexp.tracking.params import flatten
from slimexp.tracking.record import RunRecord, now_ms
from slimexp.tracking.rows import Rows
from slimexp.tracking.run import MESSAGE_TAG
from slimexp.tracking.sender import FLUSH_SECS
from slimexp.tracking.system_metrics import SystemSampler, find_psutil
from slimexp.tracking.unsent import Unsent

__all__ = ["PARENT_RUN_TAG", "STATUSES", "Tracker"]

_LOG = logging.getLogger(__name__)

PARENT_RUN_TAG = "mlflow.parentRunId"
STATUSES = ("FINISHED", "FAILED", "KILLED")


class Tracker:
    """Records one run.

    Metrics go to `metrics.jsonl` in the run's folder first, and from there to the store in the background; params, tags
    and files go straight to the background. So nothing here waits for a server, or fails because of one. As a context
    manager it ends the run by what happened: FINISHED, FAILED on an error, KILLED on Ctrl-C or a signal.

    Make one with `Tracker.start`.
    """

    def __init__(self, record: RunRecord, rows: Rows, mirror: Mirror | None) -> None:
        self._record = record
        self._rows = rows
        self._mirror = mirror
        self._sender = mirror.sender if mirror is not None else None
        self._finished = False

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
        psutil = find_psutil(system_metrics)
        events = None
        if tensorboard and run_dir:
            events = EventFiles(run_dir / EVENTS_FOLDER, resume_step=resume_step, max_bytes=events_max_bytes)
        begun = begin(
            backend=backend,
            uri=uri,
            experiment=experiment,
            run_name=run_name,
            run_dir=run_dir,
            tags=tags,
            params=params,
            on_error=on_error,
            resume_run_id=resume_run_id,
            resume_step=resume_step,
            start_dir=start_dir or Path.cwd(),
        )
        sampler = SystemSampler(psutil, system_every_secs) if psutil is not None else None
        rows = Rows(begun.metrics, events=events, sampler=sampler, last_step=resume_step or 0)
        mirror = None
        if begun.request is not None:
            mirror = Mirror(
                begun.request,
                begun.run,
                begun.metrics,
                begun.record,
                resume_step=resume_step,
                stale_run_id=stale_run_id,
                flush_secs=flush_secs,
            )
        tracker = cls(begun.record, rows, mirror)
        for path, folder in begun.missed:
            tracker.log_artifact(path, folder)
        return tracker

    @property
    def run_id(self) -> str | None:
        """The store's id of the run; None without a store, or as long as it has not answered."""
        return self._mirror.run.run_id if self._mirror and self._mirror.run else None

    @property
    def experiment_id(self) -> str | None:
        """The store's id of the experiment; None without a store, or as long as it has not answered."""
        return self._mirror.run.store.experiment_id if self._mirror and self._mirror.run else None

    @property
    def uri(self) -> str | None:
        """The store's address with its password masked; None without a store."""
        return self._mirror.location.display if self._mirror else None

    @property
    def ui_command(self) -> str | None:
        """The shell command that opens the UI on the store, or a server's URL; None without a store."""
        return self._mirror.location.ui_command if self._mirror else None

    @property
    def spent_secs(self) -> float:
        """How long the calls of `log_metrics` took so far: what tracking costs the training loop."""
        return self._rows.spent_secs

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends a line to `metrics.jsonl`; the store gets it within some seconds, and the event files.

        A value that is not finite stays in the file, as text. The store gets a tag for the first one of each metric,
        e.g. `nonfinite.train/loss` = `nan at step 12`.

        Args:
            step: The training step.
            metrics: Values by name, e.g. `train/loss`.
        """
        self._rows.write(step, metrics)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Adds params, nested or flat; one that the run has with another value is left as it is, with a warning."""
        flat = flatten(params)
        known = {**self._record.content["params"], **(self._mirror.params if self._mirror else {})}
        new = {key: value for key, value in flat.items() if key not in known}
        for key, value in flat.items():
            if known.get(key, value) != value:
                _LOG.warning("The param %s stays %s; it cannot become %s.", key, known[key], value)
        self._record.merge("params", new)  # A run that is killed goes on with these.
        if self._sender is not None:
            self._sender.put_params(new)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets tags; a later value replaces an earlier one."""
        clean = clean_tags(tags)
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

        The arguments are those of `describe_dataset`; the digest is e.g. from `slimexp.dataset.summary.fingerprint`.
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
        self._rows.stop()
        self._finished = True
        ended_ms = now_ms()
        # Before the store is told, which may take a while: who stops the process now does not unmake its work.
        self._record.update(status=status, message=message and mask_text(message), ended_ms=ended_ms)
        self._rows.close_events()
        unsent = self._mirror.finish(status, ended_ms) if self._mirror is not None else Unsent()
        self._rows.close_file()
        self._record.update(unsent=dataclasses.asdict(unsent) if unsent else None)
        if self._mirror is not None and unsent:
            _LOG.warning("%s", self._mirror.describe(unsent))
        self._rows.warn_of_losses()
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
