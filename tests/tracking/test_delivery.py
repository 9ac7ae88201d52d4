from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST

from slimexp.tracking.delivery import Delivery, RunGoneError
from slimexp.tracking.outbox import Entry
from slimexp.tracking.sqlite_metrics import Point
from slimexp.tracking.unsent import Refused
from tests.tracking.fake_client import FakeClient, make_run

REFUSAL = MlflowException("too long", error_code=INVALID_PARAMETER_VALUE)
GONE = MlflowException(
    "The run r must be in the 'active' state. Current state is deleted.", error_code=INVALID_PARAMETER_VALUE
)


class Sent:
    """A delivery, with what it counts."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.refused = Refused("store")
        self.successes = 0
        self.delivery = Delivery(make_run(self.client), self.refused, self._count)

    def _count(self) -> None:
        self.successes += 1


@pytest.fixture
def sent() -> Sent:
    return Sent()


def test_points_and_tags_go_in_as_many_calls_as_they_take(sent: Sent) -> None:
    sent.delivery.send_points([Point("a", 1.0, 0, step) for step in range(2500)])
    assert [len(batch) for batch in sent.client.got("metrics")] == [1000, 1000, 500]
    sent.delivery.send_tags({f"t{i}": "x" for i in range(101)})
    assert [len(batch) for batch in sent.client.got("tags")] == [100, 1]
    sent.delivery.send_points([])
    sent.delivery.send_tags({})
    sent.delivery.end("FINISHED", 5)
    assert sent.client.got("status") == ["FINISHED"]
    assert sent.successes == 6


def test_one_refused_param_leaves_the_others(sent: Sent, caplog: pytest.LogCaptureFixture) -> None:
    def fail(name: str, what: Any) -> Exception | None:
        return REFUSAL if any(key == "p7" for key, _ in what) else None

    sent.client.fail = fail
    sent.delivery.send_entries([Entry("params", f"p{i}", str(i)) for i in range(20)])
    assert sum(len(batch) for batch in sent.client.got("params")) == 19
    assert (sent.refused.entries, sent.refused.cause) == (1, "too long")
    assert "store does not take the param p7: too long" in caplog.text


def test_refused_metrics_are_counted_and_said_once(sent: Sent, caplog: pytest.LogCaptureFixture) -> None:
    sent.client.fail = lambda name, what: REFUSAL
    for step in (1, 2):
        sent.delivery.send_points([Point("a", 1.0, 0, step), Point("b", 1.0, 0, step)])
    assert sent.refused.points == 4
    assert caplog.text.count("store does not take metrics: too long") == 1
    assert sent.successes == 0


def test_a_file_that_is_refused_or_gone_is_passed_over(sent: Sent, tmp_path: Path) -> None:
    sent.client.fail = lambda name, what: REFUSAL
    sent.delivery.send_file(tmp_path, None)
    sent.delivery.send_file(tmp_path / "gone", "figures")
    assert sent.refused.artifacts == [str(tmp_path), f"{tmp_path}/gone"]
    assert sent.refused.cause == f"{tmp_path}/gone is gone"


def test_an_outage_is_the_callers_to_wait_out(sent: Sent, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent.client.fail = lambda name, what: ConnectionError("down")
    for call in (
        lambda: sent.delivery.send_entries([Entry("tags", "a", "b")]),
        lambda: sent.delivery.send_points([Point("a", 1.0, 0, 1)]),
        lambda: sent.delivery.send_file(tmp_path, None),
        lambda: sent.delivery.end("FINISHED", None),
    ):
        with pytest.raises(ConnectionError, match="down"):
            call()
    assert (sent.refused.points, sent.refused.entries, sent.refused.artifacts) == (0, 0, [])
    assert "store does not take a file: down" in caplog.text


def test_a_run_that_is_no_more_is_told_apart(sent: Sent, tmp_path: Path) -> None:
    for error in (GONE, MlflowException("no run", error_code=RESOURCE_DOES_NOT_EXIST)):
        sent.client.fail = lambda name, what, error=error: error
        for call in (
            lambda: sent.delivery.send_entries([Entry("tags", "a", "b")]),
            lambda: sent.delivery.send_points([Point("a", 1.0, 0, 1)]),
            lambda: sent.delivery.send_file(tmp_path, None),
        ):
            with pytest.raises(RunGoneError, match=r"no run|must be in the 'active' state"):
                call()
    assert (sent.refused.points, sent.refused.entries, sent.refused.artifacts) == (0, 0, [])
