from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from slimexp.tracking.location import resolve_uri
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.mirror import Mirror
from slimexp.tracking.record import RunRecord
from slimexp.tracking.run import OpenRun, RunRequest
from tests.tracking.fake_client import FakeClient, make_run

DATASET = {"name": "d", "digest": "1"}


def mirror_of(run: OpenRun, tmp_path: Path, **content: Any) -> tuple[Mirror, RunRecord, MetricsFile]:
    record = RunRecord(tmp_path / "run.json", {"tags": {}, "datasets": [], **content})
    request = RunRequest(resolve_uri("http://127.0.0.1:9", tmp_path), "tests", "r", {"host": "b", "new": "1"}, "key")
    metrics = MetricsFile(None)
    metrics.append(MetricsRow(1, 1.0, {"a": 1.0}))
    mirror = Mirror(request, run, metrics, record, resume_step=50, stale_run_id=None, flush_secs=60.0)
    return mirror, record, metrics


def sent(client: FakeClient, kind: str) -> dict[str, str]:
    return {key: value for batch in client.got(kind) for key, value in batch}


def test_a_new_run_gets_what_it_lacks_of_the_record(tmp_path: Path) -> None:
    client = FakeClient()
    run = dataclasses.replace(make_run(client), params={"seed": "0"}, datasets=frozenset({("d", "1")}))
    mirror, record, metrics = mirror_of(run, tmp_path, params={"seed": "0", "x": "1"}, datasets=[DATASET])
    assert not mirror.finish("FINISHED", 7)
    metrics.close()
    assert (mirror.run, mirror.params) == (run, {"seed": "0"})
    assert sent(client, "params") == {"x": "1"}
    assert client.got("tags") == []  # It was made with them.
    assert client.got("metrics") == [[("a", 1.0, 1)]]
    assert client.calls[-1] == ("status", "FINISHED")
    assert record.content["run_id"] == "r"


def test_a_run_that_goes_on_keeps_what_it_was_started_with(tmp_path: Path) -> None:
    client = FakeClient()
    run = dataclasses.replace(make_run(client, tags={"host": "a", "mlflow.user": "u"}), params={"seed": "0"}, resumes=2)
    mirror, record, metrics = mirror_of(run, tmp_path, params={"seed": "1", "x": "1"}, resume=50)
    assert not mirror.finish("KILLED", 7)
    metrics.close()
    assert sent(client, "params") == {"x": "1"}
    tags = {"new": "1", "resume.2": "from step 50", "resume.2.seed": "1", "resume.2.host": "b", "resume.count": "2"}
    assert sent(client, "tags") == tags
    assert record.content["tags"] == {"host": "a", **tags}
    assert "resume" not in record.content


def test_what_did_not_get_through_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimexp.tracking.mirror._IDLE_SECS", 0.1)
    client = FakeClient()
    client.fail = lambda name, what: ConnectionError("down")
    mirror, _, metrics = mirror_of(make_run(client), tmp_path, params={"x": "1"})
    unsent = mirror.finish("FINISHED", 7)
    metrics.close()
    assert (unsent.points, unsent.entries, unsent.status) == (1, 1, True)
    told = mirror.describe(unsent)
    assert told.startswith("MLflow (http://127.0.0.1:9) did not take everything (down): 1 metric values are only in ")
    assert told.endswith(f" -m slimexp.tracking.sync {tmp_path}")
