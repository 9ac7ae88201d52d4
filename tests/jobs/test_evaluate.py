"""The job `evaluate`: a run's weights, moving averages and all, on every image once; and anyone else's."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import mlflow
import numpy as np
import pytest
import tensorflow as tf
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from PIL import Image

from slimexp import slim
from slimexp.config import CONFIG_DIR, Config
from slimexp.errors import UserError
from slimexp.jobs import evaluate
from slimexp.jobs.of_run import take_over
from slimexp.tracking import read_metrics
from slimexp.validation import validate
from tests.jobs.conftest import Job
from tests.jobs.tiny import MODEL, tiny

NAMES = ["ant", "bee", "cat"]
AVERAGE = "/ExponentialMovingAverage"


LISTED = ["dataset=listfile", "dataset.train_list=train.txt", "dataset.eval_list=eval.txt", "dataset.num_classes=3"]
STEPS = ["pipeline.batch_size=8", "trainer.log_every_steps=2", "learning_rate=fixed", "learning_rate.initial=0.01"]


def write_photos(folder: Path, counts: dict[str, int]) -> None:
    """Writes lists of photos whose colour tells the class, more or less, and the same lists with three labels."""
    random = np.random.RandomState(0)
    (folder / "images").mkdir()
    for name, count in counts.items():
        lines, labels = [], []
        for number in range(count):
            pixels = random.randint(0, 160, [6, 8, 3])
            pixels[..., number % 3] += 70
            Image.fromarray(pixels.astype(np.uint8)).resize((20, 16)).save(folder / "images" / f"{name}{number}.jpg")
            lines.append(f"images/{name}{number}.jpg {number % 3}\n")
            labels.append(f"images/{name}{number}.jpg -1:* 1:{number % 3} 0:{(number + number // 3) % 3}\n")
        labels[0] = f"images/{name}0.jpg 0:*\n"
        (folder / f"{name}.txt").write_text("".join(lines))
        (folder / f"{name}_labels.txt").write_text("".join(labels))


def evaluated(job: Job, *overrides: str) -> Path:
    """Runs the job as the command line does, and returns its folder."""
    ConfigStore.instance().store(name="schema", node=Config)
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        fixed = ["job=evaluate", f"tracking.uri={job.uri}", f"output_root={job.folder}/outputs"]
        composed = compose("config", [*fixed, *overrides], return_hydra_config=True)
    take_over(composed, start_dir=job.folder)
    kept = [str(key) for key in composed if key != "hydra"]
    config = validate(OmegaConf.masked_copy(composed, kept), start_dir=job.folder)
    evaluate.run(config, list(overrides))
    return Path(config.run_dir)


def evaluations(folder: Path) -> dict[int, dict[str, float]]:
    """Returns the metrics of a folder's evaluations by step."""
    return {
        row.step: {name: value for name, value in row.metrics.items() if name.startswith("eval/")}
        for row in read_metrics(folder / "metrics.jsonl")
        if "eval/loss" in row.metrics
    }


