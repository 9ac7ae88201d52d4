"""Training keeps the best checkpoint, ends when evaluations get no better, and warns of statistics that stand still."""

from __future__ import annotations

import json
import logging
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
from slimexp.errors import UserError
from slimexp.jobs.notes import unmoved_statistics_note
from slimexp.tracking import read_metrics
from tests.jobs.test_evaluate import LISTED, STEPS, evaluations, write_photos
from tests.jobs.tiny import MODEL

# At this rate no weight changes, and each evaluation is as good as the first.
STILL = [*LISTED, *STEPS, *MODEL, "learning_rate.initial=1e-30", "model.weight_decay=0", "trainer.save_every_steps=2"]
UNTRACKED = "tracking=none"


@pytest.fixture
def photos_here(job):
    write_photos(job.folder, {"train": 24, "eval": 9})
    return job


def files_of(prefix: Path) -> bytes:
    return b"".join(Path(f"{prefix}{part}").read_bytes() for part in (".index", ".data-00000-of-00001"))


def test_a_run_that_gets_no_better_ends_early_and_keeps_its_best(photos_here, caplog, capsys):
    job = photos_here
    frozen = "restore.trainable_scopes=heads"  # Batch norm's statistics would move.
    asked = [
        *STILL, "trainer.eval_every_steps=2", "trainer.max_to_keep=1", "trainer.keep_best=eval/loss",
        "trainer.early_stop_patience=2", "trainer.max_steps=50", frozen,
        "model.network._target_=tests.jobs.test_keeping.headed",
    ]  # fmt: skip
    caplog.set_level(logging.INFO)
    job.train(*asked)
    (run,) = job.runs()
    assert run.info.status == "FINISHED"
    said = "No better eval/loss in 2 evaluations ("
    assert run.data.tags["early_stop"].startswith(said)
    assert caplog.text.count(said) == 1
    assert said not in capsys.readouterr().out  # The log goes to the screen too.
    assert list(evaluations(job.run_dir)) == [2, 4, 6]
    names = {path.name for path in (job.run_dir / "checkpoints").glob("*.index")}
    assert names == {"model.ckpt-6.index"}
    assert json.loads((job.run_dir / "best" / "best.json").read_text())["step"] == 2
    # At that rate the weights of all steps are the same, and the step is what tells the files apart.
    best, last = (tf.train.load_checkpoint(str(job.run_dir / name)) for name in ("best", "checkpoints"))
    assert (best.get_tensor("global_step"), last.get_tensor("global_step")) == (2, 6)
    history = mlflow.MlflowClient(job.uri).get_metric_history(run.info.run_id, "eval/loss")
    assert [point.step for point in history] == [2, 4, 6]

    caplog.clear()
    job.train(*asked)  # It goes on, which comes to nothing and is said.
    assert said in caplog.text
    steps = [row.step for row in read_metrics(job.run_dir / "metrics.jsonl") if "train/loss" in row.metrics]
    assert steps == [1, 2, 4, 6]
    caplog.clear()
    job.train(*asked, "trainer.early_stop_patience=3", "trainer.max_steps=12")
    assert list(evaluations(job.run_dir)) == [2, 4, 6, 8]
    job.train(*asked, "trainer.early_stop_patience=null", "trainer.max_steps=10")
    assert list(evaluations(job.run_dir)) == [2, 4, 6, 8, 10]
    assert json.loads((job.run_dir / "best" / "best.json").read_text())["step"] == 2
    assert len(job.runs()) == 1


def headed(images, num_classes, is_training):
    """`tiny`, with a head that it declares."""
    with tf.compat.v1.variable_scope("headed", values=[images]):
        norm = {"is_training": is_training, "decay": 0.5}
        net = slim.conv2d(images, 4, [3, 3], 2, normalizer_fn=slim.batch_norm, normalizer_params=norm, scope="conv")
        return slim.fully_connected(tf.reduce_mean(net, [1, 2]), num_classes, activation_fn=None, scope="logits"), {}


headed.head_scopes = ("headed/logits",)


