"""A sweep of benchmarks ends in one table, one chart and one verdict from what the jobs have left."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from slimexp import app
from slimexp.jobs.benchmark_sweep import summarize


def leave(
    folder: Path, settings: dict[str, Any], pipeline: float, training: float, bottleneck: str, **more: Any
) -> None:
    """Writes what a job leaves."""
    rates = {"pipeline": pipeline, "training": training, "network": 600.0}
    content = {
        "settings": {"pipeline.batch_size": 32, **settings},
        "rates": {name: {"median": rate, "low": rate - 5, "high": rate + 5} for name, rate in rates.items()},
        "verdict": {"bottleneck": bottleneck},
        **more,
    }
    folder.mkdir(parents=True)
    (folder / "benchmark.json").write_text(json.dumps(content))


def test_threads_by_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = [200, 390, 400, 380, 210, 400, 410, 395, 205, 395, 405, 400]
    for number, rate in enumerate(rates):
        threads, readers = 2 ** (number % 4), 1 + number // 4
        bottleneck = "preprocessing" if threads == 1 else "cores"
        settings = {"pipeline.threads": threads, "pipeline.readers": readers}
        leave(tmp_path / str(number), settings, rate, rate - 10, bottleneck)
    sentence = (
        "Fastest with the network: pipeline.threads=4 pipeline.readers=2, 400 images/s; pipeline.threads=2 "
        "pipeline.readers=1 gives 95 % of that. Held back by: cores."
    )
    assert summarize(tmp_path) == sentence
    shown = capsys.readouterr().out
    assert sentence in shown
    table = [line.split() for line in shown.splitlines()[:13]]
    assert table[0][:2] == ["threads", "readers"]
    assert table[1] == ["1", "1", "200", "600", "190", "preprocessing"]
    assert table[11] == ["4", "3", "405", "600", "395", "cores"]  # Job 10 comes after job 9.
    with open(tmp_path / "sweep.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["job"] for row in rows] == [str(number) for number in range(12)]
    assert rows[5]["pipeline.threads"] == "2"
    assert "pipeline.batch_size" not in rows[5]  # It is the same for all.
    assert rows[5]["training_images_per_sec"] == "390"
    assert (tmp_path / "sweep.png").stat().st_size > 5000


def note(folder: Path, overrides: list[str], record: dict[str, Any] | None, log: str = "") -> None:
    """Writes what Hydra and the tracker leave of a job."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {override}\n" for override in overrides))
    (folder / "slimexp.log").write_text(log)
    if record is not None:
        (folder / "run.json").write_text(json.dumps(record))


def test_jobs_that_failed_have_rows_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave(tmp_path / "0", {"pipeline.threads": 1}, 500, 490, "network")
    failures: dict[str, tuple[dict[str, Any] | None, str]] = {
        "0": ({"status": "FINISHED"}, ""),
        "1": ({"status": "FAILED", "message": "UserError: 2 images cannot be read:\n  a.jpg: [odd]\nMend them."}, ""),
        "2": ({"status": "KILLED", "message": "stopped by SIGTERM"}, ""),
        "3": ({"status": "RUNNING"}, ""),
        "4": (
            None,
            "[..] INFO\nTraceback (most recent call last):\n  File\nslimexp.errors.UserError: threads=x: bad\nB\n",
        ),
        "5": ({"status": "FINISHED", "params": {"job.name": "train"}}, ""),
        "6": (None, ""),
    }
    for number, (record, log) in failures.items():
        threads = int(number) + 1
        note(tmp_path / number, ["job=benchmark", f"pipeline.threads={threads}", "seed=3"], record, log)
    # The one result there is says in which setting the others differ from it.
    assert summarize(tmp_path) == (
        "pipeline.threads=1: 490 images/s. Held back by: network. 5 of 6 jobs left no result (pipeline.threads=2: "
        "FAILED; pipeline.threads=3: KILLED; pipeline.threads=4: KILLED; pipeline.threads=5: FAILED; "
        "pipeline.threads=7: FAILED)."
    )
    with open(tmp_path / "sweep.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["job"], row["pipeline.threads"], row["status"], row["reason"]) for row in rows] == [
        ("0", "1", "FINISHED", ""),
        ("1", "2", "FAILED", "2 images cannot be read: a.jpg: [odd]"),
        ("2", "3", "KILLED", "stopped by SIGTERM"),
        ("3", "4", "KILLED", "it ended without a word, as by SIGKILL or for want of memory"),
        ("4", "5", "FAILED", "threads=x: bad"),
        ("6", "7", "FAILED", "it left no result"),
    ]
    assert rows[0]["training_images_per_sec"] == "490"
    assert rows[1]["training_images_per_sec"] == ""
    assert "seed" not in rows[0]
    assert "KILLED: stopped by SIGTERM" in capsys.readouterr().out


def test_where_all_failed(tmp_path: Path) -> None:
    for number in range(2):
        note(tmp_path / str(number), [f"model=m{number}"], {"status": "FAILED", "message": "no memory"})
    assert summarize(tmp_path) == ("2 of 2 jobs left no result (model=m0: FAILED; model=m1: FAILED).")


def test_a_setting_without_numbers_has_no_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave(tmp_path / "0", {"model": "lenet"}, 500, 490, "balanced")
    leave(tmp_path / "1", {"model": "vgg16"}, 500, 5, "network")
    assert summarize(tmp_path) == "Fastest with the network: model=lenet, 490 images/s. Network and input keep pace."
    assert not (tmp_path / "sweep.png").exists()
    assert "sweep.png" not in capsys.readouterr().out


def test_the_command_line_ends_a_sweep_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_sweep_dirs", [])
    monkeypatch.chdir(tmp_path)
    app.Preflight().on_multirun_start(OmegaConf.create({"hydra": {"sweep": {"dir": "outputs/sweep"}}}))
    app._finish_sweep()  # Nothing was measured.
    assert capsys.readouterr().out == ""
    for threads in (1, 2):
        leave(tmp_path / "outputs/sweep" / str(threads), {"pipeline.threads": threads}, 100 * threads, 90, "cores")
    app._finish_sweep()
    assert "Fastest with the network: pipeline.threads=1, 90 images/s." in capsys.readouterr().out
    assert (tmp_path / "outputs/sweep/sweep.png").exists()


def test_a_job_alone_and_one_that_left_nothing_of_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert summarize(tmp_path) is None
    leave(tmp_path / "0", {"pipeline.threads": 2}, 500, 490, "network")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "benchmark.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert summarize(tmp_path) == (
            "0: 490 images/s. Held back by: network. 1 of 2 jobs left no result (1: FAILED)."
        )
    assert "1/benchmark.json cannot be read and is left out: " in caplog.text
