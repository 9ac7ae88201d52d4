"""The README's path: a folder of photos, a network fine-tuned on it, evaluated, exported, asked about new photos."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from PIL import Image
from tensorflow.python.framework import config as tf_config

from slimexp import nets
from slimexp.config import CONFIG_DIR, Config
from slimexp.export.scoring import SavedModelScorer
from slimexp.jobs.of_run import take_over
from slimexp.sweep.plan import without_hydra
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import Classifier
from slimexp.validation import validate

CLASSES = {"beach": (220, 200, 120), "forest": (40, 120, 50), "night": (20, 20, 60)}
# The README's commands; there the network is Inception v3 and the checkpoint its published one.
DATA = "dataset=image_folder dataset.root=photos"
CHECK = f"job=check_data {DATA}"
PATH = (
    f"{DATA} model=lenet restore=finetune restore.checkpoint=lenet.ckpt run_dir=runs/photos",
    "job=evaluate run_dir=runs/photos",
    "job=export run_dir=runs/photos",
    "job=predict run_dir=runs/photos predict.input=new/forest.jpg",
    "job=predict predict.model=runs/photos/export predict.input=new predict.output=new.csv",
)
# To be quick: the README leaves these at their defaults.
QUICK = "trainer.max_steps=12 pipeline.batch_size=12 learning_rate.initial=0.001 tracking=none"


@pytest.fixture
def folder(tmp_path):
    """A folder with photos, new ones, and a checkpoint for twelve classes."""
    random = np.random.RandomState(0)

    def photo(path, color):
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(random.normal(color, 30, [6, 8, 3]), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).resize((40, 32)).save(path, quality=90)

    for name, color in CLASSES.items():
        for number in range(8):
            photo(tmp_path / "photos" / name / f"{number}.jpg", color)
        photo(tmp_path / "new" / f"{name}.jpg", color)
    classifier = Classifier(nets.lenet, num_classes=12, image_size=28)
    classifier.build()
    Checkpoints(tmp_path).save(0, {name: value.numpy() for name, value in classifier.store.variables.items()})
    for path in tmp_path.glob("model.ckpt-0.*"):
        path.rename(path.with_name(path.name.replace("model.ckpt-0", "lenet.ckpt")))
    return tmp_path


def assert_told_apart(folder: Path) -> None:
    with open(folder / "new.csv", newline="") as file:
        found = {Path(row["path"]).stem: row["class_1"] for row in csv.DictReader(file)}
    assert found == {name: name for name in CLASSES}


def assert_same_scores(run: Path) -> None:
    """Checks that the held-out photos have the scores of the training's own evaluation by their bytes, too."""
    with open(run / "predictions.csv", newline="") as file:
        found = list(csv.DictReader(file))
    names = (run / "export" / "labels.txt").read_text().split()
    answers = SavedModelScorer(run / "export" / "saved_model").of_bytes(
        [Path(row["path"]).read_bytes() for row in found]
    )
    for row, scores in zip(found, answers, strict=True):
        evaluated = {row[f"class_{k}"]: float(row[f"score_{k}"]) for k in range(1, len(names) + 1)}
        np.testing.assert_allclose([evaluated[name] for name in names], scores, atol=1e-4)


def test_six_commands_lead_from_photos_to_answers(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    ConfigStore.instance().store(name="schema", node=Config)
    for command in PATH:
        overrides = [*command.split(), *("tracking=none" if "job=" in command else QUICK).split()]
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            composed = compose("config", overrides, return_hydra_config=True)
        take_over(composed, start_dir=folder)
        config = validate(without_hydra(composed), start_dir=folder)
        Path(config.run_dir).mkdir(parents=True, exist_ok=True)
        module, _, name = config.job._target_.rpartition(".")
        getattr(importlib.import_module(module), name)(config, overrides)
    tf_config.disable_op_determinism()
    said = capsys.readouterr().out
    assert "Evaluated 4 of 4" in said
    assert f"predict.model={folder / 'runs' / 'photos' / 'export'}" in said
    assert "\nforest.jpg  forest" in said
    assert_told_apart(folder)
    assert_same_scores(folder / "runs" / "photos")


@pytest.mark.slow
def test_the_same_as_commands(folder):
    said = []
    for command in (CHECK, *PATH):
        arguments = [*command.split(), *(QUICK.split() if "job=" not in command else ["tracking=none"])]
        done = subprocess.run(
            [sys.executable, "-m", "slimexp", *arguments], cwd=folder, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        said.append(done.stdout)
    assert "\nforest.jpg  forest" in f"\n{said[4]}"
    assert_told_apart(folder)