def test_the_best_is_the_checkpoint_of_its_step_to_the_bit_and_averages_go_on(photos_here, tmp_path):
    job = photos_here
    asked = [
        *LISTED, *STEPS, *MODEL, UNTRACKED, "trainer.save_every_steps=4", "trainer.eval_every_steps=4",
        "trainer.keep_best=loss", "trainer.moving_average_decay=0.9",
    ]  # fmt: skip
    job.train(*asked, "trainer.max_steps=8", f"run_dir={tmp_path}/whole")
    step = json.loads((tmp_path / "whole" / "best" / "best.json").read_text())["step"]
    name = f"model.ckpt-{step}"
    assert files_of(tmp_path / "whole" / "best" / name) == files_of(tmp_path / "whole" / "checkpoints" / name)
    for steps in (4, 8):
        job.train(*asked, f"trainer.max_steps={steps}", f"run_dir={tmp_path}/halves")
    for place in (f"best/{name}", "checkpoints/model.ckpt-8"):
        assert files_of(tmp_path / "halves" / place) == files_of(tmp_path / "whole" / place)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.keep_best=eval/top7"], r"trainer\.keep_best=eval/top7: .*gives eval/top1, eval/balanced_accuracy"),
        (["trainer.keep_best=accuracy"], r"the nearest is eval/balanced_accuracy"),
        (["trainer.keep_best=eval/top1", "dataset.eval_list=null"], r"has no held-out examples to evaluate on"),
        (["evaluation.use_averages=true"], r"use_averages=true: training keeps no averages with trainer\.moving_aver"),
    ],
    ids=["other k", "unknown", "nothing to evaluate on", "no averages"],
)  # fmt: skip
def test_what_cannot_be_is_refused(photos_here, overrides, message):
    with pytest.raises(UserError, match=message):
        photos_here.train(*STILL, UNTRACKED, "trainer.max_steps=1", *overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            ["trainer.early_stop_patience=3"],
            r"early_stop_patience=3: say what has to improve: trainer\.keep_best=METRIC",
        ),
        (
            ["trainer.early_stop_patience=3", "trainer.keep_best=loss", "trainer.eval_every_steps=0"],
            r"early_stop_patience=3: counts evaluations, but trainer\.eval_every_steps=0 makes none",
        ),
        (["trainer.moving_average_decay=1"], r"trainer\.moving_average_decay=1\.0: must lie in \(0, 1\)"),
        (["evaluation.use_averages=perhaps"], r"evaluation\.use_averages=perhaps: must be auto, true or false"),
        (["trainer.gradient_multipliers=3"], r"trainer\.gradient_multipliers=3: must be \{SCOPE: FACTOR, \.\.\.\}"),
        (
            ["trainer.gradient_multipliers={heads: -1}"],
            r"gradient_multipliers\.heads=-1: must be a number of 0 or more",
        ),
        (["trainer.num_clones=0"], r"trainer\.num_clones=0: must be 1 or more"),
        (["evaluation.threshold=1"], r"evaluation\.threshold=1\.0: must lie in \(0, 1\)"),
        (["evaluation.timeout_secs=0"], r"evaluation\.timeout_secs=0\.0: must be above 0, or null"),
    ],
    ids=[
        *("patience for what", "patience without evaluations", "decay", "use_averages", "multipliers", "multiplier"),
        *("clones", "threshold", "timeout"),
    ],
)
def test_settings_out_of_range(job, override, message):
    with pytest.raises(UserError, match=message):
        job.config(*override)


def never_moving(images, num_classes, is_training):
    """A network that forgets to hand is_training on."""
    return headed(images, num_classes, is_training=False)


def test_statistics_that_stand_still_end_in_a_warning(photos_here, caplog):
    photos_here.train(
        *LISTED, *STEPS, UNTRACKED, "trainer.max_steps=1", "model.image_size=12",
        "model.network._target_=tests.jobs.test_keeping.never_moving",
    )  # fmt: skip
    said = "2 of 2 moving statistics of batch norm did not move in training, first headed/conv/BatchNorm/moving_"
    assert caplog.text.count(said) == 1
    assert unmoved_statistics_note({"a": np.zeros(2)}, {"a": np.array([0.0, 0.1])}) is None


def command(job, *overrides):
    return subprocess.Popen(
        [sys.executable, "-m", "slimexp", f"tracking.uri={job.uri}", *overrides],
        cwd=job.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_that_is_training_is_followed(photos_here):
    job = photos_here
    job.prepare_store()
    # Little is printed, or the pipe that nobody reads would fill.
    steps = ["trainer.max_steps=2000", "trainer.save_every_steps=500", "trainer.log_every_steps=500"]
    training = command(job, *LISTED, *STEPS, *MODEL, *steps, f"run_dir={job.run_dir}", "trainer.eval_every_steps=500")
    while not (job.run_dir / ".hydra" / "resolved.yaml").exists():
        assert training.poll() is None, training.stdout.read()
        time.sleep(0.2)
    following = command(job, "job=evaluate", f"run_dir={job.run_dir}", "evaluation.follow=true")
    said, _ = following.communicate(timeout=200)
    assert following.returncode == 0, said
    training.communicate(timeout=60)
    assert training.returncode == 0
    ours = evaluations(job.run_dir / "evaluate")
    assert list(ours) == [500, 1000, 1500, 2000]
    assert ours == evaluations(job.run_dir)


@pytest.mark.slow
def test_ctrl_c_ends_following_at_once(photos_here):
    job = photos_here
    job.prepare_store()
    steps = ["trainer.max_steps=1000000", "trainer.save_every_steps=100", "trainer.log_every_steps=1000"]
    training = command(job, *LISTED, *STEPS, *MODEL, *steps, f"run_dir={job.run_dir}", "trainer.eval_every_steps=0")
    while not (job.run_dir / "checkpoints" / "checkpoint").exists():
        assert training.poll() is None, training.stdout.read()
        time.sleep(0.2)
    following = command(job, "job=evaluate", f"run_dir={job.run_dir}", "evaluation.follow=true")
    for line in following.stdout:
        if line.startswith("Evaluated 9 of 9"):
            break
    following.send_signal(signal.SIGINT)
    started = time.monotonic()
    said, _ = following.communicate(timeout=60)
    assert following.returncode == 130, said
    assert time.monotonic() - started < 20
    training.send_signal(signal.SIGTERM)
    said, _ = training.communicate(timeout=60)
    assert training.returncode == 143, said
    assert {run.info.status for run in job.runs()} == {"KILLED"}
