"""The table of a sweep on the screen and as CSV files."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from slimexp.sweep.results import read_results
from slimexp.sweep.scores import best_of, group_by_seed
from slimexp.sweep.table import print_groups, print_jobs, write_groups_csv, write_jobs_csv
from tests.sweep.synthetic import SyntheticSweep


@pytest.fixture
def sweep(tmp_path: Path) -> SyntheticSweep:
    return SyntheticSweep(tmp_path)


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_training_jobs_on_screen(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"eval/top1": 0.9, "eval/loss": 0.4, "train/loss": math.nan, "eval/top5": 1.0}
    sweep.train({"optimizer": "adam", "learning_rate.initial": "0.0123456789"}, metrics, speed=1234.0)
    sweep.train({"optimizer": "sgd", "learning_rate.initial": "0.1"}, {"eval/top1": 0.95})
    sweep.job({"optimizer": "ftrl"}, status="FAILED", reason="no memory for [odd] 1 image")
    jobs = read_results(sweep.folder)
    print_jobs(jobs, "eval/loss", best_of(jobs, "eval/loss", maximize=False))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [
        *("#", "optimizer", "learning_rate.initial", "status", "eval/loss", "eval/top1", "train/loss", "images/s"),
        *("held", "back", "by,", "or", "reason"),
    ]
    assert lines[1] == ["0", "adam", "0.01235", "FINISHED,", "best", "0.4000", "0.9000", "NaN", "1,234", "network"]
    assert lines[2] == ["1", "sgd", "0.1", "FINISHED", "-", "0.9500", "-", "500", "network"]
    assert lines[3] == [
        *("2", "ftrl", "-", "FAILED", "-", "-", "-", "-"),
        *("no", "memory", "for", "[odd]", "1", "image"),
    ]


def test_benchmarks_on_screen(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.benchmark({"pipeline.threads": "2"}, 400, 390, "cores")
    jobs = read_results(sweep.folder)
    print_jobs(jobs, "benchmark/training_images_per_sec", jobs[0])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split("  ") != []
    assert [part.strip() for part in head.split("  ") if part] == [
        *("#", "threads", "status", "pipeline images/s", "network images/s", "together images/s", "held back by")
    ]
    assert line.split() == ["0", "2", "FINISHED,", "best", "400", "600", "390", "cores"]


def test_a_sweep_without_settings_has_names(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.train({}, {"train/loss": 1.0})
    jobs = read_results(sweep.folder)
    print_jobs(jobs, None, None)
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["0", "lenet", "FINISHED"]


def test_jobs_as_csv(sweep: SyntheticSweep) -> None:
    threads = {"pipeline.threads": "2"}
    sweep.train(threads, {"eval/top1": 0.9, "pipeline.threads": 2.0, "z": math.inf})
    sweep.job(
        {"pipeline.threads": "4"}, status="KILLED", reason="killed by signal 9, of course", run_id=None, secs=None
    )
    jobs = read_results(sweep.folder)
    write_jobs_csv(sweep.folder / "sweep.csv", jobs, jobs[0])
    first, second = read_csv(sweep.folder / "sweep.csv")
    assert first == {
        "number": "0",
        "name": "lenet threads=2",
        "pipeline.threads": "2",
        "status": "FINISHED",
        "reason": "",
        "best": "best",
        "run_id": "id0",
        "secs": "12.5",
        "images_per_sec": "500",
        "bottleneck": "network",
        "overrides": "pipeline.threads=2",
        "folder": str(sweep.folder / "0"),
        "eval/top1": "0.9",
        "train/images_per_sec": "500",
        "z": "inf",
    }
    assert (second["status"], second["reason"], second["best"], second["eval/top1"], second["secs"]) == (
        *("KILLED", "killed by signal 9, of course", "", "", ""),
    )


def test_groups(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    for optimizer, values in (("adam", (0.8, 0.9, 1.0)), ("sgd", (0.5, math.nan))):
        for seed, value in enumerate(values):
            sweep.train({"optimizer": optimizer, "seed": str(seed)}, {"eval/top1": value}, speed=400 + 100.0 * seed)
    sweep.job({"optimizer": "sgd", "seed": "2"}, status="FAILED", reason="no memory")
    groups = group_by_seed(read_results(sweep.folder), "eval/top1")
    assert [(group.settings, group.mean, len(group.jobs)) for group in groups] == [
        ({"optimizer": "adam"}, pytest.approx(0.9), 3),
        ({"optimizer": "sgd"}, 0.5, 3),
    ]
    print_groups(groups, "eval/top1")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["optimizer", "seeds", "eval/top1", "images/s"],
        ["adam", "3", "0.9000", "±", "0.1000", "500", "±", "100"],
        ["sgd", "2", "of", "3", "0.5000", "450", "±", "71"],
    ]
    write_groups_csv(sweep.folder / "groups.csv", groups)
    first, second = read_csv(sweep.folder / "groups.csv")
    assert first["optimizer"] == "adam"
    assert [first[f"eval/top1 {name}"] for name in ("n", "mean", "sd")] == ["3", "0.9", "0.1"]
    assert [second[f"eval/top1 {name}"] for name in ("n", "mean", "sd")] == ["1", "0.5", ""]
    assert [second[name] for name in ("jobs", "finished", "images_per_sec mean")] == ["3", "2", "450"]
