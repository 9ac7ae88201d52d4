from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.sender import Sender, Unsent
from slimexp.tracking.tracker import Tracker


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

    def set_terminated(self, run_id: str, status: str) -> None:
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


def row(step: int, **values: float) -> MetricsRow:
    return MetricsRow(step, 1000.0 + step, values)


def finish(sender: Sender, status: str = "FINISHED") -> Unsent:
    return sender.finish(status, idle_secs=1.0, total_secs=10.0)


def test_batches_of_a_thousand_in_order(client: FakeClient, metrics: MetricsFile) -> None:
    for step in range(250):
        metrics.append(MetricsRow(step, 1.0, {f"m{i}": float(step) for i in range(10)}))
    metrics.append(MetricsRow(250, 1.0, {f"wide{i}": 1.0 for i in range(2500)}))
    sender = Sender(client, "r", metrics, name="store")
    assert not finish(sender)
    sizes = [len(batch) for batch in client.got("metrics")]
    assert sum(sizes) == 5000
    assert max(sizes) == 1000
    assert [step for batch in client.got("metrics") for key, _, step in batch if key == "m3"] == list(range(250))
    assert client.calls[-1] == ("status", "FINISHED")


def test_metrics_arrive_while_the_run_goes_on(client: FakeClient, metrics: MetricsFile) -> None:
    sender = Sender(client, "r", metrics, name="store", flush_secs=0.05)
    metrics.append(row(1, a=1.0))
    wait_for(lambda: bool(client.got("metrics")), 5)
    sender.put_tags({"bottleneck": "read"})
    wait_for(lambda: bool(client.got("tags")), 5)
    finish(sender)


def test_known_steps_are_not_sent_again(client: FakeClient, metrics: MetricsFile) -> None:
    for step in (10, 20, 30):
        metrics.append(row(step, a=1.0, b=1.0))
    sender = Sender(client, "r", metrics, name="store", last_steps={"a": 20, "c": 99})
    assert not finish(sender)
    assert client.got("metrics") == [[("b", 1.0, 10), ("b", 1.0, 20), ("a", 1.0, 30), ("b", 1.0, 30)]]


def test_what_is_not_finite_becomes_a_tag_once(client: FakeClient, metrics: MetricsFile) -> None:
    metrics.append(MetricsRow(12, 1.0, {"train/loss": math.nan, "a": 1.0, "old": math.inf}))
    metrics.append(MetricsRow(13, 1.0, {"train/loss": math.inf, "g": -math.inf}))
    sender = Sender(client, "r", metrics, name="store", nonfinite=["old"])
    assert not finish(sender)
    assert client.got("metrics") == [[("a", 1.0, 12)]]
    assert sorted(client.got("tags")[0]) == [
        ("nonfinite.g", "-inf at step 13"),
        ("nonfinite.train/loss", "nan at step 12"),
    ]


def test_an_outage_is_waited_out(client: FakeClient, metrics: MetricsFile, caplog: pytest.LogCaptureFixture) -> None:
    client.fail = lambda name, what: ConnectionError("down http://u:p@h")
    with caplog.at_level(logging.INFO):
        sender = Sender(client, "r", metrics, name="store", flush_secs=0.01)
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
    sender = Sender(client, "r", metrics, name="store")
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
    sender = Sender(client, "r", metrics, name="store", flush_secs=0.01)
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
    sender = Sender(client, "r", metrics, name="store")
    sender.put_params({f"p{i}": str(i) for i in range(250)})
    unsent = finish(sender)
    assert (unsent.entries, unsent.status) == (1, False)
    assert sum(len(batch) for batch in client.got("params")) == 249
    assert "store does not take param p7: too long" in caplog.text


def test_a_deleted_run_ends_the_sending(
    client: FakeClient, metrics: MetricsFile, caplog: pytest.LogCaptureFixture
) -> None:
    gone = MlflowException("The run r must be in the 'active' state. Current state is deleted.", error_code=1000)
    client.fail = lambda name, what: gone
    metrics.append(row(1, a=1.0))
    sender = Sender(client, "r", metrics, name="store", flush_secs=0.01)
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
    sender = Sender(client, "r", metrics, name="store", flush_secs=0.01)
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


# With a real server on the loopback interface.


class Server:
    """`mlflow server` on a port of its own, over a database that outlives it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--backend-store-uri",
            f"sqlite:///{self.folder}/server.db",
        ]
        command += ["--artifacts-destination", str(self.folder / "artifacts"), "--port", str(self.port)]
        command += ["--workers", "1", "--host", "127.0.0.1"]
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(self.answers, 60)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


def arguments(server: Server, folder: Path) -> dict[str, Any]:
    return {
        "backend": "mlflow",
        "uri": server.uri,
        "experiment": "outage",
        "run_name": "r",
        "run_dir": folder / "run",
        "tags": {},
        "params": {"pipeline": {"threads": 8}},
        "on_error": "fail",
        "flush_secs": 0.1,
    }


def test_a_server_killed_half_way(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slimexp.tracking.tracker._IDLE_SECS", 1.5)
    server.start()
    tracker = Tracker.start(**arguments(server, tmp_path))
    assert tracker.run_id is not None
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    (tmp_path / "é 中.txt").write_text("x", encoding="utf-8")
    tracker.log_artifact(tmp_path / "é 中.txt", "figures")
    tracker.log_metrics(0, {"a": 0.0})
    wait_for(lambda: bool(client.get_metric_history(tracker.run_id, "a")), 20)
    wait_for(lambda: bool(client.list_artifacts(tracker.run_id, "figures")), 20)
    assert client.get_run(tracker.run_id).data.params == {"pipeline.threads": "8"}
    server.stop()
    began = time.monotonic()
    for step in range(1, 500):
        tracker.log_metrics(step, {"a": float(step)})
    assert time.monotonic() - began < 1  # The loop notices nothing.
    wait_for(lambda: "does not answer" in caplog.text, 20)
    began = time.monotonic()
    assert tracker.finish("KILLED").points == 499
    assert time.monotonic() - began < 5
    assert f"499 metric values are only in {tmp_path}/run/metrics.jsonl" in caplog.text
    assert "the run still counts as RUNNING there" in caplog.text
    assert len([r for r in caplog.records if "does not answer" in r.getMessage()]) == 1


@pytest.mark.slow
def test_a_server_that_comes_back(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server.start()
    first = Tracker.start(**arguments(server, tmp_path))
    server.stop()
    for step in range(10):
        first.log_metrics(step, {"a": float(step)})
    began = time.monotonic()
    assert first.finish("KILLED").points == 10
    assert 15 < time.monotonic() - began < 25
    # The run goes on when the server is back, and what it missed comes first.
    server.start()
    second = Tracker.start(**arguments(server, tmp_path), resume_run_id=first.run_id, resume_step=7)
    assert second.run_id == first.run_id
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    second.log_metrics(8, {"a": 8.5})
    wait_for(lambda: len(client.get_metric_history(second.run_id, "a")) == 9, 20)
    # Once more, and now it is back before the run ends.
    server.stop()
    caplog.clear()
    second.log_metrics(9, {"a": 9.5})
    wait_for(lambda: "does not answer" in caplog.text, 20)
    server.start()
    assert not second.finish("FINISHED")
    history = client.get_metric_history(second.run_id, "a")
    assert [(m.step, m.value) for m in history] == [*((s, float(s)) for s in range(8)), (8, 8.5), (9, 9.5)]
    assert client.get_run(second.run_id).info.status == "FINISHED"


def wait_for(condition: Callable[[], bool], timeout_secs: float) -> None:
    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
