"""What the jobs of a sweep have left is read back, whatever state they are in."""

from __future__ import annotations

import fcntl
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from slimexp.sweep.results import number_or_text, read_results, shorten
from tests.sweep.synthetic import SyntheticSweep, write_metrics, write_record


def test_a_training_job(tmp_path: Path) -> None:
    sweep = SyntheticSweep(tmp_path)
    sweep.train({"optimizer": "adam", "seed": "3"}, {"eval/top1": 0.9, "train/loss": float("nan")}, speed=300.0)
    (job,) = read_results(tmp_path)
    assert (job.number, job.name, job.status, job.run_id, job.secs) == (
        0,
        "lenet optimizer=adam seed=3",
        "FINISHED",
        "id0",
        12.5,
    )
    assert job.metrics["eval/top1"] == 0.9
    assert str(job.metrics["train/loss"]) == "nan"
    assert job.images_per_sec == 300.0  # Without the first interval.
    assert job.bottleneck == "network"
    assert job.label(["optimizer", "seed"]) == "optimizer=adam seed=3"


def test_a_benchmark_and_its_automatic_count(tmp_path: Path) -> None:
    sweep = SyntheticSweep(tmp_path)
    folder = sweep.benchmark({"pipeline.threads": "auto"}, 400, 390, "reading", advice=("pipeline.readers=8",))
    content = json.loads((folder / "benchmark.json").read_text())
    content["settings"]["pipeline.threads"] = 3
    (folder / "benchmark.json").write_text(json.dumps(content))
    (job,) = read_results(tmp_path)
    assert job.benchmark is not None
    assert job.benchmark.speed == job.images_per_sec == 390
    assert job.benchmark.advice == ("pipeline.readers=8",)
    assert job.benchmark.fills["read"] == 0.9
    assert job.settings["pipeline.threads"] == "auto"
    assert job.number_of("pipeline.threads") == 3


def test_jobs_that_lack_a_key_have_it_open(tmp_path: Path) -> None:
    sweep = SyntheticSweep(tmp_path)
    sweep.train({"a.x": "1"}, {})
    sweep.train({"b.x": "text"}, {})
    first, second = read_results(tmp_path)
    assert first.settings == {"a.x": "1", "b.x": None}
    assert first.label(["a.x", "b.x"]) == "a.x=1"  # Both end in x.
    assert second.number_of("b.x") is None


FAILURES: dict[str, tuple[dict[str, Any] | None, str, tuple[str, str]]] = {
    "message": (
        {"status": "FAILED", "message": "UserError: 2 images cannot be read:\n  a.jpg: [odd]\nMend them."},
        "",
        ("FAILED", "2 images cannot be read: a.jpg: [odd]"),
    ),
    "signal": ({"status": "KILLED", "message": "stopped by SIGTERM"}, "", ("KILLED", "stopped by SIGTERM")),
    "no word": ({"status": "RUNNING"}, "", ("KILLED", "it ended without a word, as by SIGKILL or for want of memory")),
    "log": (
        {"status": "FAILED"},
        "[..] INFO\nTraceback (most recent call last):\n  File\nslimexp.errors.UserError: threads=x: bad\nB\n",
        ("FAILED", "threads=x: bad"),
    ),
    "nothing": ({"status": "FAILED"}, "", ("FAILED", "it left no result")),
    "done": ({"status": "FINISHED"}, "", ("FINISHED", "")),
}


@pytest.mark.parametrize("case", sorted(FAILURES))
def test_a_job_whose_sweep_could_not_note_its_end(tmp_path: Path, case: str) -> None:
    record, log, expected = FAILURES[case]
    folder = SyntheticSweep(tmp_path).job({"seed": "1"}, status="RUNNING")
    write_record(folder, **record) if record else None
    (folder / "slimexp.log").write_text(log)
    (job,) = read_results(tmp_path)
    assert (job.status, job.reason) == expected


def test_a_job_that_is_running_now(tmp_path: Path) -> None:
    folder = SyntheticSweep(tmp_path).job({"seed": "1"}, status="RUNNING")
    write_record(folder, "RUNNING")
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_results(tmp_path)[0].status == "RUNNING"
    assert read_results(tmp_path)[0].status == "KILLED"


def test_the_sweeps_own_reason_counts_first_and_old_metrics_do_not(tmp_path: Path) -> None:
    sweep = SyntheticSweep(tmp_path)
    failed = sweep.job({"seed": "0"}, status="FAILED", reason="killed by signal 9 (out of memory?)")
    write_record(failed, "RUNNING")
    waiting = sweep.job({"seed": "1"}, status="NOT_RUN")
    write_metrics(waiting, [{"eval/top1": 1.0}])
    jobs = read_results(tmp_path)
    assert jobs[0].reason == "killed by signal 9 (out of memory?)"
    assert (jobs[1].status, jobs[1].reason, jobs[1].metrics) == ("NOT_RUN", "", {})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "benchmark.json cannot be read"),
        ('{"rates": {}, "verdict": {"bottleneck": "cores"}}', "benchmark.json lacks what a benchmark finds"),
        (None, "it left no result"),
    ],
    ids=["broken", "empty", "missing"],
)
def test_a_benchmark_without_a_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None, reason: str
) -> None:
    folder = SyntheticSweep(tmp_path).job({"pipeline.threads": "1"}, overrides=["job=benchmark"])
    if content is not None:
        (folder / "benchmark.json").write_text(content)
    with caplog.at_level(logging.WARNING):
        (job,) = read_results(tmp_path)
    assert (job.status, job.reason) == ("FAILED", reason)
    assert ("cannot be read and is left out" in caplog.text) == (content == "{")


def test_a_sweep_without_a_record(tmp_path: Path) -> None:
    """As older versions left them."""
    for number, status in enumerate(("FINISHED", "FAILED")):
        folder = tmp_path / str(number)
        (folder / ".hydra").mkdir(parents=True)
        lines = [f"optimizer={'sgd' if number else 'adam'}", "seed=7", "+run_dir=x"]
        (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {line}\n" for line in lines))
        write_record(folder, status, message="UserError: no memory", run_id="abc")
    jobs = read_results(tmp_path)
    assert [(job.number, job.settings, job.status, job.reason) for job in jobs] == [
        (0, {"optimizer": "adam"}, "FINISHED", ""),
        (1, {"optimizer": "sgd"}, "FAILED", "no memory"),
    ]
    assert jobs[0].overrides == ("optimizer=adam", "seed=7")
    assert jobs[0].run_id == "abc"
    assert read_results(tmp_path / "nothing") == []


def test_numbers_of_the_command_line() -> None:
    assert [number_or_text(text) for text in ("8", "1e-3", "auto", None)] == [8, 0.001, "auto", None]
    assert [shorten(text) for text in ("0.012856486146865598", "0.001", "12345678901", None)] == [
        "0.01286",
        "0.001",
        "12345678901",
        "-",
    ]
