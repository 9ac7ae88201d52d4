from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from slimexp.tracking import read_metrics
from slimexp.tracking.metrics_file import MetricsFile
from slimexp.tracking.rows import Rows


class Sampler:
    """Sees a load of 0.5 at the end only."""

    def take(self, step: int) -> dict[str, float]:
        return {}

    def stop(self, step: int) -> dict[str, float]:
        return {"system/load": 0.5}


def make(path: Path, **parts: Any) -> Rows:
    options: dict[str, Any] = {"events": None, "sampler": None, "last_step": 0, **parts}
    return Rows(MetricsFile(path), **options)


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = make(tmp_path / "metrics.jsonl")
    rows.write(1, {"a": 1.0})
    real_append = rows._metrics.append

    def full(row: Any) -> None:
        raise OSError(28, "No space left on device")

    # For mypy no method may be replaced; a disk that fills up for a moment cannot be had otherwise.
    rows._metrics.append = full  # type: ignore[method-assign]
    rows.write(2, {"a": 1.0})
    rows.write(3, {"a": 1.0})
    rows._metrics.append = real_append  # type: ignore[method-assign]
    rows.write(4, {"a": 1.0})
    rows.stop()
    rows.close_file()
    rows.warn_of_losses()
    assert caplog.text.count("cannot be written: No space left on device. The run goes on.") == 1
    assert "2 line(s) of metrics are lost" in caplog.text
    assert [row.step for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 4]


def test_a_run_too_short_for_a_look_at_the_machine_gets_one(tmp_path: Path) -> None:
    rows = make(tmp_path / "metrics.jsonl", sampler=Sampler(), last_step=7)
    rows.stop()
    rows.write(9, {"late": 1.0})  # Takes no more rows.
    rows.close_file()
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert (row.step, row.metrics) == (7, {"system/load": 0.5})


def test_event_files_get_the_same_rows(tmp_path: Path) -> None:
    written: list[Any] = []

    class Events:
        def write(self, step: int, metrics: dict[str, float], wall_secs: float) -> None:
            written.append((step, metrics))

        def close(self) -> None:
            written.append("closed")

    rows = make(tmp_path / "metrics.jsonl", events=Events())
    rows.write(1, {"a": 1})
    rows.close_events()
    with contextlib.closing(rows._metrics):
        assert written == [(1, {"a": 1.0}), "closed"]
    assert rows.spent_secs > 0
