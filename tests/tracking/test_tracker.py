from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest

from slimexp.errors import Interrupted
from slimexp.tracking import mirror as mirror_module
from slimexp.tracking import read_metrics
from slimexp.tracking.tracker import PARENT_RUN_TAG, Tracker


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123456789abcdef0123456789abcdef")  # Must not matter.


def start(uri: str | None, run_dir: Path | None, **changes: Any) -> Tracker:
    arguments: dict[str, Any] = {
        "backend": "mlflow",
        "experiment": "tests",
        "run_name": "digits",
        "tags": {},
        "params": {},
        **changes,
    }
    return Tracker.start(uri=uri, run_dir=run_dir, **arguments)


def read(tracker: Tracker) -> Any:
    return mlflow.MlflowClient(tracking_uri=tracker.uri).get_run(tracker.run_id)


def history(tracker: Tracker, key: str) -> list[tuple[int, float]]:
    client = mlflow.MlflowClient(tracking_uri=tracker.uri)
    return [(m.step, m.value) for m in client.get_metric_history(tracker.run_id, key)]


def test_a_whole_run(store: str, tmp_path: Path) -> None:
    tracker = start(
        store,
        tmp_path,
        tags={"git.commit": "abc", "x.token": "s", PARENT_RUN_TAG: "feedc0ffee"},
        params={"pipeline": {"threads": 8}, "tracking": {"uri": "http://u:p@h"}},
    )
    for step in (10, 20):
        tracker.log_metrics(step, {"train/loss": 1.0 / step, "a[0]": 1.0})
    tracker.log_metrics(20, {"eval/loss": math.nan})
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "courbe é中.txt").write_text("x", encoding="utf-8")
    tracker.log_artifact(tmp_path / "figures")
    tracker.set_tags({"bottleneck": "read"})
    tracker.log_params({"seed": 3})
    assert not tracker.finish("FINISHED", "All done.")
    assert not tracker.finish("FAILED")

    run = read(tracker)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "digits"
    assert run.data.params == {"pipeline.threads": "8", "tracking.uri": "http://u:***@h", "seed": "3"}
    expected = {
        "git.commit": "abc",
        "x.token": "***",
        PARENT_RUN_TAG: "feedc0ffee",
        "bottleneck": "read",
        "nonfinite.eval/loss": "nan at step 20",
        "status.message": "All done.",
    }
    assert expected.items() <= run.data.tags.items()
    assert history(tracker, "train/loss") == [(10, 0.1), (20, 0.05)]
    assert history(tracker, "a_0_") == [(10, 1.0), (20, 1.0)]
    client = mlflow.MlflowClient(tracking_uri=store)
    assert [f.path for f in client.list_artifacts(tracker.run_id, "figures")] == ["figures/courbe é中.txt"]
    assert [row.step for row in read_metrics(tmp_path / "metrics.jsonl")] == [10, 20, 20]
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert record["run_id"] == tracker.run_id
    assert (record["status"], record["unsent"], record["tags"]["bottleneck"]) == ("FINISHED", None, "read")
    assert tracker.experiment_id == run.info.experiment_id


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (None, "FINISHED", None),
        (ValueError("bad http://u:p@h"), "FAILED", "ValueError: bad http://u:***@h"),
        (SystemExit(1), "FAILED", "SystemExit: 1"),
        (KeyboardInterrupt(), "KILLED", "Interrupted."),
        (Interrupted("Stopped at step 7.", 15), "KILLED", "Stopped at step 7."),
    ],
)
def test_the_status_is_what_happened(
    error: BaseException | None, status: str, message: str | None, store: str, tmp_path: Path
) -> None:
    tracker = start(store, tmp_path)
    caught: BaseException | None = None
    try:
        with tracker:
            if error is not None:
                raise error
    except BaseException as raised:
        caught = raised
    assert caught is error
    run = read(tracker)
    assert (run.info.status, run.data.tags.get("status.message")) == (status, message)


