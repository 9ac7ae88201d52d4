"""A run of 200 steps against a real server that dies, comes late, never comes, or answers slowly."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest

from slimexp.errors import UserError
from slimexp.tracking import mirror as mirror_module
from slimexp.tracking import sync
from slimexp.tracking.tracker import Tracker
from tests.tracking.conftest import Proxy, Server, free_port, wait_for

STEPS = 200


def start(uri: str, run_dir: Path, **changes: Any) -> Tracker:
    run_dir.mkdir(exist_ok=True)
    arguments: dict[str, Any] = {"flush_secs": 0.1, "tags": {"t": "1"}, **changes}
    return Tracker.start(
        backend="mlflow",
        uri=uri,
        experiment="tests",
        run_name="outage",
        run_dir=run_dir,
        params={"pipeline": {"threads": 8}},
        **arguments,
    )


def train(tracker: Tracker, first: int, last: int, step_secs: float = 0.0) -> float:
    """Logs the steps; returns how long that took, without what the steps themselves would."""
    spent = 0.0
    for step in range(first, last + 1):
        began = time.perf_counter()
        tracker.log_metrics(step, {"train/loss": float(step)})
        spent += time.perf_counter() - began
        time.sleep(step_secs)
    return spent


def assert_whole(server: Server, run_id: str | None, status: str = "FINISHED") -> mlflow.entities.Run:
    assert run_id is not None
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    history = client.get_metric_history(run_id, "train/loss")
    assert [(m.step, m.value) for m in history] == [(step, float(step)) for step in range(1, STEPS + 1)]
    run = client.get_run(run_id)
    assert run.info.status == status
    assert run.data.params == {"pipeline.threads": "8"}
    assert run.data.tags["t"] == "1"
    return run


def test_a_server_that_is_killed_and_comes_back(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = start(server.uri, tmp_path)
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    train(tracker, 1, 50)
    wait_for(lambda: len(client.get_metric_history(tracker.run_id, "train/loss")) == 50, 20)
    server.kill()
    train(tracker, 51, 100)
    (tmp_path / "é 中.txt").write_text("x", encoding="utf-8")
    tracker.log_artifact(tmp_path / "é 中.txt", "figures")
    tracker.set_tags({"late": "1"})
    wait_for(lambda: "does not answer" in caplog.text, 20)
    assert train(tracker, 101, 150) < 1  # The loop notices nothing.
    server.start()
    train(tracker, 151, STEPS)
    assert not tracker.finish("FINISHED")
    run = assert_whole(server, tracker.run_id)
    assert run.data.tags["late"] == "1"
    assert [f.path for f in client.list_artifacts(tracker.run_id, "figures")] == ["figures/é 中.txt"]
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_server_that_is_down_at_the_start_and_comes_up(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    tracker = start(f"http://127.0.0.1:{port}", tmp_path)
    assert tracker.run_id is None
    train(tracker, 1, 50)
    tracker.log_params({"found": 3})
    tracker.log_dataset(
        name="digits", context="train", digest="ab" * 16, source="/x", num_examples=9, num_classes=2, task="single"
    )
    proxy = Proxy(server.port, port=port)
    wait_for(lambda: tracker.run_id is not None, 30)  # The running job itself connects.
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["run_id"] == tracker.run_id
    train(tracker, 51, STEPS)
    assert not tracker.finish("FINISHED")
    proxy.close()
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert record["unsent"] is None
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    run = client.get_run(tracker.run_id)
    assert run.data.params.pop("found") == "3"
    assert [m.step for m in client.get_metric_history(tracker.run_id, "train/loss")] == list(range(1, STEPS + 1))
    assert (run.info.status, run.info.start_time) == ("FINISHED", record["started_ms"])
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.tags[0].value) == ("digits", "train")
    assert "is not available" in caplog.text
    assert "does not answer" not in caplog.text


def test_a_server_that_is_down_for_good_and_sync(
    server: Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mirror_module, "_ABSENT_SECS", 0.5)
    run_dir = tmp_path / "run"
    tracker = start(f"http://127.0.0.1:{free_port()}", run_dir, tags={"t": "1", "mlflow.parentRunId": "feedc0ffee"})
    train(tracker, 1, STEPS)
    (run_dir / "per_class.csv").write_text("a,b\n", encoding="utf-8")
    tracker.log_artifact(run_dir / "per_class.csv")
    began = time.monotonic()
    unsent = tracker.finish("FINISHED")
    assert time.monotonic() - began < 5
    assert (unsent.points, unsent.run, unsent.status) == (STEPS, True, True)
    assert f"200 metric values are only in {run_dir}/metrics.jsonl; 1 files were not uploaded" in caplog.text
    assert f"-m slimexp.tracking.sync {run_dir}" in caplog.text
    record = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    assert (record["status"], record["run_id"], record["unsent"]["points"]) == ("FINISHED", None, STEPS)

    # It is still down; then it is there.
    assert sync.main([str(run_dir)]) == 1
    assert "[Errno 111] Connection refused" in capsys.readouterr().out
    assert sync.main([str(tmp_path), "--tracking-uri", server.uri, "--dry-run"]) == 0
    assert f"would make the run in {server.uri} and send 200 metric values, 1 param, " in capsys.readouterr().out
    assert sync.main([str(tmp_path), "--tracking-uri", server.uri]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{run_dir}: sent 200 metric values, 1 param, ")
    assert "1 file, status FINISHED to run" in said
    record = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    run = assert_whole(server, record["run_id"])
    assert run.data.tags["mlflow.parentRunId"] == "feedc0ffee"
    assert (run.info.start_time, run.info.end_time) == (record["started_ms"], record["ended_ms"])
    assert (record["uri"], record["unsent"]) == (server.uri, None)
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    assert [f.path for f in client.list_artifacts(record["run_id"])] == ["per_class.csv"]
    # Once more changes nothing.
    assert sync.main([str(run_dir)]) == 0
    assert capsys.readouterr().out == f"{run_dir}: {server.uri} has all of run {record['run_id']}\n"
    assert_whole(server, record["run_id"])


def test_a_slow_server(server: Server, tmp_path: Path) -> None:
    proxy = Proxy(server.port, delay_secs=0.5)
    began = time.monotonic()
    tracker = start(f"http://127.0.0.1:{proxy.port}", tmp_path)
    assert time.monotonic() - began > 1
    assert train(tracker, 1, STEPS, step_secs=0.002) < 1
    assert not tracker.finish("FINISHED")
    proxy.close()
    assert_whole(server, tracker.run_id)
    assert proxy.requests < 60  # In batches.


def test_a_user_and_a_password(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Basic authorization, as requests makes it of `me:s3cret`.
    proxy = Proxy(server.port, login=b"Basic bWU6czNjcmV0")
    uri = f"http://me:s3cret@127.0.0.1:{proxy.port}"
    with caplog.at_level(logging.DEBUG, logger="slimexp"):
        tracker = start(uri, tmp_path, tags={"t": "1", "command": f"slimexp tracking.uri={uri}", "api_token": "s3cret"})
        train(tracker, 1, STEPS)
        assert not tracker.finish("FINISHED", f"failed at {uri}")
        with pytest.raises(UserError, match=r"refuses the login .HTTP 401") as caught:
            start(uri.replace("s3cret", "wr0ng"), tmp_path / "other")
    run = assert_whole(server, tracker.run_id)
    assert run.data.tags["command"].endswith("tracking.uri=http://me:***@127.0.0.1:" + str(proxy.port))
    everything = [str(caught.value), caplog.text, str(run.to_dictionary()), (tmp_path / "run.json").read_text()]
    assert not [text for text in everything if "s3cret" in text or "wr0ng" in text]
    # The address in run.json has no password, so a later sync asks for one.
    assert "has a password, which run.json does not keep; give it by --tracking-uri" in str(sync.sync_run(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert "has all of run" in str(sync.sync_run(tmp_path))
    proxy.close()
