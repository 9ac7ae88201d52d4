"""The job `train` as a whole: what it leaves behind, how it goes on, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlflow
import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.errors import Interrupted, UserError
from slimexp.jobs import build, train
from slimexp.jobs.evaluation import Evaluator
from slimexp.jobs.lock import exclusive
from slimexp.tracking import Tracker, read_metrics
from slimexp.training.schedules import Schedule
from tests.jobs.conftest import TINY
from tests.jobs.tiny import MODEL

SMALL = [*TINY, *MODEL, "evaluation.batch_size=120"]


def checkpoint_bytes(run_dir: Path, step: int) -> bytes:
    prefix = run_dir / "checkpoints" / f"model.ckpt-{step}"
    return b"".join(Path(f"{prefix}{part}").read_bytes() for part in (".index", ".data-00000-of-00001"))


def test_a_run_leaves_everything_behind(job, capsys):
    job.train("trainer.max_steps=30", "trainer.eval_every_steps=10", "pipeline.threads=8", "pipeline.batch_size=16")
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "lenet digits max_steps=30 eval_every_steps=10 threads=8 batch_size=16"
    assert run.data.params["pipeline.threads"] == "8"
    assert run.data.params["optimizer.name"] == "rmsprop"
    assert run.data.params["dataset.cache_dir"].startswith("/")
    # The commit is told only in a checkout, see tests/tracking/test_provenance.py.
    assert {"command", "version.tensorflow", "dataset.train.fingerprint"} <= set(run.data.tags)
    assert {f"train/{name}" for name in (
        "loss", "total_loss", "regularization_loss", "learning_rate", "gradient_norm",
        "images_per_sec", "step_secs", "input_wait_frac",
    )} | {"eval/loss", "eval/top1", "eval/top5", "eval/examples"} <= set(run.data.metrics)  # fmt: skip
    assert [step for step, _ in job.history("train/loss")] == [1, 10, 20, 30]
    assert [step for step, _ in job.history("eval/top1")] == [10, 20, 30]
    assert run.data.metrics["eval/examples"] == 359

    names = {str(path.relative_to(job.run_dir)) for path in job.run_dir.rglob("*")}
    assert {
        "run.json", "metrics.jsonl", "per_class.csv", "predictions.csv", "figures/learning_curves.png",
        "figures/confusion_matrix.png", "checkpoints/checkpoint", "checkpoints/model.ckpt-30.index",
    } <= names  # fmt: skip
    record = json.loads((job.run_dir / "run.json").read_text())
    assert record["run_id"] == run.info.run_id
    assert record["status"] == "FINISHED"
    assert record["params"]["seed"] == "0"
    artifacts = Path(run.info.artifact_uri)
    assert (artifacts / "figures" / "confusion_matrix.png").is_file()
    assert (artifacts / "predictions.csv").is_file()

    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(job.run_dir / "checkpoints")))
    shapes = reader.get_variable_to_shape_map()
    assert {"LeNet/conv1/weights", "LeNet/conv1/weights/RMSProp", "LeNet/conv1/weights/RMSProp_1"} <= set(shapes)
    assert reader.get_tensor("global_step") == 30

    said = capsys.readouterr().out
    assert "Evaluated 359 of 359 at step 30" in said
    assert str(job.run_dir) in said
    assert f"mlflow ui --backend-store-uri {job.uri}" in said


def test_a_stopped_run_goes_on_to_the_bytes_of_an_uninterrupted_one(job, tmp_path):
    job.train("trainer.max_steps=24", "trainer.eval_every_steps=8", f"run_dir={tmp_path}/whole")
    job.run_dir = tmp_path / "halves"
    job.uri = f"sqlite:///{tmp_path}/halves.db"
    job.train("trainer.max_steps=12", "trainer.eval_every_steps=8")
    (first,) = job.runs()
    job.train("trainer.max_steps=24", "trainer.eval_every_steps=8")
    (second,) = job.runs()
    assert second.info.run_id == first.info.run_id
    assert second.info.status == "FINISHED"
    assert second.data.tags["resume.1.trainer.max_steps"] == "24"
    assert checkpoint_bytes(tmp_path / "halves", 24) == checkpoint_bytes(tmp_path / "whole", 24)

    whole = {row.step: row.metrics for row in read_metrics(tmp_path / "whole" / "metrics.jsonl")}
    rows = read_metrics(tmp_path / "halves" / "metrics.jsonl")
    losses = [row.step for row in rows if "train/loss" in row.metrics]
    assert losses == sorted(set(losses))
    assert [step for step, _ in job.history("train/loss")] == losses
    for row in rows:
        if row.step in whole and "train/loss" in row.metrics and "train/loss" in whole[row.step]:
            assert row.metrics["train/loss"] == whole[row.step]["train/loss"]


def test_a_run_that_is_done_says_so_and_changes_nothing(job, caplog):
    job.train(*SMALL)
    before = checkpoint_bytes(job.run_dir, 4), job.history("eval/loss")
    job.train(*SMALL)
    assert "The run is at step 4, and trainer asks for 4: nothing is left to train" in caplog.text
    assert (checkpoint_bytes(job.run_dir, 4), job.history("eval/loss")) == before
    assert job.runs()[0].info.status == "FINISHED"


def test_resume_can_be_forbidden_and_demanded(job):
    with pytest.raises(UserError, match=r"trainer\.resume=must: .*checkpoints has no checkpoint to go on from"):
        job.train(*SMALL, "trainer.resume=must")
    job.train(*SMALL)
    with pytest.raises(UserError, match=r"trainer\.resume=never: .*checkpoints has a checkpoint of step 4"):
        job.train(*SMALL, "trainer.resume=never")
    assert job.runs()[-1].info.status == "FINISHED"


def test_another_network_cannot_go_on_from_it(job):
    job.train(*TINY)
    with pytest.raises(UserError, match=r"model=cifarnet: run_dir=.*run holds a run of model=lenet"):
        job.train(*TINY, "model=cifarnet", "trainer.max_steps=8")
    assert job.runs()[0].info.status == "FINISHED"
    with pytest.raises(UserError, match=r"the checkpoint in run_dir does not fit the network: 10 of 10 variables"):
        job.train(*TINY, "model.network._target_=slimexp.nets.cifarnet.cifarnet", "trainer.max_steps=8")
    assert job.runs()[0].info.status == "FAILED"


def test_what_changed_since_is_said(job, caplog):
    job.train(*SMALL)
    job.train(*SMALL, "trainer.max_steps=6", "pipeline.threads=2")
    assert "Changed since" not in caplog.text
    job.train(*SMALL, "trainer.max_steps=8", "seed=3", "optimizer=sgd")
    assert "seed 0 -> 3" in caplog.text
    assert "optimizer.name rmsprop -> sgd" in caplog.text
    assert "the images come in another order" in caplog.text
    assert "The optimizer is not the one of the checkpoint" in caplog.text
    (run,) = job.runs()
    assert run.data.tags["resume.2.seed"] == "3"


def test_other_settings_from_an_earlier_checkpoint_on_make_a_new_run_in_the_store(job):
    """Else the store would hold the old branch's metrics for the new one's steps."""
    job.train(*SMALL, "trainer.save_every_steps=2", "trainer.eval_every_steps=2")
    for part in (job.run_dir / "checkpoints").glob("model.ckpt-4*"):
        part.unlink()
    job.train(*SMALL, "trainer.save_every_steps=2", "trainer.eval_every_steps=2", "learning_rate.initial=0.0001")
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
    assert [row.step for row in read_metrics(job.run_dir / "metrics.jsonl")] == [1, 2, 3, 4, 5, 5]


def test_an_evaluation_that_fails_loses_no_step(job, photos):
    photos(12, replace={4: b"hello"})
    train_list = [line for line in (job.folder / "train.txt").read_text().splitlines() if "/4.jpg" not in line]
    (job.folder / "eval.txt").write_text("images/4.jpg 1\n")
    (job.folder / "train.txt").write_text("\n".join(train_list))
    with pytest.raises(UserError, match=r"eval\.txt:1: '.*/4\.jpg'"):
        job.train(*LISTED, "dataset.eval_list=eval.txt", "trainer.eval_every_steps=3", "trainer.max_steps=8")
    assert (job.run_dir / "checkpoints" / "model.ckpt-3.index").is_file()
    assert job.runs()[0].info.status == "FAILED"


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


def test_two_runs_cannot_share_a_folder(job):
    job.run_dir.mkdir()
    with exclusive(job.run_dir), pytest.raises(UserError, match=r"run_dir=.*run: another run is writing there now"):
        job.train(*SMALL)


def processes(job, *overrides):
    job.prepare_store()
    arguments = [f"run_dir={job.run_dir}", f"tracking.uri={job.uri}", f"dataset.cache_dir={job._cache_dir}", *overrides]
    return subprocess.Popen(
        [sys.executable, "-m", "slimexp", *arguments],
        cwd=job.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_step(process, step):
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            return
    raise AssertionError("the run ended before")


ENDLESS = ["trainer.max_steps=100000", "trainer.save_every_steps=20", "trainer.log_every_steps=5"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGINT, 130, id="SIGINT", marks=pytest.mark.slow),
    ],
)
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


LISTED = ["dataset=listfile", "dataset.train_list=train.txt", "dataset.num_classes=3", *SMALL]


@pytest.mark.parametrize(
    ("replace", "line", "message"),
    [
        ({4: b""}, None, r"train\.txt:5: '.*/images/4\.jpg': .*(empty|0 bytes)"),
        ({4: None}, None, r"train\.txt:5: '.*/images/4\.jpg': .*(no such file|does not exist|missing)"),
        ({4: "half", 7: "half"}, None, r"(?s)train\.txt:5: '.*/4\.jpg': .*train\.txt:8: '.*/7\.jpg': "),
        ({4: b"hello"}, None, r"train\.txt:5: '.*/images/4\.jpg': .*"),
        ({}, "images/1.jpg 3\n", r"train\.txt:13: .*3.*0\.\.2"),
        ({}, "images/1.jpg\n", r"train\.txt:13: .*images/1\.jpg"),
        ({}, "my cat.jpg 1\n", r"train\.txt:13: .*my cat\.jpg"),
    ],
    ids=["zero-byte", "missing", "truncated", "text", "label out of range", "no label", "ambiguous"],
)
def test_faults_of_the_data_are_named_and_the_run_is_failed(job, photos, replace, line, message):
    train_list = photos()
    halves = {n: train_list.with_name("images").joinpath(f"{n}.jpg").read_bytes()[:-200] for n in replace}
    photos(replace={n: halves[n] if content == "half" else content for n, content in replace.items()})
    if line:
        with open(train_list, "a") as file:
            file.write(line)
    with pytest.raises(UserError, match=message):
        job.train(*LISTED, "pipeline.shuffle=false")
    (run,) = job.runs()
    assert run.info.status == "FAILED"
    assert "train.txt:" in run.data.tags["status.message"]


def test_an_empty_list_is_named(job, tmp_path):
    (tmp_path / "train.txt").write_text("# nothing\n")
    with pytest.raises(UserError, match=r"train\.txt.*no (image|example)"):
        job.train(*LISTED)
    assert job.runs()[0].info.status == "FAILED"


def test_fewer_images_than_a_batch_are_refused(job, photos):
    photos(5)
    with pytest.raises(UserError, match=r"pipeline\.batch_size=8 is more than the 5 training examples"):
        job.train(*LISTED)
    assert job.runs()[0].info.status == "FAILED"


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_ends_in_one_message_and_a_failed_run(job):
    (job.folder / "file").touch()
    job.run_dir = job.folder / "file" / "run"
    process = processes(job)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"slimexp: error: run_dir={job.run_dir}: cannot be written" in said
    assert "Traceback" not in said
    (run,) = job.runs()
    assert run.info.status == "FAILED"
    assert "cannot be written" in run.data.tags["status.message"]


def test_a_loss_that_is_no_number_names_step_rate_and_files(job):
    with pytest.raises(
        UserError,
        match=r"(?s)step \d+: the loss or the gradient is no number: loss .*learning_rate 1e\+06.*train\.txt:\d+: '",
    ):
        job.train("learning_rate.initial=1e6", "trainer.max_steps=50")
    assert job.runs()[0].info.status == "FAILED"


def test_multi_label_data_with_unknown_labels(job, photos):
    photos(12, "all.txt")
    lines = [f"images/{n}.jpg -1:* 1:{n % 3} 0:{(n + 1) % 3}\n" for n in range(12)]
    (job.folder / "train.txt").write_text("".join(lines))
    (job.folder / "eval.txt").write_text("".join(lines[:7]))
    job.train(*LISTED, "dataset.task=multi", "dataset.eval_list=eval.txt", "dataset.class_names=[cat,dog,tree]")
    (run,) = job.runs()
    assert run.data.metrics["eval/counted_entries"] == 14
    assert 0 <= run.data.metrics["eval/mean_average_precision"] <= 1
    assert (job.run_dir / "figures" / "per_label.png").is_file()
    assert "cat" in (job.run_dir / "per_class.csv").read_text()
    with pytest.raises(UserError, match=r"loss\.name=softmax: dataset listfile has multi-label examples"):
        job.train(*LISTED, "dataset.task=multi", "loss=softmax", f"run_dir={job.folder}/other")


def test_a_folder_of_photos_needs_no_code(job, photos):
    photos(12)
    for number in range(12):
        folder = job.folder / "étiquettes 中文" / f"class {number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "images" / f"{number}.jpg").rename(folder / f"{number}.jpg")
    job.train(
        "dataset=image_folder", "dataset.root='étiquettes 中文'", "dataset.eval_fraction=0.25", *TINY,
        "pipeline.batch_size=4", "model=cifarnet",
    )  # fmt: skip
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    assert "étiquettes 中文/class 0/" in (job.run_dir / "predictions.csv").read_text()


def test_without_held_out_examples_nothing_is_evaluated(job, photos, caplog):
    photos(12)
    job.train(*LISTED, "tracking=none")
    assert "has no held-out examples" in caplog.text
    assert not (job.run_dir / "predictions.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "scope", "size"), [("vgg16", "vgg_16/conv1/conv1_1", 32), ("inception", "InceptionV3/AuxLogits", 75)]
)
def test_the_large_networks_train_on_digits(job, caplog, model, scope, size):
    caplog.set_level("INFO")
    job.train(f"model={model}", *TINY, "trainer.max_steps=2", "pipeline.threads=8", "evaluation.batch_size=64")
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    assert run.data.params["pipeline.threads"] == "8"
    assert f"images of {size} x {size}" in caplog.text
    names = tf.train.load_checkpoint(str(job.run_dir / "checkpoints")).get_variable_to_shape_map()
    assert any(name.startswith(scope) for name in names)
    if model == "inception":
        assert "the moving averages of batch norm are still" in caplog.text


def own_network(images, num_classes, is_training, width=4):
    with tf.compat.v1.variable_scope("own", values=[images]):
        net = slim.flatten(slim.conv2d(images, width, [3, 3], scope="conv"))
        return slim.fully_connected(net, num_classes, activation_fn=None, scope="logits"), {}


class OwnPreprocessing:
    """Brightness only, with the two methods that the pipeline asks for."""

    def __init__(self, size_px, *, is_training, gain):
        self.size_px = size_px
        self.gain = gain

    def window(self, height, width, seed):
        return tf.stack([0, 0, height, width])

    def finish(self, image, seed):
        return tf.image.resize(image, [self.size_px, self.size_px]) * self.gain


def test_own_network_and_preprocessing_by_their_names(job, caplog):
    config = job.config(
        "model.network._target_=tests.jobs.test_train.own_network",
        "+model.network.width=3",
        "model.image_size=16",
        *TINY,
    )
    config.preprocessing = {"_target_": "tests.jobs.test_train.OwnPreprocessing", "name": "own", "gain": 0.01}
    job.run_dir.mkdir()
    train.run(config)
    shapes = tf.train.load_checkpoint(str(job.run_dir / "checkpoints")).get_variable_to_shape_map()
    assert shapes["own/conv/weights"] == [3, 3, 3, 3]
    assert "preprocessing=own: lenet was designed for preprocessing=lenet" in caplog.text


@pytest.mark.slow
def test_two_clones_share_the_batch_and_make_the_run_of_one(job, caplog):
    """The net has neither batch norm nor dropout, which would see half a batch each."""
    caplog.set_level("INFO")
    model = ["model.network._target_=tests.jobs.test_train.own_network", "model.image_size=16", "tracking=none"]
    for number in (1, 2):
        job.train(*SMALL, *model, f"trainer.num_clones={number}", f"run_dir={job.folder}/{number}")
    assert "Batches: 8 images = 8 x 1 replica on the CPU" in caplog.text
    assert "Batches: 8 images = 4 x 2 replicas on the CPU" in caplog.text
    rows = [
        [row.metrics for row in read_metrics(job.folder / number / "metrics.jsonl") if "train/loss" in row.metrics]
        for number in ("1", "2")
    ]
    for name in ("train/loss", "train/learning_rate", "train/gradient_norm"):
        one, two = ([metrics[name] for metrics in of_run] for of_run in rows)
        assert two == pytest.approx(one, rel=1e-4)


class Halving(Schedule):
    """Half the rate every step."""

    def rate(self, global_step):
        return self.initial * 0.5 ** tf.cast(global_step, tf.float32)


def test_an_own_schedule_is_a_schedule(job):
    config = job.config(*SMALL)
    config.learning_rate = {"_target_": "tests.jobs.test_train.Halving", "name": "own", "initial": 0.5}
    job.run_dir.mkdir()
    train.run(config)
    assert job.history("train/learning_rate") == [(1, 0.5), (2, 0.25), (3, 0.125), (4, 0.0625)]
    config.learning_rate = {"_target_": "tests.jobs.test_train.Counter", "name": "own"}
    config.run_dir = str(job.folder)
    with pytest.raises(UserError, match=r"learning_rate\._target_: made a Counter; it must be a subclass of"):
        train.run(config)


class Counter:
    """No schedule."""

    def __init__(self, steps_per_epoch, total_steps):
        pass


def test_class_weights_fit_the_classes(job):
    with pytest.raises(UserError, match=r"loss\.class_weights=\[1\.0, 2\.0\]: 2 weights for 10 classes"):
        job.train(*SMALL, "loss.class_weights=[1.0,2.0]")
    job.train(*SMALL, "loss.class_weights=balanced", f"run_dir={job.folder}/balanced")


def test_epochs_count_with_the_batch(job):
    assert (
        train.count_steps(job.config("trainer.epochs=2", "trainer.max_steps=null"), 100) == 7
    )  # 200 / 32, rounded up.
    assert train.count_steps(job.config("trainer.epochs=2", "trainer.max_steps=3"), 100) == 3


def test_a_signal_before_the_first_step_ends_the_run_as_killed(job, monkeypatch):
    def interrupted(config):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(build, "dataset", interrupted)
    with pytest.raises(Interrupted):
        job.train(*SMALL)
    assert job.runs()[0].info.status == "KILLED"


@pytest.mark.slow
def test_metrics_do_not_depend_on_the_thread_counts(job, tmp_path):
    job.train(*SMALL, "pipeline.threads=1", "pipeline.readers=1", f"run_dir={tmp_path}/one", "tracking=none")
    job.train(*SMALL, "pipeline.threads=8", "pipeline.readers=8", f"run_dir={tmp_path}/eight", "tracking=none")
    assert checkpoint_bytes(tmp_path / "one", 4) == checkpoint_bytes(tmp_path / "eight", 4)
    one, eight = (
        [
            row.metrics["train/loss"]
            for row in read_metrics(tmp_path / name / "metrics.jsonl")
            if "train/loss" in row.metrics
        ]
        for name in ("one", "eight")
    )
    assert one == eight
    assert np.isfinite(one).all()
