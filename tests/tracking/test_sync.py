from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest

from slimexp.jobs.lock import exclusive
from slimexp.tracking import mirror as mirror_module
from slimexp.tracking import sync
from slimexp.tracking.process import this_process
from slimexp.tracking.sync import sync_run
from slimexp.tracking.tracker import Tracker


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "_ABSENT_SECS", 0.1)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def start(uri: str | None, run_dir: Path, **changes: Any) -> Tracker:
    run_dir.mkdir(exist_ok=True)
    arguments: dict[str, Any] = {"backend": "mlflow", "tags": {}, "params": {"seed": 0}, **changes}
    return Tracker.start(uri=uri, experiment="tests", run_name="r", run_dir=run_dir, **arguments)


def read(store: str, run_dir: Path) -> Any:
    run_id = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))["run_id"]
    return mlflow.MlflowClient(tracking_uri=store).get_run(run_id)


def steps(store: str, run: Any, key: str = "a") -> list[int]:
    return [m.step for m in mlflow.MlflowClient(tracking_uri=store).get_metric_history(run.info.run_id, key)]


def kill(tracker: Tracker) -> None:
    """Leaves a run as SIGKILL would: what it has written stays, nobody finishes it."""
    assert tracker._sender is not None
    tracker._sender._outbox.abandon()
    tracker._sender._thread.join(5)


def test_a_killed_run_gets_its_rest(store: str, tmp_path: Path) -> None:
    tracker = start(store, tmp_path, flush_secs=0.01)
    tracker.log_metrics(1, {"a": 1.0})
    kill(tracker)
    tracker.log_metrics(2, {"a": 2.0, "b": float("nan")})
    tracker.set_tags({"bottleneck": "read"})
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "x.png").write_bytes(b"12")
    (tmp_path / "figures" / "deep").mkdir()
    (tmp_path / "figures" / "deep" / "y.png").write_bytes(b"3")
    tracker.log_artifact(tmp_path / "figures")
    tracker.log_artifact(tmp_path / "gone.csv")
    tracker.log_dataset(name="d", context="eval", digest="1", source="s", num_examples=2, num_classes=2, task="multi")
    assert read(store, tmp_path).info.status == "RUNNING"
    tracker._rows._metrics.close()
    gone = str(this_process()._replace(start="1"))
    tracker._record.update(process=gone)

    said = sync_run(tmp_path)
    assert said.ok, said
    assert "metric value" in said.text
    assert "1 dataset, 2 files, status KILLED to run" in said.text
    assert said.text.endswith("; no more there to be sent: gone.csv")
    run = read(store, tmp_path)
    assert run.info.status == "KILLED"
    assert steps(store, run) == [1, 2]
    assert run.data.tags["bottleneck"] == "read"
    assert run.data.tags["nonfinite.b"] == "nan at step 2"
    assert run.data.tags["status.message"] == "The process ended without a word."
    assert [d.dataset.name for d in run.inputs.dataset_inputs] == ["d"]
    assert sorted(p.name for p in Path(run.info.artifact_uri).rglob("*.png")) == ["x.png", "y.png"]
    again = sync_run(tmp_path)
    assert (again.ok, again.text) == (True, f"{store} has all of run {run.info.run_id}")
    # A file that was written anew since is sent again.
    (tmp_path / "figures" / "x.png").write_bytes(b"1234")
    assert "would send 1 file" in sync_run(tmp_path, dry_run=True).text
    assert "sent 1 file to" in sync_run(tmp_path).text


