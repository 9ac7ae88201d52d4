"""`job=export`: what it leaves is what evaluation says, complete, described, and in its place only when it is."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import re
import shutil
from unittest import mock

import mlflow
import numpy as np
import pandas
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.export import check
from slimexp.export.manifest import Manifest
from slimexp.export.scoring import FrozenScorer, SavedModelScorer, TfliteScorer, load_scorer, probabilities
from slimexp.jobs import build, evaluate, export
from slimexp.jobs.classes import record_classes
from slimexp.jobs.of_run import write_resolved
from tests.jobs.trained import Trained, assert_same, rows, scores


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cache_dir, empty_store):
    """Makes runs with their exports, by task, each once."""

    @functools.cache
    def run(task):
        # Those that are trained are looked at below, and in `tests/test_readme_path.py`.
        trained = Trained(tmp_path_factory.mktemp(task), cache_dir, empty_store, task, is_trained=False)
        trained.export("export.formats=[saved_model,frozen_graph,tflite]")
        return trained

    return run


@pytest.fixture(params=["single", pytest.param("multi", marks=pytest.mark.slow)])
def trained(request, runs):
    return runs(request.param)


@pytest.fixture
def single(runs):
    return runs("single")


def table(trained, values):
    manifest = Manifest.read(trained.run / "export")
    return {
        path.name: dict(zip(manifest.classes, map(float, row), strict=True))
        for path, row in zip(trained.paths, values, strict=False)
    }


def test_a_checkpoint_and_every_part_of_its_export_agree(trained):
    asked = ["predict.top_k=9"]
    images = trained.job.folder / "images"
    evaluated = scores(trained.predict(trained.run, images, *asked))
    assert len(evaluated) == len(trained.paths)
    assert_same(evaluated, scores(trained.predict(trained.run / "export", images, *asked)))
    decodable = {path.name: evaluated[path.name] for path in trained.paths[:-1]}
    contents = [path.read_bytes() for path in trained.paths[:-1]]
    scorer = SavedModelScorer(trained.run / "export" / "saved_model")
    assert_same(decodable, table(trained, scorer.of_bytes(contents)))
    no_scores = (0, len(Manifest.read(trained.run / "export").classes))
    assert scorer.of_bytes([]).shape == scorer.of_images(np.zeros([0, 16, 16, 3], np.float32)).shape == no_scores
    assert_same(decodable, table(trained, [scorer.of_bytes([content])[0] for content in contents]))


def test_frozen_graph_and_tflite_take_ready_images(trained):
    folder = trained.run / "export"
    manifest = Manifest.read(folder)
    images = np.random.RandomState(0).uniform(-120, 120, [5, 16, 16, 3]).astype(np.float32)
    wanted = SavedModelScorer(folder / "saved_model").of_images(images)
    graph = manifest.frozen_graph
    assert graph["inputs"]["images"] == {
        "node": "input",
        "tensor": "input:0",
        "dtype": "float32",
        "shape": [None, 16, 16, 3],
    }
    assert graph["outputs"]["logits"]["node"] == "Small/logits/BiasAdd"
    name = "Small/Predictions/Reshape_1:0" if trained.task == "single" else "scores:0"
    assert graph["outputs"]["scores"]["tensor"] == name
    frozen = FrozenScorer(folder / "frozen_graph.pb", input="input:0", scores=name)
    np.testing.assert_allclose(frozen.of_images(images), wanted, atol=1e-5)
    # What predictions are made of, by either part.
    both = [load_scorer(folder, dataclasses.replace(manifest, **part)) for part in ({}, {"saved_model": None})]
    logits = [scorer.logits(images) for scorer in both]
    np.testing.assert_allclose(*logits, atol=1e-4)
    np.testing.assert_allclose(probabilities(logits[1], trained.task), wanted, atol=1e-5)
    np.testing.assert_allclose(TfliteScorer(folder / "model.tflite").of_images(images), wanted, atol=1e-5)


def test_it_says_all_that_is_needed(trained):
    folder = trained.run / "export"
    manifest = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    names = ["sea", "wood", "night"] if trained.task == "single" else ["sun", "rain", "fog", "snow"]
    assert manifest["classes"] == names
    assert (folder / "labels.txt").read_text() == "".join(f"{name}\n" for name in names)
    assert manifest["task"] == trained.task
    assert manifest["checkpoint"] == {
        "path": str(trained.run / "checkpoints" / "model.ckpt-6"),
        "step": 6,
        "weights": "last",
    }
    assert manifest["preprocessing"]["_target_"].endswith("VggPreprocessing")
    assert manifest["preprocessing"]["means"] == [123.68, 116.78, 103.94]
    assert manifest["decoding"] == {"exif": "apply", "scaled_decode": True}
    check_ = manifest["check"]
    assert (check_["images"], check_["files"], check_["split"]) == (9, 8, "eval of listfile")
    assert {"saved_model images", "saved_model image_bytes", "frozen_graph"} <= check_["max_difference"].keys()
    assert max(check_["max_difference"].values()) < 1e-5
    assert manifest["versions"]["tensorflow"] == tf.__version__
    outputs = manifest["saved_model"]["image_bytes"]["outputs"]
    assert outputs["scores"] == {"dtype": "float32", "shape": [None, len(names)]}
    extra = folder / "saved_model" / "assets.extra"
    assert json.loads((extra / "export.json").read_text(encoding="utf-8")) == manifest
    assert (extra / "labels.txt").read_text() == (folder / "labels.txt").read_text()
    model = tf.saved_model.load(str(folder / "saved_model"))
    answer = model.signatures["images"](images=tf.zeros([1, 16, 16, 3]))
    assert [name.decode() for name in answer["classes"].numpy()] == names


def test_an_earlier_export_stays_until_a_new_one_is_complete(single, monkeypatch):
    place = "export.dir=again"
    folder = single.export("export.formats=[frozen_graph]", place)
    assert not (folder / "saved_model").exists()
    assert len(single.predict(folder, single.paths[0])) == 1
    before = (folder / "export.json").read_text()
    with pytest.raises(UserError, match=r"export.dir=.*: there is an export already \(frozen_graph.pb, labels.txt, ex"):
        single.export(place)
    monkeypatch.setattr(check, "TOLERANCE", -1.0)
    with pytest.raises(UserError, match=r"the export fails its check: frozen_graph gives '.*' scores that differ"):
        single.export("export.formats=[frozen_graph]", "export.overwrite=true", place)
    assert (folder / "export.json").read_text() == before
    assert not list(folder.glob(".export-*"))
    monkeypatch.undo()
    single.export("export.formats=[frozen_graph]", "export.overwrite=true", place, "export.check_images=2")
    assert Manifest.read(folder).check["images"] == 2
    assert not (folder / "run.json").exists()


def test_what_cannot_be_is_said_before_any_work(single):
    with pytest.raises(UserError, match=r"export.checkpoint=.*/none: there is no such checkpoint"):
        single.export("export.checkpoint=none", "export.dir=a")
    with pytest.raises(UserError, match=r"2 of the 7 variables of small_net cannot come from (?s:.*)\[6, 3\] there"):
        single.export("dataset.class_names=[sea,wood,night,sun]", "export.dir=a")
    shutil.move(single.job.folder / "list.txt", single.job.folder / "moved.txt")
    with pytest.raises(UserError, match=r"the classes are those of the dataset .*\n.*An export \(job=export\) carries"):
        single.export("export.dir=a")
    shutil.move(single.job.folder / "moved.txt", single.job.folder / "list.txt")
    with pytest.raises(UserError, match=r"tracking.registered_model=x: what is registered is a logged model; set"):
        single.export("tracking.registered_model=x", "export.dir=a")
    with pytest.raises(UserError, match=r"tracking.log_model=true: logs the SavedModel; add saved_model to"):
        single.export("tracking.log_model=true", "export.formats=[tflite]", "export.dir=a")
    with pytest.raises(UserError, match=r"tracking.log_model=true: with tracking=none there is no run"):
        single.export("tracking.log_model=true", "export.dir=a")
    with pytest.raises(UserError, match=r"export.formats=\[\]: must name one or more of saved_model, frozen_graph, t"):
        single.export("export.formats=[]")
    with pytest.raises(UserError, match=r"export.checkpoint=null: say what to export: run_dir=FOLDER"):
        export.run(single.config("export", f"run_dir={single.job.folder / 'x'}", "tracking=none"))
    assert not (single.job.folder / "a").exists()


@pytest.fixture
def kept(single, tmp_path):
    """A run that has its own record of its classes, on another machine: its dataset is not there."""
    run = tmp_path / "run"
    shutil.copytree(single.run / "checkpoints", run / "checkpoints")
    config = single.config("train", f"run_dir={run}")
    record_classes(run, build.dataset(config), mock.Mock())
    write_resolved(config, image_size=16, task="single")
    return run


def test_a_run_is_enough_without_its_dataset(single, kept, caplog, tmp_path):
    wanted = scores(single.predict(single.run, single.paths[0].parent, "predict.top_k=9"))
    gone = "dataset.train_list=gone.txt"
    with caplog.at_level(logging.INFO):
        found = scores(single.predict(kept, single.paths[0].parent, "predict.top_k=9", gone))
    assert found == wanted
    assert re.search(
        r"The dataset cannot be read, so the classes are those of .*labels.txt: .*/gone.txt: ", caplog.text
    )

    asked = ["export.formats=[saved_model,frozen_graph]", f"export.checkpoint={kept}", f"export.dir={tmp_path / 'a'}"]
    manifest = Manifest.read(single.export(*asked, gone))
    assert manifest.classes == ["sea", "wood", "night"]
    assert (manifest.check["split"], manifest.check["images"], manifest.check["files"]) == ("generated", 8, 8)
    assert set(manifest.check["max_difference"]) == {"saved_model images", "saved_model image_bytes", "frozen_graph"}
    assert re.match(r"checked on generated images alone, as .*dataset.root=PATH.*/gone.txt: there", manifest.notes[0])


def test_images_that_are_gone_are_replaced_in_the_check(single, tmp_path):
    moved = [f"dataset.image_dir={tmp_path}", "export.formats=[frozen_graph]", f"export.dir={tmp_path / 'a'}"]
    manifest = Manifest.read(single.export(*moved, "export.check_images=2"))
    assert (manifest.check["split"], manifest.check["images"]) == ("generated", 2)
    assert "checked on generated images alone" in manifest.notes[0]


def test_a_dataset_of_other_classes_is_refused(single, kept):
    renamed = "dataset.class_names=[sea,night,wood]"
    message = r"this network was trained for other classes .*: class 1 is 'wood' to it, and 'night'"
    with pytest.raises(UserError, match=rf"predict.model=.*: {message}"):
        single.predict(kept, single.paths[0], renamed)
    config = single.config(
        "evaluate", f"run_dir={kept / 'evaluate'}", f"evaluation.checkpoint={kept}", "tracking=none", renamed
    )
    with pytest.raises(UserError, match=rf"evaluation.checkpoint=.*: {message}"):
        evaluate.run(config)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["single", "multi"])
def test_the_training_s_own_evaluation_agrees_with_them(task, tmp_path, cache_dir, empty_store):
    trained = Trained(tmp_path, cache_dir, empty_store, task)
    evaluated = scores(rows(trained.run / "predictions.csv"))
    assert len(evaluated) == len(trained.paths)
    folder = trained.export()
    for model in (trained.run, folder):
        assert_same(evaluated, scores(trained.predict(model, tmp_path / "images", "predict.top_k=4")))
    contents = [path.read_bytes() for path in trained.paths[:-1]]
    answers = table(trained, SavedModelScorer(folder / "saved_model").of_bytes(contents))
    assert_same({name: evaluated[name] for name in answers}, answers)


@pytest.mark.slow
def test_the_model_is_logged_in_the_job_s_own_run_and_registered(single, empty_store):
    logged = ["tracking.log_model=true", "tracking.registered_model=weather", "tracking=mlflow", "export.dir=logged"]
    single.job.prepare_store()
    single.export(*logged, f"run_dir={single.job.folder / 'logging'}")
    (run,) = single.job.runs()
    assert run.info.status == "FINISHED"
    assert run.data.tags["source.checkpoint"].endswith("model.ckpt-6")
    version = mlflow.MlflowClient(single.job.uri).get_model_version("weather", "1")
    assert version.run_id == run.info.run_id
    mlflow.set_tracking_uri(single.job.uri)
    model = mlflow.pyfunc.load_model("models:/weather/1")
    answer = model.predict(pandas.DataFrame({"image": [path.read_bytes() for path in single.paths[:-1]]}))
    assert set(answer["class"]) <= {"sea", "wood", "night"}
