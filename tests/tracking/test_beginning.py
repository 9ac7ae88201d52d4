from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from slimexp.errors import UserError
from slimexp.tracking import read_metrics
from slimexp.tracking.beginning import Beginning, begin, clean_tags
from slimexp.tracking.metrics_file import MetricsRow


def start(uri: str | None, run_dir: Path | None, **changes: Any) -> Beginning:
    arguments: dict[str, Any] = {
        "backend": "mlflow",
        "experiment": "tests",
        "run_name": "digits",
        "tags": {},
        "params": {},
        "on_error": "offline",
        "resume_run_id": None,
        "resume_step": None,
        "start_dir": Path.cwd(),
        **changes,
    }
    return begin(uri=uri, run_dir=run_dir, **arguments)


def test_on_error_fail(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"http://u:\*\*\*@127.0.0.1:9 .*is not available: .*refused.*Start it, .*on_error=offline"
    ):
        start("http://u:p@127.0.0.1:9", tmp_path, on_error="fail")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "wandb"}, "tracking.backend=wandb is unknown; use mlflow or none"),
        ({"on_error": "ignore"}, "tracking.on_error=ignore is unknown; use offline or fail"),
        ({"experiment": "x" * 501}, "refuses the experiment"),
    ],
)
def test_wrong_settings(changes: dict[str, Any], message: str, store: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        start(store, tmp_path, **changes)


def test_a_run_folder_that_cannot_be_written(store: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"run_dir=.*/file: metrics.jsonl cannot be written"):
        start(store, tmp_path / "file", experiment="unwritable")
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("unwritable")
    assert [run.info.status for run in client.search_runs([experiment.experiment_id])] == ["FAILED"]


def test_an_earlier_runs_metrics_are_set_aside(tmp_path: Path) -> None:
    for value in (1.0, 2.0, 3.0):
        begun = start(None, tmp_path, backend="none")
        begun.metrics.append(MetricsRow(1, 1.0, {"a": value}))
        begun.metrics.close()
    names = {"metrics-1.jsonl": 1.0, "metrics-2.jsonl": 2.0, "metrics.jsonl": 3.0}
    assert {path.name: read_metrics(path)[0].metrics["a"] for path in tmp_path.glob("*.jsonl")} == names


def test_the_record_is_there_before_anything_is_logged(tmp_path: Path) -> None:
    begun = start(None, tmp_path, backend="none", tags={"a//b": "1", "token": "s"}, params={"x": {"seed": 3}})
    begun.metrics.close()
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (begun.request, begun.run, begun.missed) == (None, None, [])
    assert (record["status"], record["backend"], record["run_id"]) == ("RUNNING", "none", None)
    assert record["tags"] == {"a/b": "1", "token": "***", "run_dir": str(tmp_path)}
    assert record["params"] == {"x.seed": "3"}


def test_a_run_that_goes_on_takes_over_what_its_folder_says(tmp_path: Path) -> None:
    first = start(None, tmp_path, backend="none", tags={"host": "a", "t": "1"})
    for step in (1, 2, 3):
        first.metrics.append(MetricsRow(step, 1.0, {"a": 1.0}))
    first.metrics.close()
    first.record.update(
        artifacts=[["a.txt", "texts"], ["sent.txt", None]], unsent={"artifacts": [str(tmp_path / "a.txt")]}
    )
    second = start(None, tmp_path, backend="none", tags={"host": "b"}, resume_step=2)
    second.metrics.close()
    assert [row.step for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    before, now = first.record.content, second.record.content
    assert (now["key"], now["started_ms"]) == (before["key"], before["started_ms"])
    assert now["tags"] == {"host": "b", "t": "1", "run_dir": str(tmp_path)}
    assert second.missed == [(str(tmp_path / "a.txt"), "texts")]
    # The folder's run is another one than the store's.
    third = start(None, tmp_path, backend="none", resume_step=2, resume_run_id="f" * 32)
    third.metrics.close()
    assert third.record.content["key"] != before["key"]
    assert (third.missed, third.record.content["resume"]) == ([], 2)


def test_tags_are_legal_bounded_and_without_secrets() -> None:
    assert clean_tags({"a[0]": 1, "password": "p", "api_key": "", "x": "http://u:p@h", "long": "y" * 9000}) == {
        "a_0_": "1",
        "password": "***",
        "api_key": "",
        "x": "http://u:***@h",
        "long": "y" * (5000 - len(" ... (9000 characters)")) + " ... (9000 characters)",
    }
