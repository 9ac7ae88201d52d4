from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slimexp.tracking.unsent import Refused, Unsent, describe_unsent, sync_command


def test_nothing_unsent_is_false() -> None:
    assert not Unsent(cause="was down for a while")
    for some in (Unsent(points=1), Unsent(artifacts=("a",)), Unsent(entries=1), Unsent(status=True), Unsent(run=True)):
        assert some


def test_a_refusal_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    refused = Refused("store")
    for cause in ("first http://u:p@h", "second"):
        refused.warn("metrics", ValueError(cause))
    refused.warn("a file", ValueError("third"))
    assert [r.getMessage() for r in caplog.records] == [
        "store does not take metrics: first http://u:***@h",
        "store does not take a file: third",
    ]
    assert refused.cause == "third"


def test_it_is_said_what_is_missing_and_how_to_send_it() -> None:
    unsent = Unsent(points=3, artifacts=("a", "b"), entries=1, status=True, cause="down")
    told = describe_unsent(
        unsent, uri="http://h", metrics_path=Path("/r/metrics.jsonl"), record_path=Path("/r/run.json")
    )
    assert told == (
        "MLflow (http://h) did not take everything (down): 3 metric values are only in /r/metrics.jsonl; 2 files were "
        "not uploaded; 1 params, tags and datasets were not stored; the run still counts as RUNNING there. To send it "
        f"when MLflow is back: {sys.executable} -m slimexp.tracking.sync /r"
    )
    # Without a run nothing can count as RUNNING; without a folder nothing can be sent later.
    told = describe_unsent(Unsent(points=3, status=True, run=True), uri="http://h", metrics_path=None, record_path=None)
    assert told == "MLflow (http://h) did not take everything: it has no run of it; 3 metric values are only in memory."


def test_the_hint_says_that_a_password_is_needed() -> None:
    told = describe_unsent(
        Unsent(run=True), uri="http://me:***@h", metrics_path=Path("/r/metrics.jsonl"), record_path=Path("/r/run.json")
    )
    command = "slimexp.tracking.sync /r --tracking-uri 'http://me:***@h'"
    assert f"{command} (with its password, which run.json does not keep; or set " in told


def test_the_command_is_quoted_for_the_shell() -> None:
    assert sync_command(Path("/a b"), "http://h").endswith(" -m slimexp.tracking.sync '/a b'")
