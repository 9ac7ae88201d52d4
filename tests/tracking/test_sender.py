from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from slimexp.errors import UserError
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.mlflow_store import StoreUnavailableError
from slimexp.tracking.run import OpenRun
from slimexp.tracking.sender import Sender
from slimexp.tracking.unsent import Unsent
from tests.tracking.conftest import wait_for
from tests.tracking.fake_client import FakeClient, make_run


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def metrics() -> Iterator[MetricsFile]:
    file = MetricsFile(None)
    yield file
    file.close()


def make(
    client: FakeClient,
    metrics: MetricsFile,
    **options: Any,
) -> Sender:
    sender = Sender(metrics, name="store", run=make_run(client), **options)
    sender.start()
    return sender


def row(step: int, **values: float) -> MetricsRow:
    return MetricsRow(step, 1000.0 + step, values)


def finish(sender: Sender, status: str = "FINISHED") -> Unsent:
    return sender.finish(status, idle_secs=1.0, total_secs=10.0)


def test_metrics_arrive_while_the_run_goes_on(client: FakeClient, metrics: MetricsFile) -> None:
    sender = make(client, metrics, flush_secs=0.05)
    metrics.append(row(1, a=1.0))
    wait_for(lambda: bool(client.got("metrics")), 5)
    sender.put_tags({"bottleneck": "read"})
    wait_for(lambda: bool(client.got("tags")), 5)
    finish(sender)


def test_an_outage_is_waited_out(client: FakeClient, metrics: MetricsFile, caplog: pytest.LogCaptureFixture) -> None:
    client.fail = lambda name, what: ConnectionError("down http://u:p@h")
    with caplog.at_level(logging.INFO):
        sender = make(client, metrics, flush_secs=0.01)
        for step in range(300):
            metrics.append(row(step, a=float(step)))
        wait_for(lambda: sender._failures >= 1, 5)
        client.fail = lambda name, what: None
        wait_for(lambda: len(client.got("metrics")) > 0, 10)
        assert not finish(sender)
    assert sum(len(batch) for batch in client.got("metrics")) == 300
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert "store does not answer: down http://u:***@h. The run goes on" in caplog.text
    assert "store answers again" in caplog.text


def test_finish_is_bounded_and_counts(client: FakeClient, metrics: MetricsFile, tmp_path: Path) -> None:
    client.fail = lambda name, what: ConnectionError("down")
    sender = make(client, metrics)
    sender.put_params({"p": "1"})
    sender.put_artifact(tmp_path, None)
    metrics.append(MetricsRow(1, 1.0, {"a": 1.0, "b": math.nan, "c": 2.0}))
    began = time.monotonic()
    unsent = finish(sender)
    assert time.monotonic() - began < 4
    assert unsent == Unsent(points=2, artifacts=(str(tmp_path),), entries=1, status=True, cause="down")


def test_finish_does_not_wait_for_a_call_that_hangs(client: FakeClient, metrics: MetricsFile) -> None:
    release = threading.Event()
    client.fail = lambda name, what: release.wait(30) and None
    metrics.append(row(1, a=1.0))
    sender = make(client, metrics, flush_secs=0.01)
    began = time.monotonic()
    unsent = finish(sender)
    assert time.monotonic() - began < 4
    assert (unsent.points, unsent.status) == (1, True)
    release.set()
    sender._thread.join(5)
    assert client.got("status") == []


def test_a_deleted_run_ends_the_sending(
    client: FakeClient, metrics: MetricsFile, caplog: pytest.LogCaptureFixture
) -> None:
    gone = MlflowException("The run r must be in the 'active' state. Current state is deleted.", error_code=1000)
    client.fail = lambda name, what: gone
    metrics.append(row(1, a=1.0))
    sender = make(client, metrics, flush_secs=0.01)
    sender._thread.join(5)
    assert not sender._thread.is_alive()
    metrics.append(row(2, a=1.0))
    unsent = finish(sender)
    assert (unsent.points, unsent.status) == (2, True)
    assert "store has lost the run" in caplog.text


def test_a_file_that_fails_holds_up_nothing(client: FakeClient, metrics: MetricsFile, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.png", tmp_path / "good.png"
    bad.touch()
    good.touch()
    client.fail = lambda name, what: OSError("no space") if name == "artifact" and "bad" in what[0] else None
    sender = make(client, metrics, flush_secs=0.01)
    sender.put_artifact(bad, "figures")
    sender.put_artifact(good, "figures")
    sender.put_artifact(tmp_path / "gone.png", None)
    metrics.append(row(1, a=1.0))
    unsent = finish(sender)
    assert unsent.artifacts == (str(tmp_path / "gone.png"), str(bad))
    assert not unsent.status
    assert client.got("artifact") == [(str(good), "figures")]
    assert client.got("metrics")
    assert client.got("status") == ["FINISHED"]


def test_a_store_that_comes_late_gets_all(
    client: FakeClient, metrics: MetricsFile, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [StoreUnavailableError("down"), make_run(client, last_steps={"a": 1})]
    seen: list[str] = []

    def connect(on_answer: Callable[[], None]) -> OpenRun:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def chore(run: OpenRun) -> None:
        seen.append(f"chore {run.run_id}")
        raise RuntimeError("no search")

    sender = Sender(
        metrics,
        name="store",
        connect=connect,
        on_open=lambda run: seen.append(f"open {run.run_id}"),
        chore=chore,
        flush_secs=0.01,
    )
    sender.put_tags({"t": "1"})
    with caplog.at_level(logging.INFO):
        sender.start()
        metrics.append(row(1, a=1.0))
        metrics.append(row(2, a=2.0))
        assert not finish(sender)
    assert seen == ["open r", "chore r"]
    assert client.calls == [("tags", [("t", "1")]), ("metrics", [("a", 2.0, 2)]), ("status", "FINISHED")]
    assert "store is there now and has the run r" in caplog.text
    assert "earlier runs could not be looked at: no search" in caplog.text


def test_a_store_that_is_only_slow_to_come_is_waited_for(client: FakeClient, metrics: MetricsFile) -> None:
    def connect(on_answer: Callable[[], None]) -> OpenRun:
        on_answer()
        time.sleep(0.5)
        return make_run(client)

    sender = Sender(metrics, name="store", connect=connect)
    sender.start()
    assert not sender.finish("FINISHED", idle_secs=5.0, total_secs=10.0, absent_secs=0.2)
    assert client.got("status") == ["FINISHED"]


def test_a_store_that_refuses_the_run_late_is_left(metrics: MetricsFile, caplog: pytest.LogCaptureFixture) -> None:
    def connect(on_answer: Callable[[], None]) -> OpenRun:
        raise UserError("tracking.experiment=x was deleted.")

    sender = Sender(metrics, name="store", connect=connect, flush_secs=0.01)
    sender.start()
    metrics.append(row(1, a=1.0))
    sender._thread.join(5)
    unsent = finish(sender)
    assert (unsent.run, unsent.points, unsent.cause) == (True, 1, "tracking.experiment=x was deleted.")
    assert "tracking.experiment=x was deleted. The run is only in its folder." in caplog.text
