"""How a training run goes on: after a stop, a signal, a kill, with other settings, and when nothing is left to do."""

from __future__ import annotations

import os
import signal
import time

import mlflow
import pytest

from slimexp.errors import Interrupted, UserError
from slimexp.jobs import build
from slimexp.jobs.evaluation import Evaluator
from slimexp.tracking import Tracker, read_metrics
from tests.jobs.conftest import TINY
from tests.jobs.processes import ENDLESS, SMALL, checkpoint_bytes, processes, wait_for_step


def test_a_stopped_run_goes_on_to_the_bytes_of_an_uninterrupted_one(job, tmp_path):
    # The network has dropout and batch norm.
    network = ["model.network._target_=tests.export.small_net.small_net", "model.image_size=12"]
    asked = [*SMALL, *network, "trainer.eval_every_steps=4"]
    job.train(*asked, "trainer.max_steps=8", f"run_dir={tmp_path}/whole", "tracking=none")
    job.run_dir = tmp_path / "halves"
    job.train(*asked, "trainer.max_steps=6")
    (first,) = job.runs()
    job.train(*asked, "trainer.max_steps=8")
    (second,) = job.runs()
    assert second.info.run_id == first.info.run_id
    assert second.info.status == "FINISHED"
    assert second.data.tags["resume.1.trainer.max_steps"] == "8"
    assert checkpoint_bytes(tmp_path / "halves", 8) == checkpoint_bytes(tmp_path / "whole", 8)

    whole = {row.step: row.metrics for row in read_metrics(tmp_path / "whole" / "metrics.jsonl")}
    rows = read_metrics(tmp_path / "halves" / "metrics.jsonl")
    losses = [row.step for row in rows if "train/loss" in row.metrics]
    assert losses == list(range(1, 9))
    assert [step for step, _ in job.history("train/loss")] == losses
    for row in rows:
        if row.step in whole and "train/loss" in row.metrics and "train/loss" in whole[row.step]:
            assert row.metrics["train/loss"] == whole[row.step]["train/loss"]


def test_a_run_that_is_done_says_so_and_changes_nothing_or_refuses(job, caplog):
    with pytest.raises(UserError, match=r"trainer\.resume=must: .*checkpoints has no checkpoint to go on from"):
        job.train(*SMALL, "trainer.resume=must")
    job.train(*SMALL)
    before = checkpoint_bytes(job.run_dir, 4), job.history("eval/loss")
    job.train(*SMALL)
    assert "The run is at step 4, and trainer asks for 4: nothing is left to train" in caplog.text
    assert (checkpoint_bytes(job.run_dir, 4), job.history("eval/loss")) == before
    with pytest.raises(UserError, match=r"trainer\.resume=never: .*checkpoints has a checkpoint of step 4"):
        job.train(*SMALL, "trainer.resume=never")
    with pytest.raises(UserError, match=r"model=cifarnet: run_dir=.*run holds a run of model=lenet"):
        job.train(*SMALL, "model=cifarnet", "trainer.max_steps=8")
    assert [run.info.status for run in job.runs()] == ["FINISHED"]
    other = "model.network._target_=tests.export.small_net.small_net"
    with pytest.raises(UserError, match=r"the checkpoint in run_dir does not fit the network: 7 of 7 variables"):
        job.train(*SMALL, other, "trainer.max_steps=8")
    assert [run.info.status for run in job.runs()] == ["FAILED"]


def test_what_changed_since_is_said(job, caplog):
    job.train(*SMALL)
    assert "Changed since" not in caplog.text
    job.train(*SMALL, "trainer.max_steps=6", "pipeline.threads=2", "seed=3", "optimizer=sgd")
    (said,) = [record.getMessage() for record in caplog.records if "Changed since" in record.getMessage()]
    assert "seed 0 -> 3" in said
    assert "optimizer.name rmsprop -> sgd" in said
    assert "threads" not in said
    assert "the images come in another order" in caplog.text
    assert "The optimizer is not the one of the checkpoint" in caplog.text
    (run,) = job.runs()
    assert run.data.tags["resume.1.seed"] == "3"


