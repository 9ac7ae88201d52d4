"""Closes what a kill has left behind: runs in status RUNNING whose process is no more."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from slimexp.tracking.mlflow_store import Store, cause_of
from slimexp.tracking.process import PROCESS_TAG, Process, this_process
from slimexp.tracking.run import MESSAGE_TAG

__all__ = ["RUN_DIR_TAG", "close_run", "close_stale_runs", "is_stale"]

_LOG = logging.getLogger(__name__)

RUN_DIR_TAG = "run_dir"
# At most so many of them at a start; the next start goes on.
_MAX_RUNS = 200


def close_stale_runs(store: Store) -> list[str]:
    """Marks the runs of this host whose process has ended without a word as KILLED.

    One search in the store, of our experiment only; runs of other hosts and of living processes are left alone.

    Returns:
        The ids of the runs that were closed.
    """
    host = this_process().host.replace("'", "")
    where = f"attributes.status = 'RUNNING' and tags.`{PROCESS_TAG}` LIKE '{host} %'"
    closed = []
    for run in store.client.search_runs([store.experiment_id], where, max_results=_MAX_RUNS):
        if is_stale(run):
            process = Process.parse(run.data.tags[PROCESS_TAG])
            assert process is not None
            if close_run(store, run.info.run_id, f"Process {process.pid} on {process.host} ended without a word."):
                closed.append(run.info.run_id)
    if closed:
        _LOG.info("Closed %d run(s) as KILLED whose process had ended without a word.", len(closed))
    return closed


def close_run(store: Store, run_id: str, message: str) -> bool:
    """Marks a run as KILLED if the store has it, and as RUNNING; returns whether it did so."""
    from mlflow.exceptions import MlflowException

    try:
        # Asked again: its process may have ended in order since it was searched for.
        run = store.client.get_run(run_id)
        if run.info.status != "RUNNING":
            return False
        # When it ended nobody knows; the last that it said is the best guess.
        last_ms = max((metric.timestamp for metric in run.data._metric_objs), default=None)
        store.client.set_tag(run_id, MESSAGE_TAG, message)
        store.client.set_terminated(run_id, "KILLED", last_ms)
    except MlflowException as error:
        _LOG.warning("The earlier run %s could not be marked as killed: %s", run_id, cause_of(error))
        return False
    return True


def is_stale(run: Any) -> bool:
    """Tells whether a run's process has ended; False if that cannot be told from here."""
    process = Process.parse(run.data.tags.get(PROCESS_TAG, ""))
    if process is None:
        return False
    gone = process.is_gone()
    if gone is None and process.host == this_process().host:
        # From before a reboot, or from a container of the same name: a process holds its run's folder locked.
        return _is_free(Path(run.data.tags.get(RUN_DIR_TAG, "")), run.info.run_id)
    return bool(gone)


def _is_free(run_dir: Path, run_id: str) -> bool:
    """Tells whether a run's folder is here and no process holds it."""
    try:
        import fcntl

        if not run_dir.is_absolute() or json.loads((run_dir / "run.json").read_text("utf-8")).get("run_id") != run_id:
            return False
        with open(run_dir / ".lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)
            return True
    except (ImportError, OSError, ValueError, AttributeError):
        return False
