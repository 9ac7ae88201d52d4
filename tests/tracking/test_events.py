"""Event files: what TensorBoard will find in them, bounded, and once for each step."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

import pytest
import tensorflow as tf

from slimexp.tracking.events import EventFiles
from slimexp.tracking.tracker import Tracker


def read(folder: Path) -> list[tf.compat.v1.Event]:
    return [event for file in sorted(folder.iterdir()) for event in tf.compat.v1.train.summary_iterator(str(file))]


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(e.step, v.simple_value) for e in read(folder) for v in e.summary.value if v.tag == tag]


def shown(folder: Path, tag: str) -> list[int]:
    """The steps that TensorBoard shows: a start drops what earlier files have of its step and later ones."""
    steps: list[int] = []
    for event in read(folder):
        if event.session_log.status == tf.compat.v1.SessionLog.START:
            steps = [step for step in steps if step < event.step]
        steps += [event.step for value in event.summary.value if value.tag == tag]
    return steps


def start(run_dir: Path, **options: object) -> Tracker:
    fixed = {"backend": "none", "uri": None, "experiment": "e", "run_name": "r", "tags": {}, "params": {}}
    return Tracker.start(**{**fixed, "run_dir": run_dir, "tensorboard": True, **options})


def test_metrics_go_to_the_folder_of_their_name(tmp_path: Path) -> None:
    with start(tmp_path) as tracker:
        tracker.log_metrics(10, {"train/loss": 0.5, "pipeline/read_queue/fill_frac": 1.0, "eval/loss": 2.0})
        tracker.log_metrics(20, {"train/loss": math.nan, "train/gradient_norm": 1e300, "benchmark/read": 7})
    train, evaluation = tmp_path / "events" / "train", tmp_path / "events" / "eval"
    assert read(train)[0].file_version == "brain.Event:2"
    assert points(train, "loss")[0] == (10, 0.5)
    assert math.isnan(points(train, "loss")[1][1])
    assert points(train, "gradient_norm") == [(20, math.inf)]
    assert points(train, "pipeline/read_queue/fill_frac") == [(10, 1.0)]
    assert points(train, "benchmark/read") == [(20, 7.0)]
    assert points(evaluation, "loss") == [(10, 2.0)]
    assert all(abs(event.wall_time - time.time()) < 60 for event in read(train))


def test_nothing_is_written_unless_asked_for_or_logged(tmp_path: Path) -> None:
    with start(tmp_path / "a"):
        pass
    with start(tmp_path / "b", tensorboard=False) as tracker:
        tracker.log_metrics(1, {"train/loss": 1.0})
    with start(None) as tracker:  # A run without a folder.
        tracker.log_metrics(1, {"train/loss": 1.0})
    assert not list(tmp_path.rglob("events*"))


def test_a_run_that_fails_leaves_whole_files(tmp_path: Path) -> None:
    def run() -> None:
        with start(tmp_path) as tracker:
            tracker.log_metrics(1, {"train/loss": 1.0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert points(tmp_path / "events" / "train", "loss") == [(1, 1.0)]


def test_a_run_that_goes_on_shows_each_step_once(tmp_path: Path) -> None:
    with start(tmp_path) as tracker:
        for step in (10, 20, 30, 40):
            tracker.log_metrics(step, {"train/loss": 1.0})
        tracker.log_metrics(20, {"eval/top1": 0.5})
    with start(tmp_path, resume_run_id="x", resume_step=25) as tracker:
        for step in (30, 40, 50):
            tracker.log_metrics(step, {"train/loss": 2.0})
    assert shown(tmp_path / "events" / "train", "loss") == [10, 20, 30, 40, 50]
    assert shown(tmp_path / "events" / "eval", "top1") == [20]


def test_another_run_in_the_folder_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for loss in (1.0, 2.0):
            with start(tmp_path) as tracker:
                tracker.log_metrics(1, {"train/loss": loss})
    assert points(tmp_path / "events" / "train", "loss") == [(1, 2.0)]
    assert points(tmp_path / "events-1" / "train", "loss") == [(1, 1.0)]
    assert "are now in events-1" in caplog.text


def test_rows_stand_a_ten_thousandth_of_their_step_apart(tmp_path: Path) -> None:
    events = EventFiles(tmp_path)
    for step in range(1, 60_001):
        events.write(step, {"train/loss": 0.0})
    events.write(60_001, {"train/accuracy": 1.0})
    events.close()
    steps = [step for step, _ in points(tmp_path / "train", "loss")]
    assert steps[:20_000] == list(range(1, 20_001))
    # Each second one up to 30,000, each third up to 40,000, ...
    assert len(steps) == pytest.approx(20_000 + 10_000 * (1 / 2 + 1 / 3 + 1 / 4 + 1 / 5), abs=10)
    assert points(tmp_path / "train", "accuracy") == [(60_001, 1.0)]  # The last one is always there.


def test_rows_of_one_step_stay_together(tmp_path: Path) -> None:
    events = EventFiles(tmp_path, resume_step=1_000_000)
    for step in (1_000_050, 1_000_100, 1_000_150):
        events.write(step, {"train/loss": 1.0})
        events.write(step, {"pipeline/cpu_frac": 0.5})
    events.close()
    for tag in ("loss", "pipeline/cpu_frac"):
        assert [step for step, _ in points(tmp_path / "train", tag)] == [1_000_100, 1_000_150]


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "events").write_text("in the way")
    events = EventFiles(tmp_path / "events")
    for step in (1, 2):
        events.write(step, {"train/loss": 1.0})
    events.close()
    assert caplog.text.count("event files cannot be written") == 1


def test_the_files_stop_at_their_bound_and_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(tmp_path, events_max_bytes=3000) as tracker:
        for step in range(1, 200):
            tracker.log_metrics(step, {"train/loss": 0.5, "eval/loss": 1.0})
    folder = tmp_path / "events"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert 2000 < size < 4500
    steps = [step for step, _ in points(folder / "train", "loss")]
    assert steps == list(range(1, steps[-1] + 1))
    assert caplog.text.count("have reached tracking.events_max_bytes=3000, at step") == 1
    # A run that goes on counts what is there.
    with start(tmp_path, events_max_bytes=3000, resume_step=199) as tracker:
        tracker.log_metrics(200, {"train/loss": 0.5})
        tracker.log_metrics(201, {"train/loss": 0.5})
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < size + 500
