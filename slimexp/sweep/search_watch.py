"""Follows the evaluations of the running jobs of a search, and asks for the end of those that fall behind.

The jobs are processes of their own, possibly on other machines; what joins them is the sweep's folder. A job that is to
stop finds `stop.json` in its folder: whoever waits for its process sends it SIGTERM then.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slimexp.sweep.jobs import PRUNED
from slimexp.sweep.stopping import PRUNE_FILE
from slimexp.tracking.metrics_file import MetricsRow, read_metrics
from slimexp.tracking.run import METRICS_FILE

if TYPE_CHECKING:
    from slimexp.sweep.search_study import Study, Trial

__all__ = ["last_value", "watching"]

_log = logging.getLogger("slimexp")

_POLL_SECS = 1.0
# How far the clocks of two machines may lie apart.
_CLOCK_SECS = 5.0


@contextlib.contextmanager
def watching(
    study: Study, metric: str, running: Mapping[Path, Trial], *, poll_secs: float | None = None
) -> Iterator[None]:
    """Reports the values of a metric to the study while the block runs, and stops the jobs that it gives up.

    Args:
        study: Not to be used within the block.
        metric: The metric that decides.
        running: The trials by their run folders.
        poll_secs: How often to look; by default each second.
    """
    poll_secs = poll_secs or _POLL_SECS
    end = threading.Event()
    followed = [_Followed(folder, trial, metric) for folder, trial in running.items()]

    def look(is_over: bool = False) -> None:
        for job in followed:
            try:
                job.look(study, is_over)
            except Exception as error:  # The jobs themselves are well.
                _log.warning("Trials are not pruned for now: %s: %s", type(error).__name__, error)
                end.wait(10 * poll_secs)

    def follow() -> None:
        spent = 0.0
        # Long runs have long files: reading them is to stay below a twentieth of the time.
        while not end.wait(max(poll_secs, 20 * spent)):
            began = time.monotonic()
            look()
            spent = time.monotonic() - began

    thread = threading.Thread(target=follow, name="search-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    look(is_over=True)


def last_value(folder: Path, metric: str) -> tuple[float | None, set[str]]:
    """Returns the last value of a metric in a run folder, None without one, and the names of all metrics there."""
    value: float | None = None
    names: set[str] = set()
    for row in _rows(folder):
        names |= row.metrics.keys()
        value = row.metrics.get(metric, value)
    return value, names


class _Followed:
    """What has been seen of one job."""

    def __init__(self, folder: Path, trial: Trial, metric: str) -> None:
        self._folder = folder
        self._trial = trial
        self._metric = metric
        self._since = time.time() - _CLOCK_SECS
        self._size = -1
        self._reported: set[int] = set()
        self._stopped = False

    def look(self, study: Study, is_over: bool = False) -> None:
        """Reports the values that are new.

        Those of an earlier start wait for the end: until the job has begun, nobody knows which of them it goes on from.
        """
        size = _size(self._folder / METRICS_FILE)
        if size == self._size and not is_over:
            return
        for row in _rows(self._folder):
            if row.step in self._reported or self._metric not in row.metrics:
                continue
            if not is_over and row.time < self._since:
                continue
            reason = study.report(self._trial, row.step, row.metrics[self._metric])
            self._reported.add(row.step)
            if reason is not None and not is_over and not self._stopped:
                self._stopped = True
                _ask_to_stop(self._folder, row.step, reason)
        self._size = size


def _ask_to_stop(folder: Path, step: int, reason: str) -> None:
    temporary = folder / f"{PRUNE_FILE}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps({"status": PRUNED, "step": step, "reason": reason}) + "\n", encoding="utf-8")
    os.replace(temporary, folder / PRUNE_FILE)


def _rows(folder: Path) -> list[MetricsRow]:
    try:
        return read_metrics(folder / METRICS_FILE)
    except OSError:
        return []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
