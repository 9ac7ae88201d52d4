"""The answer of a sweep, whole: screen, files, and what its run in the tracking store gets."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
import yaml

from slimexp.shown import shown_python
from slimexp.sweep.__main__ import main
from slimexp.sweep.summary import Summary, summarize
from tests.sweep.synthetic import SyntheticSweep


@pytest.fixture
def sweep(tmp_path: Path) -> SyntheticSweep:
    return SyntheticSweep(tmp_path / "sweep")


def found(sweep: SyntheticSweep, *arguments: str | None, start_dir: Path | None = None) -> Summary:
    summary = summarize(sweep.folder, *arguments, start_dir=start_dir)
    assert summary is not None
    assert all(path.is_file() for path in summary.files)
    return summary


def names(summary: Summary, folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in summary.files]


def test_benchmarks(sweep: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for threads, rate in ((1, 200), (2, 390), (4, 400)):
        sweep.benchmark({"pipeline.threads": str(threads)}, rate, rate - 10, advice=("pipeline.cache=shrunk",))
    summary = found(sweep, start_dir=tmp_path)
    assert names(summary, sweep.folder) == ["sweep.csv", "sweep_threads.png", "pipeline/tuned.yaml"]
    assert (summary.metric, summary.maximize, summary.best, summary.best_run_id, summary.error) == (
        *("benchmark/training_images_per_sec", True, 2, "id2", None),
    )
    assert summary.overrides == ("pipeline.threads=2",)
    assert summary.metrics == {
        "sweep/jobs": 3,
        "sweep/finished": 3,
        "sweep/failed": 0,
        "best/benchmark/training_images_per_sec": 390,
        "mean/benchmark/training_images_per_sec": pytest.approx((190 + 380 + 390) / 3),
        "best/images_per_sec": 390,
        "best/pipeline.threads": 4,
    }
    assert summary.tags == {
        "sweep.verdict": summary.sentence,
        "sweep.metric": "benchmark/training_images_per_sec",
        "sweep.best": "lenet threads=4",
        "sweep.best_run_id": "id2",
        "bottleneck": "cores",
        "sweep.set": "pipeline.threads=2",
    }
    shown = capsys.readouterr().out
    assert "FINISHED, best" in shown
    assert shown.endswith(
        f"{summary.sentence}\n\n"
        "Set:          pipeline.threads=2\n"
        "Tuned:        pipeline=tuned takes these settings (conf/pipeline/tuned.yaml)\n"
        "Results:      sweep.csv, sweep_threads.png, pipeline/tuned.yaml\n"
    )
    tuned = (tmp_path / "conf/pipeline/tuned.yaml").read_text()
    assert tuned == (sweep.folder / "pipeline/tuned.yaml").read_text()
    assert yaml.safe_load(tuned)["threads"] == 2
    assert f"# Command:  {shown_python()} -m slimexp -m job=benchmark\n" in tuned
    assert "# Measured: the pipeline 390, the network 600, together 380 images/s\n" in tuned
    assert "# Note:     not tried: pipeline.cache=shrunk.\n" in tuned


def test_one_setting_of_a_sweep_that_broke_off_recommends_nothing(sweep: SyntheticSweep, tmp_path: Path) -> None:
    sweep.benchmark({"pipeline.threads": "1"}, 200, 190)
    sweep.train({"pipeline.threads": "2"}, {}, status="KILLED", reason="stopped by SIGTERM")
    summary = found(sweep, start_dir=tmp_path)
    assert summary.overrides == ()
    assert not (tmp_path / "conf").exists()


def test_again_by_hand_leaves_the_users_options_alone(
    sweep: SyntheticSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep.benchmark({"pipeline.threads": "1"}, 200, 190)
    sweep.benchmark({"pipeline.threads": "2"}, 300, 290)
    assert main(["sweep"]) == 0
    assert not (tmp_path / "conf").exists()
    shown = capsys.readouterr().out
    assert f"pipeline/tuned.yaml: --config-dir={sweep.folder} pipeline=tuned" not in shown
    assert f"Tuned:        --config-dir={sweep.folder} pipeline=tuned takes these settings\n" in shown
    assert (sweep.folder / "pipeline/tuned.yaml").is_file()


def test_networks_that_want_different_settings(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    for model, rates in (("lenet", (100, 200)), ("vgg16", (50, 50))):
        for threads, rate in zip((1, 2), rates, strict=True):
            sweep.benchmark({"model": model, "pipeline.threads": str(threads)}, 300, rate, "network")
    summary = found(sweep)
    assert names(summary, sweep.folder) == ["sweep.csv", "sweep_threads.png"]
    shown = capsys.readouterr().out
    assert "Set:          pipeline.threads=2  (model=lenet)\nSet:          pipeline.threads=1  (model=vgg16)\n" in shown
    assert "Tuned:        nothing for pipeline=tuned, as not all want the same; sweep with model=lenet alone." in shown


def test_a_result_of_an_older_version_gives_no_settings(sweep: SyntheticSweep) -> None:
    for threads in (1, 2):
        path = sweep.benchmark({"pipeline.threads": str(threads)}, 300, 100 * threads) / "benchmark.json"
        content = json.loads(path.read_text())
        del content["pipeline"], content["where"], content["stats"]
        path.write_text(json.dumps(content))
    assert names(found(sweep), sweep.folder) == ["sweep.csv", "sweep_threads.png"]


def test_seeds(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    for rate in ("0.1", "0.01"):
        for seed in range(3):
            sweep.train({"seed": str(seed), "learning_rate.initial": rate}, {"eval/top1": 0.9 + 0.01 * seed})
    summary = found(sweep)
    assert names(summary, sweep.folder) == ["sweep.csv", "sweep_groups.csv", "sweep_learning_rate_initial.png"]
    shown = capsys.readouterr().out
    assert "0.9100 ± 0.0100" in shown
    with open(sweep.folder / "sweep_groups.csv", encoding="utf-8") as file:
        assert [row["eval/top1 sd"] for row in csv.DictReader(file)] == ["0.01", "0.01"]


def test_where_all_failed(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.job({"pipeline.threads": "1"}, status="FAILED", reason="no such file: [a].jpg")
    sweep.job({"pipeline.threads": "2"}, status="NOT_RUN")
    summary = found(sweep)
    assert summary.sentence == "2 of 2 jobs did not finish (threads=1: FAILED; threads=2: NOT_RUN)."
    assert (summary.metric, summary.best, summary.overrides) == (None, None, ())
    assert summary.metrics == {"sweep/jobs": 2, "sweep/finished": 0, "sweep/failed": 1}
    assert names(summary, sweep.folder) == ["sweep.csv"]
    shown = capsys.readouterr().out
    assert "FAILED   no such file: [a].jpg" in shown
    assert "Set:" not in shown


def test_all_values_are_nan(sweep: SyntheticSweep) -> None:
    for rate in ("1", "10"):
        sweep.train({"learning_rate.initial": rate}, {"eval/top1": math.nan, "train/loss": math.nan})
    summary = found(sweep)
    assert summary.best is None
    assert "2 jobs finished, none with a finite eval/top1." in summary.sentence


def test_a_metric_of_ones_own(sweep: SyntheticSweep) -> None:
    sweep.train({"a": "x"}, {"eval/top1": 0.9, "eval/loss": 2.0})
    sweep.train({"a": "y"}, {"eval/top1": 0.8, "eval/loss": 1.0})
    assert found(sweep).best == 0
    assert found(sweep, "eval/loss").best == 1
    assert found(sweep, "eval/loss", "maximize").best == 0
    sweep.record.metric, sweep.record.direction = "eval/top1", "minimize"
    sweep.record.write(sweep.folder)
    assert found(sweep).best == 1


def test_a_metric_that_no_job_has(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.train({"a": "x"}, {"eval/top1": 0.9})
    summary = found(sweep, "eval/top2", "minimize")
    assert (summary.metric, summary.maximize, summary.best) == ("eval/top1", True, 0)
    assert summary.error is not None
    shown = capsys.readouterr()
    assert "FINISHED, best" in shown.out
    assert shown.err == (
        "slimexp: error: sweep.metric=eval/top2: no job of the sweep has it; the nearest is eval/top1. There are "
        "eval/top1, train/images_per_sec.\n"
    )
    assert main([str(sweep.folder), "--metric", "eval/top2"]) == 1


def test_a_folder_that_cannot_be_written(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.train({"a": "x"}, {"eval/top1": 0.9})
    (sweep.folder / "sweep.csv").mkdir()
    assert main([str(sweep.folder)]) == 1
    assert "sweep cannot be written: Is a directory." in capsys.readouterr().err


def test_what_is_no_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert summarize(tmp_path) is None
    assert main([str(tmp_path / "nothing")]) == 1
    assert "nothing: has no jobs of a sweep in it." in capsys.readouterr().err
    (tmp_path / "sweep.json").write_text("{")
    assert main([str(tmp_path)]) == 1
    assert "cannot be read as the record of a sweep" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--direction", "up"])


def test_what_to_set_can_be_pasted(sweep: SyntheticSweep, capsys: pytest.CaptureFixture[str]) -> None:
    for root, top1 in (("my photos", 0.9), ("old", 0.8)):
        sweep.train({"dataset.root": root}, {"eval/top1": top1})
        sweep.record.jobs[-1].overrides = [f'dataset.root="{root}"']
    sweep.record.write(sweep.folder)
    assert found(sweep).tags["sweep.set"] == "'dataset.root=\"my photos\"'"
    assert "\nSet:          'dataset.root=\"my photos\"'\n" in capsys.readouterr().out