def test_other_settings_from_an_earlier_checkpoint_on_make_a_new_run_in_the_store(job):
    """Else the store would hold the old branch's metrics for the new one's steps."""
    job.train(*SMALL, "trainer.save_every_steps=2")
    for part in (job.run_dir / "checkpoints").glob("model.ckpt-4*"):
        part.unlink()
    job.train(*SMALL, "trainer.save_every_steps=2", "learning_rate.initial=0.0001")
    old, new = job.runs()
    assert {old.info.status, new.info.status} == {"FINISHED"}
    client = mlflow.MlflowClient(job.uri)
    sent = {m.step: m.value for m in client.get_metric_history(new.info.run_id, "train/loss")}
    rows = read_metrics(job.run_dir / "metrics.jsonl")
    assert sent == {row.step: row.metrics["train/loss"] for row in rows if "train/loss" in row.metrics}
    assert sorted(sent) == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_kill_before_the_first_checkpoint_does_not_leave_a_second_run(job):
    process = processes(job, *ENDLESS, "trainer.save_every_steps=100000")
    wait_for_step(process, 10)
    process.kill()
    process.communicate(timeout=60)
    assert [run.info.status for run in job.runs()] == ["RUNNING"]
    job.train("trainer.max_steps=5", "trainer.log_every_steps=1")
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    rows = read_metrics(job.run_dir / "metrics.jsonl")  # One of the machine's own load may be among them.
    assert [row.step for row in rows if {"train/loss", "eval/loss"} & row.metrics.keys()] == [1, 2, 3, 4, 5, 5]


def test_an_evaluation_that_a_stop_left_out_is_made_up_for(job, monkeypatch):
    def stopped(self, step):
        raise Interrupted("stopped by SIGTERM", signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "evaluate", stopped)
        with pytest.raises(Interrupted):
            job.train(*SMALL, "trainer.save_every_steps=2", "trainer.eval_every_steps=2")
    assert job.runs()[0].info.status == "KILLED"
    job.train(*SMALL, "trainer.save_every_steps=2", "trainer.eval_every_steps=2")
    assert [step for step, _ in job.history("eval/loss")] == [2, 4]


def test_a_signal_while_the_store_is_opened_stops_the_run(job, monkeypatch):
    start = Tracker.start

    def signalled(**arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return start(**arguments)

    monkeypatch.setattr(Tracker, "start", signalled)
    with pytest.raises(Interrupted):
        job.train(*SMALL)
    assert [run.info.status for run in job.runs()] == ["KILLED"]


def test_a_signal_when_all_is_done_leaves_it_finished(job, monkeypatch):
    finish = Tracker.finish

    def signalled(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return finish(self, *arguments)

    monkeypatch.setattr(Tracker, "finish", signalled)
    job.train(*SMALL)
    assert [run.info.status for run in job.runs()] == ["FINISHED"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_a_stop_signal_saves_and_ends_the_run_as_killed(job, number, code):
    process = processes(job, *ENDLESS, "trainer.save_every_steps=100000")
    wait_for_step(process, 10)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"slimexp: stopped by {signal.Signals(number).name}. To go on: the same command with run_dir=" in said
    assert "Traceback" not in said
    (run,) = job.runs()
    assert run.info.status == "KILLED"
    (index,) = (job.run_dir / "checkpoints").glob("*.index")
    step = int(index.stem.rpartition("-")[2])
    assert step >= 10
    job.train(f"trainer.max_steps={step + 2}", "trainer.log_every_steps=1")
    assert [s for s, _ in job.history("train/loss")][-2:] == [step + 1, step + 2]
    assert job.runs()[0].info.status == "FINISHED"


@pytest.mark.slow
def test_after_a_kill_without_warning_it_goes_on_from_the_last_checkpoint(job, tmp_path):
    process = processes(job, *ENDLESS)
    wait_for_step(process, 30)
    process.kill()
    process.communicate(timeout=60)
    steps = [int(path.stem.rpartition("-")[2]) for path in (job.run_dir / "checkpoints").glob("*.index")]
    last = max(steps) + 10
    job.train(f"trainer.max_steps={last}", "trainer.log_every_steps=5")
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    logged = [step for step, _ in job.history("train/loss")]
    assert logged == sorted(set(logged))
    assert logged[-1] == last
    ours = checkpoint_bytes(job.run_dir, last)
    job.train(f"trainer.max_steps={last}", f"run_dir={tmp_path}/whole")
    assert checkpoint_bytes(tmp_path / "whole", last) == ours


@pytest.mark.slow
def test_processes_come_to_the_same_bytes_with_a_deep_network_too(job, tmp_path):
    """Two of them, as the graph is rewritten in another way from process to process if nothing is done about it."""
    for name in ("one", "two"):
        job.run_dir = tmp_path / name
        process = processes(job, "model=inception", *TINY, "tracking=none", "evaluation.batch_size=64")
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
    assert checkpoint_bytes(tmp_path / "one", 4) == checkpoint_bytes(tmp_path / "two", 4)


def test_a_signal_before_the_first_step_ends_the_run_as_killed(job, monkeypatch):
    def interrupted(config):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(build, "dataset", interrupted)
    with pytest.raises(Interrupted):
        job.train(*SMALL)
    assert job.runs()[0].info.status == "KILLED"
