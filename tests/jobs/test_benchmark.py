"""The job `benchmark`, whole: what it prints, records and leaves in its folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import mlflow
import pytest
import yaml

from slimexp.errors import Interrupted, UserError
from slimexp.jobs import benchmark, benchmark_result, diagnosis
from slimexp.jobs.benchmark_result import Measured, describe_place
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import BOTTLENECKS, Verdict
from slimexp.sweep import membership
from tests.pipeline.doctor.test_verdict import stats

QUICK = ["job=benchmark", "benchmark.rounds=1", "benchmark.secs=0.1", "pipeline.batch_size=8", "pipeline.threads=2"]


def run(job, *overrides):
    overrides = [*QUICK, *overrides]
    config = job.config(*overrides)
    Path(config.run_dir).mkdir(parents=True, exist_ok=True)
    benchmark.run(config, overrides)


def test_a_benchmark_leaves_numbers_a_figure_and_a_verdict(job, drawn_figures, capsys):
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
    assert f"Run folder:  {job.run_dir}\nResults:     benchmark.csv, figures/pipeline.png\nMLflow run:  " in shown
    assert f"Compare:     {sys.executable.rpartition('/')[0]}/mlflow ui --backend-store-uri {job.uri}" in shown
    assert content["pipeline"]["queues"]["read"] == {"capacity": None, "min_after_dequeue": None}
    assert content["pipeline"]["decoder"] == "auto"
    assert content["where"]["dataset"] == "digits (1,438 images)"
    assert content["where"]["model"] == "lenet at 28 px"


def test_a_network_slower_alone_than_with_the_pipeline_is_not_made_use_of():
    rates = {"network": Rate(90, 80, 100), "training": Rate(100, 95, 105)}
    assert benchmark_result._network_note(rates) == (
        "The network alone came to 90 images/s and together with the pipeline to 100: other programs disturbed the "
        "measurement, or its rounds are too short. The slower figure is not made use of.\n"
    )
    assert benchmark_result._network_note({**rates, "network": Rate(100, 80, 110)}) == ""


@pytest.mark.parametrize("in_sweep", [False, True], ids=["alone", "in a sweep"])
def test_what_is_advised_becomes_an_option(job, capsys, monkeypatch, in_sweep):
    config = job.config("pipeline.threads=2")
    found = Verdict("preprocessing", "It is slow.", ("pipeline.threads=6", "pipeline.queues.batch.capacity=8"))
    rates = {name: Rate(rate, rate, rate) for name, rate in (("network", 900), ("training", 300), ("pipeline", 310))}
    measured = Measured(rates, {}, stats(), found, describe_place(config, 1438, 28))
    place = membership.Membership("sweep", 0, "threads=2") if in_sweep else None
    monkeypatch.setattr(membership, "current", lambda: place)
    benchmark_result.report(config, Mock(run_id=None), measured, [])
    settings = yaml.safe_load((job.run_dir / "pipeline/tuned.yaml").read_text())
    assert (settings["threads"], settings["queues"]["batch"]["capacity"], settings["readers"]) == (6, 8, 4)
    assert (job.folder / "conf").exists() != in_sweep
    shown = capsys.readouterr().out
    assert ("Tuned:       pipeline=tuned takes these settings (conf/pipeline/tuned.yaml)\n" in shown) != in_sweep
    assert ("Tuned:       pipeline/tuned.yaml\n" in shown) == in_sweep


def test_a_decoder_that_only_lacks_a_compiler_is_advised(job, monkeypatch):
    record = Mock()
    slow = stats(rate=410, wait=0.64, preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0), cpu=0.3)
    monkeypatch.setattr(diagnosis, "missing_tools", lambda: "there is no C++ compiler.")
    monkeypatch.setattr(diagnosis, "find", lambda: (None, "there is no C++ compiler."))
    told = "pipeline.decoder=native would make images cheaper"
    assert told in diagnosis.diagnose(job.config("pipeline.decoder=auto"), slow, record).sentence
    assert told not in diagnosis.diagnose(job.config("pipeline.decoder=tensorflow"), slow, record).sentence
    monkeypatch.setattr(diagnosis, "find", lambda: (Path("ops.so"), ""))
    assert told not in diagnosis.diagnose(job.config("pipeline.decoder=auto"), slow, record).sentence


@pytest.mark.parametrize("counts", [(), ("pipeline.readers=auto",)])
def test_a_file_that_never_answers_does_not_hold_up_a_signal(job, photos, counts):
    listed = photos(12)
    pipe = job.folder / "images" / "3.jpg"
    pipe.unlink()
    os.mkfifo(pipe)
    timer = threading.Timer(4.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            run(
                job,
                "dataset=listfile",
                f"dataset.train_list={listed}",
                "dataset.num_classes=3",
                "dataset.check_files=false",
                *counts,
                "tracking.backend=none",
            )
        assert time.monotonic() - began < 8
    finally:
        timer.cancel()
        # Nobody is left who waits for the pipe.
        deadline = time.monotonic() + 10
        while any(thread.name == "slimexp taker" for thread in threading.enumerate()) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            time.sleep(0.02)
    assert json.loads((job.run_dir / "run.json").read_text())["status"] == "KILLED"


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