def test_resuming_sends_each_step_once(store: str, tmp_path: Path) -> None:
    first = start(store, tmp_path, params={"max_steps": 100, "seed": 0}, tags={"host": "a"})
    for step in range(10, 80, 10):
        first.log_metrics(step, {"train/loss": float(step)})
    first.finish("KILLED", "Stopped.")

    second = start(
        store,
        tmp_path,
        params={"max_steps": 200, "seed": 0, "new": 1},
        tags={"host": "b"},
        resume_run_id=first.run_id,
        resume_step=50,
    )
    assert second.run_id == first.run_id
    assert read(second).info.status == "RUNNING"
    for step in range(60, 100, 10):
        second.log_metrics(step, {"train/loss": float(step), "eval/loss": 1.0})
    assert not second.finish("FINISHED")

    steps = list(range(10, 100, 10))
    assert history(second, "train/loss") == [(step, float(step)) for step in steps]
    assert history(second, "eval/loss") == [(step, 1.0) for step in (60, 70, 80, 90)]
    assert [row.step for row in read_metrics(tmp_path / "metrics.jsonl")] == steps
    run = read(second)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"max_steps": "100", "seed": "0", "new": "1"}
    ours = ("mlflow.", "slimexp.", "run_dir")
    tags = {key: value for key, value in run.data.tags.items() if not key.startswith(ours)}
    assert tags == {
        "host": "a",
        "resume.count": "1",
        "resume.1": "from step 50",
        "resume.1.max_steps": "200",
        "resume.1.host": "b",
    }
    third = start(store, tmp_path, params={"max_steps": 300}, resume_run_id=first.run_id)
    third.log_metrics(90, {"test/top1": 0.5})
    third.finish()
    tags = read(third).data.tags
    assert (tags["resume.count"], tags["resume.2.max_steps"]) == ("2", "300")
    assert [row.step for row in read_metrics(tmp_path / "metrics.jsonl")] == [*steps, 90]


