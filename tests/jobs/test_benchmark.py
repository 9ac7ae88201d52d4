"""The job `benchmark`, whole: what it prints, records and leaves in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest

from slimexp.errors import Interrupted, UserError
from slimexp.jobs import benchmark
from slimexp.pipeline.doctor.verdict import BOTTLENECKS

QUICK = ["job=benchmark", "benchmark.rounds=1", "benchmark.secs=0.1", "pipeline.batch_size=8", "pipeline.threads=2"]


def run(job, *overrides):
    overrides = [*QUICK, *overrides]
    config = job.config(*overrides)
    Path(config.run_dir).mkdir(parents=True, exist_ok=True)
    benchmark.run(config, overrides)


def test_a_benchmark_leaves_numbers_a_figure_and_a_verdict(job, capsys):
    run(job)
    (record,) = job.runs()
    assert record.info.status == "FINISHED"
    assert record.info.run_name == "benchmark lenet digits rounds=1 secs=0.1 batch_size=8 threads=2"
    assert record.data.tags["bottleneck"] in BOTTLENECKS
    metrics = record.data.metrics
    for name in ("read", "read_decode", "finish", "preprocess", "batch", "pipeline", "network", "training"):
        assert metrics[f"benchmark/{name}_images_per_sec"] > 0
    assert metrics["pipeline.threads"] == 2
    assert metrics["pipeline.readers"] == 4
    assert metrics["benchmark.secs"] == 0.1
    assert 0 <= metrics["benchmark/input_wait_frac"] <= 1
    assert 0 <= metrics["benchmark/prefetch_queue_fill_frac"] <= 1
    artifacts = [f.path for f in mlflow.MlflowClient(job.uri).list_artifacts(record.info.run_id)]
    assert {"benchmark.json", "benchmark.csv", "figures"} <= set(artifacts)

    content = json.loads((job.run_dir / "benchmark.json").read_text())
    assert content["verdict"]["bottleneck"] == record.data.tags["bottleneck"]
    assert content["rates"]["pipeline"]["median"] == metrics["benchmark/pipeline_images_per_sec"]
    assert content["settings"]["pipeline.threads"] == 2
    assert (job.run_dir / "figures/pipeline.png").stat().st_size > 10_000
    assert not (job.run_dir / "checkpoints").exists()
    shown = capsys.readouterr().out
    assert "pipeline and network together" in shown
    assert content["verdict"]["sentence"] in shown


def test_a_folder_of_another_job_is_left_alone(job):
    job.run_dir.mkdir()
    record = json.dumps({"params": {"job.name": "train"}})
    (job.run_dir / "run.json").write_text(record)
    with pytest.raises(UserError, match="holds a run of job=train, whose record this one would replace"):
        run(job, "tracking.backend=none")
    assert (job.run_dir / "run.json").read_text() == record


@pytest.mark.parametrize(("error", "status"), [(UserError("bad"), "FAILED"), (Interrupted("stop", 15), "KILLED")])
def test_the_status_is_true(job, monkeypatch, error, status):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(benchmark, "StageBench", fail)
    with pytest.raises(type(error)):
        run(job, "tracking.backend=none")
    assert json.loads((job.run_dir / "run.json").read_text())["status"] == status