def last_of(folder: Path) -> tuple[int, dict[str, float]]:
    return list(evaluations(folder).items())[-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Job:
    """A run of 8 steps with moving averages, on 24 photos, evaluated on 33."""
    folder = tmp_path_factory.mktemp("trained")
    write_photos(folder, {"train": 24, "eval": 33})
    job = Job(folder, folder, empty_store)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        job.train(
            *LISTED, *STEPS, *MODEL, f"dataset.class_names=[{','.join(NAMES)}]", "trainer.max_steps=8",
            "trainer.save_every_steps=4", "trainer.eval_every_steps=4", "trainer.moving_average_decay=0.9",
            "trainer.keep_best=loss",
        )  # fmt: skip
    return job


@pytest.fixture(autouse=True)
def _there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "trained" in request.fixturenames:
        monkeypatch.chdir(request.getfixturevalue("trained").folder)


def test_it_gives_the_numbers_of_training_with_all_that_belongs_to_them(trained, capsys):
    folder = evaluated(trained, f"run_dir={trained.run_dir}")
    assert folder == trained.run_dir / "evaluate"
    assert last_of(folder) == last_of(trained.run_dir)
    said = capsys.readouterr().out
    assert "Evaluated 33 of 33 at step 8: eval/loss" in said
    assert "class  precision  recall" in said
    with open(folder / "predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [f"{trained.folder}/images/eval{n}.jpg" for n in range(33)]
    assert {row["truth"] for row in rows} == set(NAMES)
    assert float(rows[0]["score_1"]) >= float(rows[0]["score_2"]) >= float(rows[0]["score_3"])
    with open(folder / "per_class.csv", newline="") as file:
        assert [(row["class"], row["support"]) for row in csv.DictReader(file)] == [(name, "11") for name in NAMES]

    train_run, run = [r for r in trained.runs() if r.info.run_name.startswith(("tests", "lenet", "evaluate"))][:2]
    assert run.info.status == "FINISHED"
    assert run.data.tags["source.run_id"] == train_run.info.run_id
    assert run.data.tags["source.run_dir"] == str(trained.run_dir)
    assert run.data.tags["source.checkpoint"] == f"{trained.run_dir}/checkpoints/model.ckpt-8"
    assert run.data.tags["source.weights"] == "averages"
    history = mlflow.MlflowClient(trained.uri).get_metric_history(run.info.run_id, "eval/top1")
    assert [point.step for point in history] == [8]
    artifacts = {path.name for path in Path(run.info.artifact_uri).rglob("*")}
    assert {"predictions.csv", "per_class.csv", "confusion_matrix.png"} <= artifacts


@pytest.mark.parametrize(
    "batch", [pytest.param(1, marks=pytest.mark.slow), 7, pytest.param(16, marks=pytest.mark.slow), 64]
)
def test_33_images_count_once_whatever_the_batch(trained, batch, capsys):
    folder = evaluated(trained, f"run_dir={trained.run_dir}", f"evaluation.batch_size={batch}", "tracking=none")
    assert "Evaluated 33 of 33" in capsys.readouterr().out
    step, numbers = last_of(trained.run_dir)
    assert last_of(folder)[0] == step
    assert last_of(folder)[1] == pytest.approx(numbers, abs=1e-6)
    assert last_of(folder)[1]["eval/examples"] == 33


def test_other_checkpoints_weights_and_examples(trained, capsys):
    best = evaluated(trained, "evaluation.checkpoint=run/best", "tracking=none", "run_dir=best")
    rows = evaluations(trained.run_dir)
    step = min(rows, key=lambda step: rows[step]["eval/loss"])
    assert last_of(best) == (step, rows[step])
    first = evaluated(trained, "evaluation.checkpoint=run/checkpoints/model.ckpt-4", "tracking=none", "run_dir=first")
    assert last_of(first) == (4, rows[4])
    last = evaluated(
        trained, "evaluation.checkpoint=run", "evaluation.use_averages=false", "tracking=none", "run_dir=last"
    )
    assert last_of(last)[1]["eval/loss"] != rows[8]["eval/loss"]
    capsys.readouterr()
    evaluated(trained, "evaluation.checkpoint=run", "evaluation.split=train", "tracking=none", "run_dir=learned")
    assert "Evaluated 24 of 24 training examples at step 8" in capsys.readouterr().out


def test_a_run_that_has_ended_is_followed_to_its_last_checkpoint(trained, caplog):
    caplog.set_level(logging.INFO)
    folder = evaluated(trained, f"run_dir={trained.run_dir}", "evaluation.follow=true", "tracking=none")
    ours = evaluations(folder)
    assert ours == evaluations(trained.run_dir)
    assert list(ours) == [4, 8]
    assert (folder / "figures" / "learning_curves.png").is_file()


def test_averages_that_are_not_there(trained, tmp_path):
    reader = tf.train.load_checkpoint(str(trained.run_dir / "checkpoints"))
    names = [name for name in reader.get_variable_to_shape_map() if AVERAGE not in name and "RMS" not in name]
    tf.raw_ops.SaveV2(
        prefix=f"{tmp_path}/plain", tensor_names=names, shape_and_slices=[""] * len(names),
        tensors=[reader.get_tensor(name) for name in names],
    )  # fmt: skip
    plain = [*LISTED, *MODEL, f"evaluation.checkpoint={tmp_path}/plain", f"run_dir={tmp_path}/run", "tracking=none"]
    with pytest.raises(UserError, match=r"evaluation\.use_averages=true: .*plain has no moving averages"):
        evaluated(trained, *plain, "evaluation.use_averages=true")
    assert last_of(evaluated(trained, *plain))[0] == 8
    with pytest.raises(UserError, match=r"evaluation\.follow=true evaluation\.checkpoint=.*plain: is one checkpoint"):
        evaluated(trained, *plain, "evaluation.follow=true")
    with pytest.raises(
        UserError, match=r"(?s)8 of the 8 variables of lenet cannot come from.*checkpoint of another net"
    ):
        evaluated(trained, *LISTED, *plain[-3:])
    with pytest.raises(UserError, match=r"evaluation\.split=eval: dataset listfile has no held-out examples"):
        evaluated(trained, *plain, "dataset.eval_list=null")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no run has begun in .*/empty within 0\.1 s \(evaluation\.timeout_secs\)"):
        evaluated(
            trained, *plain, f"evaluation.checkpoint={tmp_path}/empty", "evaluation.follow=true",
            "evaluation.timeout_secs=0.1",
        )  # fmt: skip


def test_tf_slims_evaluation_reads_our_averages_and_we_read_its_checkpoints(trained, tmp_path):
    """As its eval_image_classifier.py with --moving_average_decay: the averages of all model variables."""
    prefix = str(trained.run_dir / "checkpoints" / "model.ckpt-8")
    ours = tf.train.load_checkpoint(prefix)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = slim.create_global_step()
        tiny(tf.zeros([1, 12, 12, 3]), 3, is_training=False)
        averages = tf.compat.v1.train.ExponentialMovingAverage(0.9, step)
        wanted = averages.variables_to_restore(slim.get_model_variables())
        wanted[step.op.name] = step
        tf.compat.v1.train.Saver(wanted).restore(session, prefix)
        for variable in slim.get_model_variables():
            expected = ours.get_tensor(variable.op.name + AVERAGE)
            np.testing.assert_array_equal(session.run(variable), expected)
        theirs = tf.compat.v1.train.Saver(slim.get_model_variables()).save(
            session, str(tmp_path / "model.ckpt"), global_step=8, write_meta_graph=False
        )
    named = [*LISTED, *MODEL, f"evaluation.checkpoint={theirs}", f"run_dir={tmp_path}/run", "tracking=none"]
    assert last_of(evaluated(trained, *named)) == last_of(trained.run_dir)


def test_multi_label_with_unknown_labels(trained, tmp_path, empty_store, capsys):
    """One photo has nothing but unknown labels; every other has one."""
    lists = ["dataset.train_list=train_labels.txt", "dataset.eval_list=eval_labels.txt", "dataset.task=multi"]
    trained_here = Job(tmp_path, tmp_path, empty_store)
    trained_here.folder = trained.folder
    trained_here.train(
        *LISTED,
        *lists,
        *MODEL,
        *STEPS,
        "trainer.max_steps=4",
        "tracking=none",
        "trainer.keep_best=mean_average_precision",
    )
    folder = evaluated(trained, f"run_dir={tmp_path}/run", "evaluation.threshold=0.9", "tracking=none")
    step, numbers = last_of(folder)
    _, theirs = last_of(tmp_path / "run")
    assert step == 4
    assert numbers["eval/counted_entries"] == 32 * 2
    assert numbers["eval/mean_average_precision"] == theirs["eval/mean_average_precision"]
    assert numbers["eval/recall"] < theirs["eval/recall"]  # The threshold is higher.
    assert "average precision" in capsys.readouterr().out
    assert {path.name for path in (folder / "figures").iterdir()} == {"per_label.png", "precision_recall.png"}
    with open(folder / "per_class.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["counted"]) for row in rows) == 64
    assert all(int(row["counted"]) == int(row["positives"]) + int(row["negatives"]) for row in rows)
