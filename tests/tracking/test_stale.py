"""Five ends of a process, and what the next start makes of the one that could say nothing."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest

from slimexp.tracking.location import resolve_uri
from slimexp.tracking.mlflow_store import Store, open_store
from slimexp.tracking.process import PROCESS_TAG, this_process
from slimexp.tracking.stale import RUN_DIR_TAG, close_run, close_stale_runs
from slimexp.tracking.tracker import Tracker

# Forked from one process that has imported MLflow; each child ends in its own way in the middle of its work. The last
# one is still at work when the next run starts.
_FIVE_ENDS = """
import os, signal, sys, threading, time
from pathlib import Path
import mlflow.store.tracking.sqlalchemy_store
from slimexp.tracking import Tracker
from slimexp.training.signals import StopSignals

def leave(end):
    if end == "exception":
        raise ValueError("bad")
    if end == "exit":
        sys.exit(1)  # As a user's own code may.
    if end == "alive":
        print("alive", flush=True)
        sys.stdin.read()
    else:
        os.kill(os.getpid(), {"ctrl-c": signal.SIGINT, "sigterm": signal.SIGTERM, "sigkill": signal.SIGKILL}[end])
        time.sleep(20)

def child(end, folder):
    folder.mkdir()
    with StopSignals():
        with Tracker.start(backend="mlflow", uri=sys.argv[1], experiment="tests", run_name=end, run_dir=folder,
                           tags={}, params={}, flush_secs=0.05) as tracker:
            tracker.log_metrics(3, {"a": 1.0})
            while not tracker._sender._backlog.offset:  # Sent; and what is stale was looked for before.
                time.sleep(0.02)
            (folder / "sent").touch()
            while not all((folder.parent / other / "sent").exists() for other in ENDS):
                time.sleep(0.02)
            leave(end)

ENDS = ("exception", "exit", "ctrl-c", "sigterm", "sigkill", "alive")
pids = []
for end in ENDS:
    pid = os.fork()
    if pid == 0:
        try:
            child(end, Path(sys.argv[2]) / end)
        except BaseException as error:
            os._exit(3 if isinstance(error, SystemExit) else 4)
        os._exit(0)
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids[:5]], flush=True)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pids[5], 0)[1]))
"""


def start(uri: str, run_dir: Path) -> Tracker:
    return Tracker.start(
        backend="mlflow", uri=uri, experiment="tests", run_name="next", run_dir=run_dir, tags={}, params={}
    )


def test_five_ends_have_five_right_statuses(store: str, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", _FIVE_ENDS, store, str(tmp_path)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = {process.stdout.readline(), process.stdout.readline()}
    assert lines == {"alive\n", "[1024, 768, 1024, 1024, 9]\n"}

    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("tests").experiment_id

    def statuses() -> dict[str, tuple[str, Any]]:
        runs = client.search_runs([experiment], "attributes.run_name != 'next'")
        return {run.info.run_name: (run.info.status, run.data.tags.get("status.message")) for run in runs}

    expected = {
        "exception": ("FAILED", "ValueError: bad"),
        "exit": ("FAILED", "SystemExit: 1"),
        "ctrl-c": ("KILLED", "stopped by SIGINT"),
        "sigterm": ("KILLED", "stopped by SIGTERM"),
        "sigkill": ("RUNNING", None),
        "alive": ("RUNNING", None),
    }
    assert statuses() == expected
    tracker = start(store, tmp_path / "next")
    tracker.finish()
    pid = json.loads((tmp_path / "sigkill" / "run.json").read_text(encoding="utf-8"))
    (run,) = client.search_runs([experiment], "attributes.run_name = 'sigkill'")
    assert run.info.run_id == pid["run_id"]
    killed = run.data.tags["slimexp.process"].split()[3]
    expected["sigkill"] = ("KILLED", f"Process {killed} on {this_process().host} ended without a word.")
    assert statuses() == expected
    # It ended when it was last heard of, not when that was found out.
    assert run.info.end_time == client.get_metric_history(run.info.run_id, "a")[0].timestamp

    process.communicate("", timeout=60)
    assert process.returncode == 0
    assert statuses()["alive"] == ("FINISHED", None)


@pytest.fixture
def opened(store: str, tmp_path: Path) -> Store:
    return open_store(resolve_uri(store, tmp_path), "stale rules")


def new_run(opened: Store, process: object, run_dir: Path | None = None, status: str | None = None) -> str:
    tags = {PROCESS_TAG: str(process), **({RUN_DIR_TAG: str(run_dir)} if run_dir else {})}
    run_id = opened.client.create_run(opened.experiment_id, tags=tags).info.run_id
    if status:
        opened.client.set_terminated(run_id, status)
    if run_dir:
        run_dir.mkdir()
        (run_dir / "run.json").write_text(json.dumps({"run_id": run_id}), encoding="utf-8")
        (run_dir / ".lock").touch()
    return run_id


def test_only_what_is_surely_gone_is_closed(opened: Store, tmp_path: Path) -> None:
    here = this_process()
    gone = here._replace(start="1")
    other_boot = gone._replace(boot="another")
    free = new_run(opened, other_boot, tmp_path / "free")  # This machine before its reboot.
    ids = {
        "gone": new_run(opened, gone),
        "alive": new_run(opened, here),
        "finished": new_run(opened, gone, status="FINISHED"),
        "other host": new_run(opened, gone._replace(host="another")),
        "host with a longer name": new_run(opened, gone._replace(host=f"{here.host}-2")),
        "container of this name": new_run(opened, gone._replace(namespace="1")),
        "other boot": new_run(opened, other_boot),
        "locked": new_run(opened, other_boot, tmp_path / "locked"),
        "no tag of ours": opened.client.create_run(opened.experiment_id).info.run_id,
    }
    with open(tmp_path / "locked" / ".lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        closed = close_stale_runs(opened)
        secs = time.monotonic() - began
        # Another run has the folder now.
        (tmp_path / "free" / "run.json").write_text('{"run_id": "other"}', encoding="utf-8")
        other = new_run(opened, other_boot)
        opened.client.set_tag(other, RUN_DIR_TAG, str(tmp_path / "free"))
        assert close_stale_runs(opened) == []
    assert sorted(closed) == sorted([free, ids["gone"]])
    assert secs < 2  # Some 20 ms on a quiet machine.
    statuses = {name: opened.client.get_run(run_id).info.status for name, run_id in ids.items()}
    assert {name for name, status in statuses.items() if status != "RUNNING"} == {"gone", "finished"}
    assert statuses["finished"] == "FINISHED"


def test_a_run_that_is_not_there_is_said(opened: Store, caplog: pytest.LogCaptureFixture) -> None:
    assert not close_run(opened, "0123456789abcdef0123456789abcdef", "x")
    assert "could not be marked as killed" in caplog.text
