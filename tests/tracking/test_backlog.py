from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from slimexp.tracking.backlog import Backlog, Portion
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from tests.tracking.fake_client import FakeClient, make_run


@pytest.fixture
def metrics() -> Iterator[MetricsFile]:
    file = MetricsFile(None)
    yield file
    file.close()


def portions(backlog: Backlog) -> Iterator[Portion]:
    """Takes all that there is."""
    while (portion := backlog.next_portion()) is not None:
        yield portion
        backlog.done(portion)


def test_portions_of_a_thousand_in_order(metrics: MetricsFile) -> None:
    for step in range(250):
        metrics.append(MetricsRow(step, 1.0, {f"m{i}": float(step) for i in range(10)}))
    metrics.append(MetricsRow(250, 1.0, {f"wide{i}": 1.0 for i in range(2500)}))
    backlog = Backlog(metrics)
    assert backlog.count_points() == 5000
    points = [portion.points for portion in portions(backlog)]
    assert [len(portion) for portion in points] == [1000, 1000, 500, 2500]  # A row stays whole.
    assert [point.step for portion in points for point in portion if point.key == "m3"] == list(range(250))
    assert backlog.count_points() == 0


def test_a_portion_comes_again_until_it_is_done(metrics: MetricsFile) -> None:
    metrics.append(MetricsRow(1, 1.5, {"a[0]": 2.0}))
    backlog = Backlog(metrics)
    first = backlog.next_portion()
    assert first is not None
    assert first == backlog.next_portion()
    assert first.points == [("a_0_", 2.0, 1500, 1)]
    backlog.done(first)
    assert backlog.next_portion() is None
    metrics.append(MetricsRow(2, 2.0, {"a[0]": 3.0}))
    assert backlog.count_points() == 1


def test_known_steps_are_left_out(metrics: MetricsFile) -> None:
    for step in (10, 20, 30):
        metrics.append(MetricsRow(step, 1.0, {"a": 1.0, "b": 1.0}))
    backlog = Backlog(metrics)
    assert backlog.count_points() == 6
    backlog.compare_with(make_run(FakeClient(), last_steps={"a": 20, "c": 99}))
    assert backlog.count_points() == 4
    (portion,) = portions(backlog)
    assert [(point.key, point.step) for point in portion.points] == [("b", 10), ("b", 20), ("a", 30), ("b", 30)]


def test_what_is_not_finite_becomes_a_tag_once(metrics: MetricsFile) -> None:
    metrics.append(MetricsRow(12, 1.0, {"train/loss": math.nan, "a": 1.0, "old": math.inf}))
    metrics.append(MetricsRow(13, 1.0, {"train/loss": math.inf, "g": -math.inf}))
    backlog = Backlog(metrics, make_run(FakeClient(), tags={"nonfinite.old": "inf at step 1"}))
    (portion,) = portions(backlog)
    assert [(point.key, point.step) for point in portion.points] == [("a", 12)]
    assert portion.tags == {"nonfinite.train/loss": "nan at step 12", "nonfinite.g": "-inf at step 13"}
    metrics.append(MetricsRow(14, 1.0, {"g": math.nan}))
    assert [portion.tags for portion in portions(backlog)] == [{}]
