"""Creates a run in a store, or takes one up again."""

from __future__ import annotations

import dataclasses
import getpass
import logging
import os

from slimexp.errors import UserError
from slimexp.tracking.location import Location
from slimexp.tracking.mlflow_store import Store, StoreUnavailableError, cause_of, is_refusal, open_store

__all__ = ["MESSAGE_TAG", "METRICS_FILE", "RESUME_COUNT_TAG", "OpenRun", "close_stale_run", "open_or_go_offline"]

_LOG = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
MESSAGE_TAG = "status.message"
RESUME_COUNT_TAG = "resume.count"


@dataclasses.dataclass(frozen=True)
class OpenRun:
    """A run of a store, ready to be logged to.

    Attributes:
        store: The store that it is in.
        run_id: Its id there.
        params: What the store has of it already; likewise `tags`.
        tags: See `params`.
        last_steps: The last step of each metric that the store has.
        resumes: How often it has been taken up again, this time included; 0 for a new run.
    """

    store: Store
    run_id: str
    params: dict[str, str]
    tags: dict[str, str]
    last_steps: dict[str, int]
    resumes: int = 0


def open_or_go_offline(
    location: Location, experiment: str, run_name: str, tags: dict[str, str], resume_run_id: str | None, on_error: str
) -> OpenRun | None:
    """Opens the store and a run in it.

    Args:
        location: Where.
        experiment: The experiment's name.
        run_name: The name of a new run.
        tags: The tags of a new run.
        resume_run_id: A run to take up again; a new one is made if the store has it no more.
        on_error: `offline` or `fail`, for a store that does not answer now.

    Returns:
        The run, in status RUNNING; None if the store does not answer and `on_error` is `offline`.

    Raises:
        UserError: If the user has to mend something, or the store does not answer and `on_error` is `fail`.
    """
    try:
        store = open_store(location, experiment)
        from mlflow.exceptions import MlflowException

        try:
            return _open_run(store, location, run_name, tags, resume_run_id)
        except MlflowException as error:
            if is_refusal(error):
                raise UserError(f"{location.display} refuses the run {run_name}: {cause_of(error)}") from error
            raise StoreUnavailableError(cause_of(error)) from error
    except StoreUnavailableError as error:
        where = f"MLflow at {location.display} (from {location.origin}) is not available: {error}."
        if on_error == "fail":
            raise UserError(
                f"{where} Start it, set another tracking.uri, go on without it by tracking.on_error=offline, "
                f"or set tracking=none."
            ) from error
        _LOG.warning("%s The run goes on; its metrics are kept in %s only.", where, METRICS_FILE)
        return None


def close_stale_run(store: Store, run_id: str) -> None:
    """Marks a run that a kill has left RUNNING as KILLED, if the store has it and it still is."""
    from mlflow.exceptions import MlflowException

    try:
        if store.client.get_run(run_id).info.status == "RUNNING":
            store.client.set_terminated(run_id, "KILLED")
    except MlflowException as error:
        _LOG.warning("The earlier run %s could not be marked as killed: %s", run_id, cause_of(error))


def _open_run(
    store: Store, location: Location, run_name: str, tags: dict[str, str], resume_run_id: str | None
) -> OpenRun:
    from mlflow.exceptions import MlflowException

    client = store.client
    if resume_run_id is not None:
        try:
            run = client.get_run(resume_run_id)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            run = None
        if run is not None and run.info.lifecycle_stage == "active":
            client.update_run(resume_run_id, status="RUNNING")
            if MESSAGE_TAG in run.data.tags:  # Why it ended the last time.
                client.delete_tag(resume_run_id, MESSAGE_TAG)
            return OpenRun(
                store,
                resume_run_id,
                params=dict(run.data.params),
                tags=dict(run.data.tags),
                # The public `run.data.metrics` has the last values without their steps.
                last_steps={metric.key: metric.step for metric in run.data._metric_objs},
                resumes=int(run.data.tags.get(RESUME_COUNT_TAG, "0")) + 1,
            )
        _LOG.warning(
            "%s has no run %s any more; the resumed run becomes a new one there.", location.display, resume_run_id
        )
        tags = {**tags, "resumed_from": resume_run_id}
    created = client.create_run(store.experiment_id, tags={"mlflow.user": _user(), **tags}, run_name=run_name)
    return OpenRun(store, created.info.run_id, params={}, tags=dict(created.data.tags), last_steps={})


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A user id without a name, as in many containers.
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