def test_a_run_that_went_on_without_the_store_is_one_run(store: str, tmp_path: Path) -> None:
    first = start(store, tmp_path, tags={"host": "a"}, params={"max_steps": 10})
    first.log_metrics(1, {"a": 1.0})
    first.finish("KILLED", "Stopped.")
    second = start(
        "http://127.0.0.1:9",
        tmp_path,
        tags={"host": "b"},
        params={"max_steps": 20},
        resume_run_id=first.run_id,
        resume_step=1,
    )
    second.log_metrics(2, {"a": 2.0})
    second.finish("FINISHED", "Done.")
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (record["run_id"], record["resume"]) == (first.run_id, 1)
    assert sync_run(tmp_path, tracking_uri=store).ok
    run = read(store, tmp_path)
    assert run.info.run_id == first.run_id
    assert (run.info.status, steps(store, run)) == ("FINISHED", [1, 2])
    assert run.data.params == {"max_steps": "10"}
    expected = {"host": "a", "resume.1.host": "b", "resume.1.max_steps": "20", "resume.1": "from step 1"}
    assert expected.items() <= run.data.tags.items()
    assert (run.data.tags["resume.count"], run.data.tags["status.message"]) == ("1", "Done.")
    assert "has all of run" in sync_run(tmp_path).text
    assert "resume" not in json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))


def test_a_run_that_is_running_is_left_alone(store: str, tmp_path: Path) -> None:
    tracker = start(store, tmp_path)
    with exclusive(tmp_path):
        said = sync_run(tmp_path)
    assert said.ok
    assert said.text == "is running now and sends for itself; left alone"
    # Where nobody holds a lock, the process is asked for.
    assert sync_run(tmp_path) == said
    tracker.finish()


def test_a_lost_answer_makes_no_second_run(store: str, tmp_path: Path) -> None:
    """The store made the run, but its id never arrived."""
    tracker = start(store, tmp_path)
    tracker.log_metrics(1, {"a": 1.0})
    tracker.finish("FINISHED")
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "run_id": None}), encoding="utf-8")
    assert sync_run(tmp_path).ok
    assert read(store, tmp_path).info.run_id == tracker.run_id


def test_a_store_that_lost_the_run_gets_it_anew(store: str, database: Path, tmp_path: Path) -> None:
    tracker = start(store, tmp_path / "run")
    tracker.log_metrics(1, {"a": 1.0})
    tracker.finish("FINISHED")
    shutil.copy(database, tmp_path / "fresh.db")
    fresh = f"sqlite:///{tmp_path}/fresh.db"
    assert "sent 1 metric value" in sync_run(tmp_path / "run", tracking_uri=fresh).text
    assert steps(fresh, read(fresh, tmp_path / "run")) == [1]
    # In its trash it was put on purpose.
    client = mlflow.MlflowClient(tracking_uri=fresh)
    client.delete_run(read(fresh, tmp_path / "run").info.run_id)
    said = sync_run(tmp_path / "run")
    assert said.ok
    assert "was deleted in sqlite:///" in said.text


def test_what_is_not_meant_for_a_store(store: str, tmp_path: Path) -> None:
    tracker = start(None, tmp_path, backend="none")
    tracker.log_metrics(1, {"a": 1.0})
    tracker.finish()
    said = sync_run(tmp_path)
    assert said.ok
    assert said.text == "was made with tracking=none; left alone (--tracking-uri sends it)"
    assert sync_run(tmp_path, tracking_uri=store).ok
    assert steps(store, read(store, tmp_path)) == [1]
    assert "has all of run" in sync_run(tmp_path).text


def test_a_job_of_a_sweep_finds_its_parent_later(store: str, tmp_path: Path) -> None:
    sweep = start("http://127.0.0.1:9", tmp_path)
    job = start("http://127.0.0.1:9", tmp_path / "0", tags={"sweep": str(tmp_path)})
    job.finish("FAILED", "bad")
    sweep.finish()
    assert sync.main([str(tmp_path), "--tracking-uri", store]) == 0  # The sweep first, as it began first.
    parent, run = read(store, tmp_path), read(store, tmp_path / "0")
    assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FAILED", parent.info.run_id)


def a_sweep_without_a_store(folder: Path, subdir: str = "0") -> None:
    """Leaves a sweep of one job that no store knows of, as the sweep's runner does."""
    folder.mkdir()
    (folder / "sweep.json").write_text("{}", encoding="utf-8")
    sweep = start("http://127.0.0.1:9", folder, tags={"sweep": str(folder)})
    (folder / subdir).parent.mkdir(exist_ok=True)
    start("http://127.0.0.1:9", folder / subdir, tags={"sweep": str(folder)}).finish()
    sweep.finish()


