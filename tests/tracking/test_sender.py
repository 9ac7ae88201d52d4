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
from slimexp.tracking.mlflow_store import Store, StoreUnavailableError
from slimexp.tracking.run import OpenRun
from slimexp.tracking.sender import Sender, Unsent
from tests.tracking.conftest import wait_for


class FakeClient:
    """Stands for a store that can be told to fail; `calls` holds what got through."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: Callable[[str, Any], Exception | None] = lambda name, what: None

    def _do(self, name: str, what: Any) -> None:
        error = self.fail(name, what)
        if error is not None:
            raise error
        self.calls.append((name, what))

    def log_batch(self, run_id: str, **kinds: list[Any]) -> None:
        ((kind, values),) = kinds.items()
        self._do(kind, [(v.key, v.value, *((v.step,) if kind == "metrics" else ())) for v in values])

    def log_artifact(self, run_id: str, path: str, folder: str | None) -> None:
        self._do("artifact", (path, folder))

    def set_terminated(self, run_id: str, status: str, end_ms: int | None) -> None:
        self._do("status", status)

    def got(self, kind: str) -> list[Any]:
        return [what for name, what in self.calls if name == kind]


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
    *,
    last_steps: dict[str, int] | None = None,
    tags: dict[str, str] | None = None,
    **options: Any,
) -> Sender:
    run = OpenRun(Store(client, "0"), "r", params={}, tags=tags or {}, last_steps=last_steps or {})
    sender = Sender(metrics, name="store", run=run, **options)
    sender.start()
    return sender


def row(step: int, **values: float) -> MetricsRow:
    return MetricsRow(step, 1000.0 + step, values)


def finish(sender: Sender, status: str = "FINISHED") -> Unsent:
    return sender.finish(status, idle_secs=1.0, total_secs=10.0)


def test_batches_of_a_thousand_in_order(client: FakeClient, metrics: MetricsFile) -> None:
    for step in range(250):
        metrics.append(MetricsRow(step, 1.0, {f"m{i}": float(step) for i in range(10)}))
    metrics.append(MetricsRow(250, 1.0, {f"wide{i}": 1.0 for i in range(2500)}))
    sender = make(client, metrics)
    assert not finish(sender)
    sizes = [len(batch) for batch in client.got("metrics")]
    assert sum(sizes) == 5000
    assert max(sizes) == 1000
    assert [step for batch in client.got("metrics") for key, _, step in batch if key == "m3"] == list(range(250))
    assert client.calls[-1] == ("status", "FINISHED")


def test_metrics_arrive_while_the_run_goes_on(client: FakeClient, metrics: MetricsFile) -> None:
    sender = make(client, metrics, flush_secs=0.05)
    metrics.append(row(1, a=1.0))
    wait_for(lambda: bool(client.got("metrics")), 5)
    sender.put_tags({"bottleneck": "read"})
    wait_for(lambda: bool(client.got("tags")), 5)
    finish(sender)


def test_known_steps_are_not_sent_again(client: FakeClient, metrics: MetricsFile) -> None:
    for step in (10, 20, 30):
        metrics.append(row(step, a=1.0, b=1.0))
    sender = make(client, metrics, last_steps={"a": 20, "c": 99})
    assert not finish(sender)
    assert client.got("metrics") == [[("b", 1.0, 10), ("b", 1.0, 20), ("a", 1.0, 30), ("b", 1.0, 30)]]


def test_what_is_not_finite_becomes_a_tag_once(client: FakeClient, metrics: MetricsFile) -> None:
    metrics.append(MetricsRow(12, 1.0, {"train/loss": math.nan, "a": 1.0, "old": math.inf}))
    metrics.append(MetricsRow(13, 1.0, {"train/loss": math.inf, "g": -math.inf}))
    sender = make(client, metrics, tags={"nonfinite.old": "inf at step 1"})
    assert not finish(sender)
    assert client.got("metrics") == [[("a", 1.0, 12)]]
    assert sorted(client.got("tags")[0]) == [
        ("nonfinite.g", "-inf at step 13"),
        ("nonfinite.train/loss", "nan at step 12"),
    ]


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


def test_one_refused_param_leaves_the_others(
    client: FakeClient, metrics: MetricsFile, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str, what: Any) -> Exception | None:
        refused = name == "params" and any(key == "p7" for key, _ in what)
        return MlflowException("too long", error_code=1000) if refused else None  # INVALID_PARAMETER_VALUE

    client.fail = fail
    sender = make(client, metrics)
    sender.put_params({f"p{i}": str(i) for i in range(250)})
    unsent = finish(sender)
    assert (unsent.entries, unsent.status) == (1, False)
    assert sum(len(batch) for batch in client.got("params")) == 249
    assert "store does not take the param p7: too long" in caplog.text


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
    answers: list[Any] = [StoreUnavailableError("down"), OpenRun(Store(client, "0"), "r", {}, {}, {"a": 1})]
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
        return OpenRun(Store(client, "0"), "r", {}, {}, {})

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
