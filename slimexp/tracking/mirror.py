"""Keeps a run of a store as the run's folder has it: first what it was started with, then what is logged."""

from __future__ import annotations

from slimexp.tracking.metrics_file import MetricsFile
from slimexp.tracking.record import RunRecord
from slimexp.tracking.run import OpenRun, RunRequest, open_run, resume_entries
from slimexp.tracking.sender import Sender
from slimexp.tracking.stale import close_run, close_stale_runs
from slimexp.tracking.unsent import Unsent, describe_unsent

__all__ = ["Mirror"]

# How long the end of a run waits for a store: when nothing gets through, when it never was there, and at most.
_IDLE_SECS, _ABSENT_SECS, _TOTAL_SECS = 20.0, 5.0, 180.0


class Mirror:
    """The store's side of a run, whether the store is there from the start, later, or never.

    Args:
        request: Which run is wanted.
        run: It; None if the store did not answer.
        metrics: The file of its metrics.
        record: Its `run.json`.
        resume_step: The step of the checkpoint that the run goes on from; None for none.
        stale_run_id: A run that was killed and will not go on; None for none.
        flush_secs: How often metrics are sent.

    Attributes:
        sender: Takes what is logged from here on.
        location: The store.
        run: The store's run; None as long as it has not answered.
        params: The params that it had before.
    """

    def __init__(
        self,
        request: RunRequest,
        run: OpenRun | None,
        metrics: MetricsFile,
        record: RunRecord,
        *,
        resume_step: int | None,
        stale_run_id: str | None,
        flush_secs: float,
    ) -> None:
        self.location = request.location
        self.run: OpenRun | None = None
        self.params: dict[str, str] = {}
        self._start_tags = request.tags
        self._metrics_path = metrics.path
        self._record = record
        self._first_params: dict[str, str] = record.content["params"]
        self._resume_step = resume_step
        self._stale_run_id = stale_run_id
        self.sender = Sender(
            metrics,
            name=f"MLflow ({request.location.display})",
            run=run,
            connect=lambda on_answer: open_run(request, was_tried=True, on_answer=on_answer),
            on_open=self._adopt,
            chore=self._close_stale_runs,
            flush_secs=flush_secs,
        )
        if run is not None:
            self._adopt(run)
        self.sender.start()

    def finish(self, status: str, ended_ms: int) -> Unsent:
        """Sends what is left and the run's status, and returns what did not get through."""
        return self.sender.finish(
            status, idle_secs=_IDLE_SECS, total_secs=_TOTAL_SECS, absent_secs=_ABSENT_SECS, end_ms=ended_ms
        )

    def describe(self, unsent: Unsent) -> str:
        """Says what did not get through and how to send it."""
        return describe_unsent(
            unsent, uri=self.location.display, metrics_path=self._metrics_path, record_path=self._record.path
        )

    def _adopt(self, run: OpenRun) -> None:
        """Takes the store's run as ours, at the start or, in the sender's thread, when the store is there at last."""
        self.params = run.params
        if run.resumes:
            params, tags = resume_entries(run, self._first_params, self._start_tags, self._resume_step)
            kept = {key: value for key, value in run.tags.items() if not key.startswith(("mlflow.", "slimexp."))}
            # As the store should have them: what the run was started with stays, what changed stands beside it.
            self._record.merge("tags", {**kept, **tags})
            self.sender.put_tags(tags)
        else:
            params = {key: value for key, value in self._first_params.items() if key not in run.params}
        self.sender.put_params(params)
        for described in self._record.content["datasets"]:
            if (described["name"], described["digest"]) not in run.datasets:
                self.sender.put_dataset(described)
        self._record.content.pop("resume", None)
        self._record.update(run_id=run.run_id)
        self.run = run

    def _close_stale_runs(self, run: OpenRun) -> None:
        if self._stale_run_id is not None:
            close_run(run.store, self._stale_run_id, "Killed; the folder's next run began anew.")
        close_stale_runs(run.store)
