"""What is compared without asking a store; `test_sync.py` has the stores."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.missing import Missing, find_missing, wanted_tags
from tests.tracking.fake_client import FakeClient, make_run

CONTENT: dict[str, Any] = {
    "status": "FINISHED",
    "params": {"seed": "0"},
    "tags": {"t": "1"},
    "datasets": [{"name": "d", "digest": "1"}],
    "artifacts": [["a.txt", None], ["gone.txt", None]],
}


def make_folder(folder: Path) -> Path:
    metrics = MetricsFile(folder / "metrics.jsonl")
    for step in (1, 2):
        metrics.append(MetricsRow(step, 1.0, {"a": 1.0}))
    metrics.close()
    (folder / "a.txt").write_text("x", encoding="utf-8")
    return folder


def test_a_store_without_the_run_lacks_all_of_it(tmp_path: Path) -> None:
    missing = find_missing(CONTENT, make_folder(tmp_path), None, "http://h")
    assert str(missing) == "2 metric values, 1 param, 1 tag, 1 dataset, 1 file, status FINISHED"
    assert (missing.artifacts, missing.gone) == ([(tmp_path / "a.txt", None)], ["gone.txt"])


def test_what_the_store_has_is_not_missing(tmp_path: Path) -> None:
    known = dataclasses.replace(
        make_run(FakeClient(), last_steps={"a": 1}, tags={"t": "changed in the UI"}),
        params={"seed": "0"},
        datasets=frozenset({("d", "1")}),
        status="FINISHED",
    )
    content = {**CONTENT, "artifacts": []}
    missing = find_missing(content, make_folder(tmp_path), known, "http://h")
    assert str(missing) == "1 metric value"
    # As long as it did not get as far as the run's end, nobody else has edited it.
    assert find_missing({**content, "unsent": {"points": 1}}, tmp_path, known, "http://h").tags == {"t": "1"}


def test_a_run_that_never_said_its_end_was_killed(tmp_path: Path) -> None:
    content = {**CONTENT, "status": "RUNNING"}
    missing = find_missing(content, tmp_path, make_run(FakeClient()), "http://h")
    assert missing.status == "KILLED"
    assert missing.tags["status.message"] == "The process ended without a word."
    closed = dataclasses.replace(make_run(FakeClient()), status="FAILED")  # By its sweep.
    assert find_missing(content, tmp_path, closed, "http://h").status is None


def test_a_job_finds_its_sweeps_run_where_the_sweep_lies_now(tmp_path: Path) -> None:
    job = tmp_path / "moved" / "0"
    job.mkdir(parents=True)
    parent = {"run_id": "p", "uri": "http://h", "key": "k", "tags": {"sweep": "/old"}}
    (tmp_path / "moved" / "run.json").write_text(json.dumps(parent), encoding="utf-8")
    content = {"status": "FINISHED", "key": "j", "tags": {"sweep": "/old", "run_dir": "/old/0"}}
    assert wanted_tags(content, job, "http://h")["mlflow.parentRunId"] == "p"
    assert "mlflow.parentRunId" not in wanted_tags(content, job, "http://another")


def test_nothing_is_false() -> None:
    assert not Missing(gone=["a"])
    assert str(Missing()) == "nothing"