@pytest.mark.parametrize("subdir", ["0", "lenet/seed=1"])
def test_a_sweep_that_was_moved_is_one_family(subdir: str, store: str, tmp_path: Path) -> None:
    a_sweep_without_a_store(tmp_path / "old", subdir)
    (tmp_path / "old").rename(tmp_path / "new")
    assert sync.main([str(tmp_path / "new"), "--tracking-uri", store]) == 0
    parent, run = read(store, tmp_path / "new"), read(store, tmp_path / "new" / subdir)
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert "mlflow.parentRunId" not in parent.data.tags


def test_a_copy_of_a_sweep_beside_it(store: str, tmp_path: Path) -> None:
    a_sweep_without_a_store(tmp_path / "old")
    assert sync.main([str(tmp_path / "old"), "--tracking-uri", store]) == 0
    shutil.copytree(tmp_path / "old", tmp_path / "copy")
    (tmp_path / "old" / "0").rename(tmp_path / "alone")
    for folder in ("copy", "old", "alone"):
        assert sync.main([str(tmp_path / folder), "--tracking-uri", store]) == 0
    parent = read(store, tmp_path / "old")
    assert "mlflow.parentRunId" not in parent.data.tags
    assert parent.info.run_id == read(store, tmp_path / "copy").info.run_id
    # A job that was taken out of its sweep still has it as its parent.
    assert read(store, tmp_path / "alone").data.tags["mlflow.parentRunId"] == parent.info.run_id


def test_damaged_lines_keep_no_run_from_being_sent(store: str, tmp_path: Path) -> None:
    tracker = start("http://127.0.0.1:9", tmp_path)
    tracker.log_metrics(1, {"a": 1.0})
    tracker.finish()
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 1e400, "time": 1.0, "metrics": {}}\n' + "[" * 100_000 + "\n")
    said = sync_run(tmp_path, tracking_uri=store)
    assert said.ok
    assert said.text.endswith("; passed over 2 unreadable line(s): 2, 3 of metrics.jsonl")
    assert steps(store, read(store, tmp_path)) == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"uri": 5}, '"uri" is 5 and should be a text'),
        ({"started_ms": "now"}, '"started_ms" is "now" and should be a whole number'),
        ({"tags": []}, '"tags" is [] and should be a JSON object'),
        ({"params": {"a": 1}}, '"a" in "params" is 1 and should be a text'),
        ({"artifacts": ["x"]}, '"artifacts" has "x" in it, which is none'),
        ({"datasets": [{"name": "x"}]}, '"datasets" has {"name": "x"} in it, which is none'),
        ({"unsent": {"artifacts": 3}}, '"unsent" is {"artifacts": 3} and should have a list of paths'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_damaged_record_is_named(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(content), encoding="utf-8")
    said = sync_run(tmp_path)
    assert (said.ok, said.text) == (False, f"run.json cannot be read: {message}")


def test_the_command(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sync.main([str(tmp_path / "none")]) == 1
    assert f"{tmp_path}/none: is no folder. Name a run's folder, or one with runs" in capsys.readouterr().err
    assert sync.main([str(tmp_path)]) == 1
    assert "no run in there: none of the folders has a run.json" in capsys.readouterr().err

    tracker = start("http://127.0.0.1:9", tmp_path / "b")
    tracker.finish()
    tracker = start(store, tmp_path / "a")
    tracker.finish()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("[", encoding="utf-8")
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "run.json").write_text("{}", encoding="utf-8")
    assert sync.main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    lines = dict(line.removeprefix(f"{tmp_path}/").split(": ", 1) for line in said.out.splitlines())
    assert lines["broken"].startswith("run.json cannot be read: ")
    assert lines["nowhere"] == "run.json names no store; say which by --tracking-uri"
    assert lines["b"] == "[Errno 111] Connection refused"
    assert " has all of run " in lines["a"]
    assert list(lines)[2:] == ["b", "a"]  # In order of their start.
    assert said.err == "3 of 4 run(s) could not be sent whole.\n"


def test_the_script_is_the_command() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "scripts" / "sync_runs.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "RUN_DIR|OUTPUT_ROOT" in done.stdout
