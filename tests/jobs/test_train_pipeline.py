"""Training with the pipeline's options: smaller copies, bad images, decoders."""

from __future__ import annotations

import csv
import logging
import time
from pathlib import Path

import numpy as np
import pytest

from slimexp.errors import UserError
from slimexp.pipeline import engines
from slimexp.pipeline.native import ops
from tests.jobs.conftest import TINY


def test_smaller_copies_give_the_same_losses_cold_and_warm(job, tmp_path, caplog):
    copies = tmp_path / "copies"
    shrunk = [*TINY, "pipeline.cache=shrunk", "pipeline.cache_short_side=20", f"pipeline.cache_dir={copies}"]
    losses = []
    caplog.set_level(logging.INFO)
    for number in range(2):
        caplog.clear()
        job.train(*shrunk, f"run_dir={tmp_path}/run{number}", f"tracking.experiment=e{number}", "pipeline.readers=3")
        losses.append([run.data.metrics["train/loss"] for run in job.runs()][-1])
        assert "Smaller copies of photos (short side 20)" in caplog.text
    assert losses[0] == losses[1]
    assert len(list(copies.rglob("*.jpg"))) > 30


def test_bad_images_are_skipped_listed_and_counted(job, photos, capsys):
    train_list = photos(24, replace={3: b"", 5: b"no picture", 8: b"\xff\xd8\xff\xe0 cut"})
    common = ["dataset=listfile", f"dataset.train_list={train_list}", f"dataset.eval_list={train_list}"]
    common += ["dataset.num_classes=3", "dataset.on_bad_image=skip", *TINY, "trainer.max_steps=6"]
    job.train(*common, "dataset.max_bad_fraction=0.2")
    with open(job.run_dir / "skipped_images.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {Path(row["path"]).name for row in rows} == {"3.jpg", "5.jpg", "8.jpg"}
    assert {row["origin"].rpartition(":")[2] for row in rows} == {"4", "6", "9"}
    assert "empty (0 bytes)" in "".join(row["reason"] for row in rows)
    (run,) = job.runs()
    assert run.data.metrics["pipeline/skipped_images"] == 3
    assert "Evaluated 21 of 24 (3 skipped)" in capsys.readouterr().out

    with pytest.raises(UserError, match=r"dataset\.max_bad_fraction"):
        job.train(*common, "dataset.max_bad_fraction=0.05", f"run_dir={job.folder}/other")


def test_bad_images_end_the_run_unless_told_otherwise(job, photos):
    train_list = photos(24, replace={5: b"no picture"})
    common = ["dataset=listfile", f"dataset.train_list={train_list}", "dataset.num_classes=3", *TINY]
    with pytest.raises(UserError, match=r"(?s)train\.txt:6: .*5\.jpg.*dataset\.on_bad_image=skip"):
        job.train(*common)
    (run,) = job.runs()
    assert run.info.status == "FAILED"


@pytest.mark.skipif(not ops.available(), reason="the native op has not been built (scripts/build_ops)")
def test_the_decoder_that_ran_is_recorded(job, caplog):
    caplog.set_level(logging.INFO)
    engines._say_once.cache_clear()
    job.train(*TINY, "trainer.max_steps=1", "preprocessing=vgg", "model.image_size=28")
    job.train(*TINY, "trainer.max_steps=1", f"run_dir={job.folder}/other")  # lenet's preprocessing
    assert [run.data.tags["pipeline.decoder"] for run in job.runs()] == ["native", "tensorflow"]
    assert "pipeline.decoder=auto: TensorFlow's ops, as" in caplog.text


def slow(image: np.ndarray) -> np.ndarray:
    time.sleep(0.03)
    return image


@pytest.mark.slow
def test_the_evaluation_at_the_end_does_not_count_for_the_verdict(job, capsys):
    steps = "preprocessing.steps=[{numpy: tests.jobs.test_train_pipeline.slow, when: training}]"
    job.train(*TINY, "trainer.max_steps=20", steps, "pipeline.threads=1")
    (run,) = job.runs()
    assert run.data.tags["bottleneck"] == "preprocessing"
    assert "Preprocessing holds this run back" in capsys.readouterr().out
