"""The job `train` as a whole: what it leaves behind, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.errors import UserError
from slimexp.jobs import train
from slimexp.jobs.lock import exclusive
from slimexp.tracking import read_metrics
from slimexp.training.schedules import Schedule
from tests.jobs.conftest import TINY
from tests.jobs.processes import SMALL, checkpoint_bytes, processes


def test_a_run_leaves_everything_behind(job, drawn_figures, capsys):
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
    assert (artifacts / "labels.txt").read_text().startswith("0:0\n1:1\n")

    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(job.run_dir / "checkpoints")))
    shapes = reader.get_variable_to_shape_map()
    assert {"LeNet/conv1/weights", "LeNet/conv1/weights/RMSProp", "LeNet/conv1/weights/RMSProp_1"} <= set(shapes)
    assert reader.get_tensor("global_step") == 30

    said = capsys.readouterr().out
    assert "Evaluated 359 of 359 at step 30" in said
    assert str(job.run_dir) in said
    assert f"mlflow ui --backend-store-uri {job.uri}" in said


def test_an_evaluation_that_fails_loses_no_step(job, photos):
    photos(12, replace={4: b"hello"})
    train_list = [line for line in (job.folder / "train.txt").read_text().splitlines() if "/4.jpg" not in line]
    (job.folder / "eval.txt").write_text("images/4.jpg 1\n")
    (job.folder / "train.txt").write_text("\n".join(train_list))
    with pytest.raises(UserError, match=r"eval\.txt:1: '.*/4\.jpg'"):
        job.train(*LISTED, "dataset.eval_list=eval.txt", "trainer.eval_every_steps=3", "trainer.max_steps=8")
    assert (job.run_dir / "checkpoints" / "model.ckpt-3.index").is_file()
    assert job.runs()[0].info.status == "FAILED"


def test_two_runs_cannot_share_a_folder(job):
    job.run_dir.mkdir()
    with exclusive(job.run_dir), pytest.raises(UserError, match=r"run_dir=.*run: another run is writing there now"):
        job.train(*SMALL)


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


def test_multi_label_data_with_unknown_labels(job, drawn_figures, photos):
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
        "dataset=image_folder", "dataset.root='étiquettes 中文'", "dataset.eval_fraction=0.25", *SMALL,
        "pipeline.batch_size=4", "model=cifarnet", "loss.class_weights=balanced",
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


class Halving(Schedule):
    """Half the rate every step."""

    def rate(self, global_step):
        return self.initial * 0.5 ** tf.cast(global_step, tf.float32)


class Counter:
    """No schedule."""

    def __init__(self, steps_per_epoch, total_steps):
        pass


def test_own_network_preprocessing_and_schedule_by_their_names(job, caplog):
    config = job.config(
        "model.network._target_=tests.jobs.test_train.own_network",
        "+model.network.width=3",
        "model.image_size=16",
        "evaluation.batch_size=120",
        *TINY,
    )
    config.preprocessing = {"_target_": "tests.jobs.test_train.OwnPreprocessing", "name": "own", "gain": 0.01}
    config.learning_rate = {"_target_": "tests.jobs.test_train.Halving", "name": "own", "initial": 0.5}
    job.run_dir.mkdir()
    train.run(config)
    shapes = tf.train.load_checkpoint(str(job.run_dir / "checkpoints")).get_variable_to_shape_map()
    assert shapes["own/conv/weights"] == [3, 3, 3, 3]
    assert "preprocessing=own: lenet was designed for preprocessing=lenet" in caplog.text
    assert job.history("train/learning_rate") == [(1, 0.5), (2, 0.25), (3, 0.125), (4, 0.0625)]
    config.learning_rate = {"_target_": "tests.jobs.test_train.Counter", "name": "own"}
    config.run_dir = str(job.folder)
    with pytest.raises(UserError, match=r"learning_rate\._target_: made a Counter; it must be a subclass of"):
        train.run(config)


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


def test_class_weights_fit_the_classes(job):
    with pytest.raises(UserError, match=r"loss\.class_weights=\[1\.0, 2\.0\]: 2 weights for 10 classes"):
        job.train(*SMALL, "loss.class_weights=[1.0,2.0]")


def test_epochs_count_with_the_batch(job):
    assert (
        train.count_steps(job.config("trainer.epochs=2", "trainer.max_steps=null"), 100) == 7
    )  # 200 / 32, rounded up.
    assert train.count_steps(job.config("trainer.epochs=2", "trainer.max_steps=3"), 100) == 3


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
