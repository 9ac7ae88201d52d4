"""Following the evaluations of running jobs, and asking for the end of those that fall behind."""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slimexp.sweep.search_watch import last_value, watching
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow


class FakeStudy:
    """Notes what is reported; gives up what is below 0.5."""

    def __init__(self) -> None:
        self.reports: list[tuple[Any, int, float]] = []

    def report(self, trial: Any, step: int, value: float) -> str | None:
        self.reports.append((trial.name, step, value))
        return f"pruned at step {step}" if value < 0.5 else None


def append(folder: Path, step: int, value: float | None, when: float = 0.0) -> None:
    folder.mkdir(exist_ok=True)
    file = MetricsFile(folder / "metrics.jsonl")
    metrics = {"train/loss": 1.0} if value is None else {"train/loss": 1.0, "eval/top1": value}
    file.append(MetricsRow(step, when or time.time(), metrics))
    file.close()


def wait_for(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def watch(tmp_path):
    study = FakeStudy()
    running = {tmp_path / name: SimpleNamespace(name=name) for name in ("0", "1")}
    return SimpleNamespace(study=study, watching=lambda: watching(study, "eval/top1", running, poll_secs=0.01))


def test_values_are_reported_once_and_the_weak_job_is_asked_to_stop(tmp_path, watch):
    with watch.watching():
        append(tmp_path / "0", 1, None)
        append(tmp_path / "0", 2, 0.75)
        append(tmp_path / "1", 2, 0.25)
        wait_for(lambda: (tmp_path / "1" / "stop.json").is_file())
        append(tmp_path / "0", 4, 0.875)
        wait_for(lambda: len(watch.study.reports) == 3)
    assert sorted(watch.study.reports) == [("0", 2, 0.75), ("0", 4, 0.875), ("1", 2, 0.25)]
    stop = json.loads((tmp_path / "1" / "stop.json").read_text())
    assert stop == {"status": "PRUNED", "step": 2, "reason": "pruned at step 2"}
    assert not (tmp_path / "0" / "stop.json").exists()


def test_what_an_earlier_start_left_is_judged_by_nobody(tmp_path, watch):
    """A job that goes on may drop the rows beyond its checkpoint: they count once it has ended, if they are there."""
    append(tmp_path / "0", 2, 0.25, when=1000.0)
    append(tmp_path / "0", 4, 0.25, when=1001.0)
    with watch.watching():
        (tmp_path / "0" / "metrics.jsonl").unlink()
        append(tmp_path / "0", 2, 0.25, when=1000.0)
        append(tmp_path / "0", 4, 0.75)
        wait_for(lambda: watch.study.reports)
        assert watch.study.reports == [("0", 4, 0.75)]
    assert watch.study.reports == [("0", 4, 0.75), ("0", 2, 0.25)]
    assert not (tmp_path / "0" / "stop.json").exists()


def test_a_study_that_cannot_be_reached_harms_no_job(tmp_path, watch, caplog):
    def report(trial: Any, step: int, value: float) -> None:
        watch.study.report = FakeStudy.report.__get__(watch.study)
        raise OSError("database is locked")

    watch.study.report = report
    with caplog.at_level(logging.WARNING, "slimexp"), watch.watching():
        append(tmp_path / "0", 2, 0.75)
        wait_for(lambda: caplog.messages)
    assert caplog.messages == ["Trials are not pruned for now: OSError: database is locked"]
    assert watch.study.reports == [("0", 2, 0.75)]


def test_the_last_value_counts(tmp_path):
    assert last_value(tmp_path, "eval/top1") == (None, set())
    for step, value in enumerate([0.5, 0.75, math.nan, 0.25, None]):
        append(tmp_path, step, value)
    assert last_value(tmp_path, "eval/top1") == (0.25, {"train/loss", "eval/top1"})
    assert last_value(tmp_path, "eval/loss") == (None, {"train/loss", "eval/top1"})
