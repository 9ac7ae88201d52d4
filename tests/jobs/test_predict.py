"""`job=predict`: names and scores of any files, in order, from a run, a checkpoint or an export, wherever that lies."""

from __future__ import annotations

import json
import logging
import shutil

import pytest

from slimexp.errors import UserError
from slimexp.jobs import predict
from tests.jobs.trained import Trained, assert_same, rows, scores


@pytest.fixture(scope="module")
def trained(tmp_path_factory, cache_dir, empty_store):
    trained = Trained(tmp_path_factory.mktemp("multi"), cache_dir, empty_store, "multi", is_trained=False)
    trained.export("export.formats=[saved_model,frozen_graph]")
    return trained


def test_bad_files_become_rows_and_the_order_is_kept(trained, tmp_path, capsys):
    images = trained.job.folder / "images"
    (tmp_path / "half.jpg").write_bytes(trained.paths[0].read_bytes()[:300])
    listed = [trained.paths[3], tmp_path / "none.jpg", trained.paths[0], tmp_path / "half.jpg", trained.paths[3]]
    (tmp_path / "list.txt").write_text("".join(f"{path}\t1:0\n" for path in listed), encoding="utf-8")
    found = trained.predict(trained.run, tmp_path / "list.txt", "predict.batch_size=2", "predict.threshold=0.9")
    assert [row["path"] for row in found] == list(map(str, listed))
    assert [row["error"][:13] for row in found] == ["", "there is no s", "", "the JPEG is c", ""]
    assert found[0] == found[4]
    best = [[row[f"class_{k}"] for k in range(1, 5) if float(row[f"score_{k}"] or 0) >= 0.9] for row in found]
    assert [row["labels"] and json.loads(row["labels"]) for row in found] == [
        "" if row["error"] else names for row, names in zip(found, best, strict=True)
    ]
    said = capsys.readouterr().out
    assert "Predicted 3 of 5 files; 2 could not be read, see the column `error`" in said
    assert "none.jpg  (cannot be read)" in said
    assert f"\n  {str(tmp_path / 'none.jpg')!r}: there is no such file\n" in said
    every = trained.predict(trained.run, images, "predict.top_k=1", "predict.all_scores=true", "predict.threshold=0.01")
    assert [row["path"] for row in every] == list(map(str, trained.paths))
    assert set(every[0]) == {"path", "error", "labels", "class_1", "score_1"} | {
        f"score:{name}" for name in ("sun", "rain", "fog", "snow")
    }
    assert json.loads(every[0]["labels"])[0] == every[0]["class_1"]


def test_one_photo_is_answered_on_the_screen(trained, capsys):
    trained.predict(trained.run / "checkpoints" / "model.ckpt-6", trained.paths[0], "predict.top_k=2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["file", "class", "score"]
    assert lines[1].startswith("0 a.jpg  ")
    assert len(lines) == 4
    assert lines[3].startswith("Predicted 1 of 1 file: ")


@pytest.fixture
def elsewhere(trained, tmp_path):
    """A copy of the export; a function that predicts with it, as if nothing else were known."""
    place = tmp_path / "handed over"
    place.mkdir()
    for name in ("saved_model", "frozen_graph.pb", "export.json", "labels.txt"):
        source = trained.run / "export" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place / name)

    def predicted():
        folder, images = tmp_path / "out", trained.job.folder / "images"
        # The digits, and LeNet.
        model = f"predict.model={str(place)!r}"
        predict.run(trained.job.config("job=predict", f"run_dir={folder}", model, f"predict.input={images}"))
        return scores(rows(folder / "predictions.csv"))

    return place, predicted


def test_an_export_elsewhere_needs_neither_run_nor_dataset_nor_its_own_code(trained, elsewhere, caplog):
    place, predicted = elsewhere
    wanted = scores(trained.predict(trained.run, trained.job.folder / "images", "predict.top_k=5"))
    described = json.loads((place / "export.json").read_text())
    described["preprocessing"]["_target_"] = "gone.Preprocessing"
    (place / "export.json").write_text(json.dumps(described))
    with caplog.at_level(logging.INFO, "slimexp"):
        assert_same(wanted, predicted())
    assert "The preprocessing is the one within saved_model" in caplog.text
    (place / "export.json").write_text(json.dumps({**described, "saved_model": None}))
    with pytest.raises(UserError, match=r"its preprocessing cannot be made here: .*gone(?s:.*)PYTHONPATH"):
        predicted()


@pytest.mark.slow
def test_an_export_elsewhere_is_enough_by_either_of_its_parts(trained, elsewhere):
    place, predicted = elsewhere
    wanted = scores(trained.predict(trained.run, trained.job.folder / "images", "predict.top_k=5"))
    assert_same(wanted, predicted())
    described = json.loads((place / "export.json").read_text())
    (place / "export.json").write_text(json.dumps({**described, "saved_model": None}))
    assert_same(wanted, predicted())


def test_json_lines_and_the_screen(trained, capsys):
    out = trained.job.folder / "predict"
    trained.predict(trained.run / "export", trained.paths[0], "predict.output=a.jsonl")
    (line,) = (trained.job.folder / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["path"] == str(trained.paths[0])
    capsys.readouterr()
    shutil.rmtree(out)
    with pytest.raises(FileNotFoundError):
        trained.predict(trained.run / "export", trained.paths[0], "predict.output=-", "predict.format=jsonl")
    said = capsys.readouterr()
    assert json.loads(said.out)["best"]
    assert "Predicted 1 of 1 file." in said.err


def test_what_cannot_be_is_said(trained, tmp_path):
    (tmp_path / "x.jpg").write_text("no image")
    (tmp_path / "y.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"none of 2 files could be read, the first: '.*x.jpg': it is something that"):
        trained.predict(trained.run / "export", tmp_path)
    photo = trained.paths[0]
    with pytest.raises(UserError, match=r"predict.output=.*a.txt: the suffix says nothing about the format"):
        trained.predict(trained.run, photo, "predict.output=a.txt")
    with pytest.raises(UserError, match=r"predict.output=.*: is a folder; name a file"):
        trained.predict(trained.run, photo, f"predict.output={tmp_path}")
    with pytest.raises(UserError, match=r"predict.model=.*/nowhere: there is no such checkpoint"):
        trained.predict("nowhere", photo)
    with pytest.raises(UserError, match=r"predict.threshold=1.5: must lie in \(0, 1\)"):
        trained.predict(trained.run, photo, "predict.threshold=1.5")
    with pytest.raises(UserError, match=r"predict.input=null: say what to look at: an image, a folder"):
        predict.run(trained.config("predict", f"run_dir={tmp_path / 'o'}", f"predict.model={trained.run}"))
    with pytest.raises(UserError, match=r"predict.model=null: say by what to predict"):
        predict.run(trained.config("predict", f"run_dir={tmp_path / 'o'}", f"predict.input={photo}"))
