"""Creates a run in a store, or takes one up again."""

from __future__ import annotations

import dataclasses
import getpass
import logging
import os
from collections.abc import Callable
from typing import Any

from slimexp.errors import UserError
from slimexp.tracking.location import Location
from slimexp.tracking.mlflow_store import Store, StoreUnavailableError, cause_of, is_refusal, open_store
from slimexp.tracking.process import PROCESS_TAG, this_process

__all__ = [
    "KEY_TAG",
    "MESSAGE_TAG",
    "METRICS_FILE",
    "RESUME_COUNT_TAG",
    "OpenRun",
    "RunRequest",
    "current_user",
    "find_run",
    "open_or_go_offline",
    "open_run",
    "resume_entries",
    "take_up",
]

_LOG = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
MESSAGE_TAG = "status.message"
RESUME_COUNT_TAG = "resume.count"
# Names the run before any store does. A request whose answer is lost may have made the run all the same.
KEY_TAG = "slimexp.key"


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """What run is wanted, and where.

    Attributes:
        location: The store.
        experiment: The experiment's name.
        run_name: The name of a new run.
        tags: The tags of a new run.
        key: Tells the run from all others before the store has given it an id.
        resume_run_id: A run to take up again; a new one is made if the store has it no more.
        start_ms: When a new run was started, in Unix milliseconds; None means now.
    """

    location: Location
    experiment: str
    run_name: str
    tags: dict[str, str]
    key: str
    resume_run_id: str | None = None
    start_ms: int | None = None


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
        datasets: The datasets that it has, as (name, digest).
        status: As it was when the store was asked.
    """

    store: Store
    run_id: str
    params: dict[str, str]
    tags: dict[str, str]
    last_steps: dict[str, int]
    resumes: int = 0
    datasets: frozenset[tuple[str, str]] = frozenset()
    status: str = "RUNNING"


def open_run(request: RunRequest, *, was_tried: bool = False, on_answer: Callable[[], None] = lambda: None) -> OpenRun:
    """Opens the store and the run in it.

    Args:
        request: Which run.
        was_tried: Whether an earlier try may have made it without our knowing.
        on_answer: Called once the store is known to be there, if only slow.

    Returns:
        The run, in status RUNNING.

    Raises:
        UserError: If the user has to mend something.
        StoreUnavailableError: If the store does not answer now.
    """
    from mlflow.exceptions import MlflowException

    store = open_store(request.location, request.experiment, on_answer)
    try:
        return _open_run(store, request, was_tried)
    except MlflowException as error:
        if is_refusal(error):
            where = request.location.display
            raise UserError(f"{where} refuses the run {request.run_name}: {cause_of(error)}") from error
        raise StoreUnavailableError(cause_of(error)) from error


def open_or_go_offline(request: RunRequest, on_error: str, *, was_tried: bool = False) -> OpenRun | None:
    """Opens the store and the run in it, or goes on without if it does not answer now.

    Args:
        request: Which run.
        on_error: `offline` or `fail`, for a store that does not answer now.
        was_tried: See `open_run`.

    Returns:
        The run, in status RUNNING; None if the store does not answer and `on_error` is `offline`.

    Raises:
        UserError: If the user has to mend something, or the store does not answer and `on_error` is `fail`.
    """
    location = request.location
    try:
        return open_run(request, was_tried=was_tried)
    except StoreUnavailableError as error:
        where = f"MLflow at {location.display} (from {location.origin}) is not available: {error}."
        if on_error == "fail":
            raise UserError(
                f"{where} Start it, set another tracking.uri, go on without it by tracking.on_error=offline, "
                f"or set tracking=none."
            ) from error
        _LOG.warning("%s The run goes on; %s keeps what will be sent when it is there.", where, METRICS_FILE)
        return None


def find_run(store: Store, key: str) -> Any | None:
    """Returns the run of our experiment that was made under a key, or None."""
    found = store.client.search_runs([store.experiment_id], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
    return found[0] if found else None


def take_up(store: Store, run: Any, resumes: int = 0) -> OpenRun:
    """Returns a run of the store with what the store has of it."""
    inputs = run.inputs.dataset_inputs if run.inputs is not None else ()
    return OpenRun(
        store,
        run.info.run_id,
        params=dict(run.data.params),
        tags=dict(run.data.tags),
        # The public `run.data.metrics` has the last values without their steps.
        last_steps={metric.key: metric.step for metric in run.data._metric_objs},
        resumes=resumes,
        status=run.info.status,
        datasets=frozenset((item.dataset.name, item.dataset.digest) for item in inputs),
    )


def resume_entries(
    run: OpenRun, params: dict[str, str], tags: dict[str, str], resume_step: int | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the params and tags that a run which goes on gets: what is new, and beside it what has changed."""
    prefix = f"resume.{run.resumes}"
    new_tags = {key: value for key, value in tags.items() if key not in run.tags}
    changes = {f"{prefix}.{key}": value for key, value in params.items() if run.params.get(key, value) != value}
    for key, value in tags.items():
        if run.tags.get(key, value) != value and not key.startswith(("mlflow.", "slimexp.")):
            changes[f"{prefix}.{key}"] = value
    since = {prefix: f"from step {resume_step}"} if resume_step is not None else {}
    new_params = {key: value for key, value in params.items() if key not in run.params}
    return new_params, {**new_tags, **changes, **since, RESUME_COUNT_TAG: str(run.resumes)}


def current_user() -> str:
    """Returns the name of the user, or the number where there is none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def _open_run(store: Store, request: RunRequest, was_tried: bool) -> OpenRun:
    from mlflow.exceptions import MlflowException

    client = store.client
    process = str(this_process())
    tags = {"mlflow.user": current_user(), **request.tags, KEY_TAG: request.key, PROCESS_TAG: process}
    if request.resume_run_id is not None:
        try:
            run = client.get_run(request.resume_run_id)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            run = None
        if run is not None and run.info.lifecycle_stage == "active":
            # First whose it is now: a run in status RUNNING whose process has ended is closed by the next start.
            client.set_tag(request.resume_run_id, PROCESS_TAG, process)
            client.update_run(request.resume_run_id, status="RUNNING")
            if MESSAGE_TAG in run.data.tags:  # Why it ended the last time.
                client.delete_tag(request.resume_run_id, MESSAGE_TAG)
                del run.data.tags[MESSAGE_TAG]
            return take_up(store, run, resumes=int(run.data.tags.get(RESUME_COUNT_TAG, "0")) + 1)
        _LOG.warning(
            "%s has no run %s any more; the resumed run becomes a new one there.",
            request.location.display,
            request.resume_run_id,
        )
        tags = {**tags, "resumed_from": request.resume_run_id}
    if was_tried:
        run = find_run(store, request.key)
        if run is not None:
            return take_up(store, run)
    created = client.create_run(store.experiment_id, request.start_ms, tags=tags, run_name=request.run_name)
    return OpenRun(store, created.info.run_id, params={}, tags=dict(created.data.tags), last_steps={})