def test_a_run_that_the_store_lost_becomes_a_new_one(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = start(store, tmp_path)
    first.log_metrics(1, {"a": 1.0})
    first.finish("KILLED")
    mlflow.MlflowClient(tracking_uri=store).delete_run(first.run_id)
    second = start(store, tmp_path, resume_run_id=first.run_id, resume_step=1)
    second.log_metrics(2, {"a": 2.0})
    second.finish()
    assert second.run_id != first.run_id
    assert history(second, "a") == [(1, 1.0), (2, 2.0)]
    assert read(second).data.tags["resumed_from"] == first.run_id
    assert f"has no run {first.run_id} any more" in caplog.text


def test_an_offline_start_is_made_good_on_resume(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    first = start("http://127.0.0.1:9", tmp_path)
    assert time.monotonic() - began < 5
    assert first.run_id is None
    assert first.ui_command == "http://127.0.0.1:9"
    first.log_metrics(1, {"a": 1.0})
    first.set_tags({"t": "1"})
    (tmp_path / "a.txt").touch()
    first.log_artifact(tmp_path / "a.txt", "texts")
    monkeypatch.setattr(mirror_module, "_ABSENT_SECS", 0.3)
    unsent = first.finish("KILLED", "Stopped.")
    assert (unsent.run, unsent.points, unsent.artifacts) == (True, 1, (str(tmp_path / "a.txt"),))
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "http://127.0.0.1:9 (from tracking.uri) is not available: [Errno 111] Connection refused." in warnings[0]
    assert f"1 metric values are only in {tmp_path}/metrics.jsonl; 1 files were not uploaded" in warnings[1]
    assert f"To send it when MLflow is back: {sys.executable} -m slimexp.tracking.sync {tmp_path}" in warnings[1]
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (record["run_id"], record["status"], record["message"]) == (None, "KILLED", "Stopped.")

    second = start(store, tmp_path, resume_step=1)
    second.log_metrics(2, {"a": 2.0})
    second.finish()
    assert history(second, "a") == [(1, 1.0), (2, 2.0)]
    assert read(second).info.start_time == record["started_ms"]
    assert read(second).data.tags["t"] == "1"
    client = mlflow.MlflowClient(tracking_uri=store)
    assert [f.path for f in client.list_artifacts(second.run_id, "texts")] == ["texts/a.txt"]


def test_a_param_keeps_its_first_value(store: str, caplog: pytest.LogCaptureFixture) -> None:
    tracker = start(store, None, params={"seed": 1})
    tracker.log_params({"seed": 2})
    assert "The param seed stays 1; it cannot become 2." in caplog.text
    tracker.log_metrics(1, {"a": 1.0})
    assert not tracker.finish()
    assert read(tracker).data.params == {"seed": "1"}
    assert history(tracker, "a") == [(1, 1.0)]


def test_without_a_store(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from slimexp.tracking import Tracker\n"
        "with Tracker.start(backend='none', uri=None, experiment='x', run_name='r', run_dir=Path(sys.argv[1]),\n"
        "                   tags={}, params={}) as tracker:\n"
        "    tracker.log_metrics(1, {'a': 1.0})\n"
        "    assert (tracker.run_id, tracker.uri, tracker.ui_command) == (None, None, None)\n"
        "assert not {'mlflow', 'tensorflow', 'requests', 'matplotlib'} & set(sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True, cwd=root)
    assert read_metrics(tmp_path / "metrics.jsonl")[0].metrics == {"a": 1.0}


def test_logging_costs_the_loop_little(store: str, tmp_path: Path) -> None:
    tracker = start(store, tmp_path)
    for step in range(1000):
        tracker.log_metrics(step, {f"train/m{i}": float(i) for i in range(10)})
    assert not tracker.finish()
    # MLflow's own log_metric would take 25 ms a value, 250 s in all.
    assert tracker.spent_secs < 2


def test_what_reaches_the_store_is_legal_bounded_and_without_secrets(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "hunter2"
    with caplog.at_level(logging.DEBUG):
        tracker = start(
            store,
            tmp_path,
            params={
                "odd[key]=,@+é": 1,
                "../up": 2,
                "long": "x" * 10_000,
                "x": {"api_token": secret, "db": f"postgresql://me:{secret}@host/db", "list": [{"password": secret}]},
            },
            tags={
                "auth_token": secret,
                "command": f"slimexp DB_PASSWORD={secret}",
                "long/tag": "y" * 9000,
                "a//b": "z",
            },
        )
        tracker.log_metrics(1, {"train/loss": math.nan, "odd[0]": 1.0, "é": math.inf, "/up": 2.0})
        tracker.log_metrics(2, {"train/loss": math.inf, "odd[0]": 2.0})
        tracker.log_dataset(
            name="photos",
            context="train",
            digest="ab" * 16,
            source=f"https://me:{secret}@host/photos",
            num_examples=2,
            num_classes=2,
            task="single",
            counts={"cat": 1, "dog": 1},
        )
        assert not tracker.finish("FAILED", f"ValueError: tracking.tags.token={secret} at http://me:{secret}@host")
    run = read(tracker)
    assert run.data.params["odd_key_____é"] == "1"
    assert run.data.params["__/up"] == "2"
    assert run.data.params["long"].endswith("x ... (10000 characters)")
    assert len(run.data.params["long"]) == 6000
    assert run.data.tags["long/tag"].endswith("y ... (9000 characters)")
    assert run.data.tags["a/b"] == "z"
    assert run.data.metrics == {"odd_0_": 2.0, "up": 2.0}
    assert run.data.tags["nonfinite.train/loss"] == "nan at step 1"
    assert run.data.tags["nonfinite.é"] == "inf at step 1"
    assert run.data.tags["status.message"] == "ValueError: tracking.tags.token=*** at http://me:***@host"
    (data,) = run.inputs.dataset_inputs
    assert json.loads(data.dataset.profile)["class_counts"] == {"cat": 1, "dog": 1}
    everything = [str(run.to_dictionary()), caplog.text, (tmp_path / "run.json").read_text(encoding="utf-8")]
    assert not [text for text in everything if secret in text]


def test_the_runs_data_stand_in_the_column_dataset(store: str, tmp_path: Path) -> None:
    shown = {"num_classes": 2, "task": "multi", "num_examples": 3}
    first = start(store, tmp_path)
    first.log_dataset(name="d", context="train", digest="1", source=str(tmp_path), **shown)
    first.log_dataset(name="d", context="eval", digest="2", source="gs://x/*.tfrecord", **shown)
    first.finish("KILLED")
    second = start(store, tmp_path, resume_run_id=first.run_id, resume_step=1)
    second.log_dataset(name="d", context="train", digest="1", source=str(tmp_path), **shown)
    assert not second.finish()
    inputs = {item.tags[0].value: item.dataset for item in read(second).inputs.dataset_inputs}
    assert {context: data.digest for context, data in inputs.items()} == {"train": "1", "eval": "2"}
    assert json.loads(inputs["train"].source) == {"uri": tmp_path.as_uri()}
    assert json.loads(inputs["eval"].source) == {"uri": "gs://x/*.tfrecord"}
    assert json.loads(inputs["train"].profile) == {"num_rows": 3, "num_classes": 2, "task": "multi"}
