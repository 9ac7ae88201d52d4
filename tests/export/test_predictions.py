"""Predictions as files: the best classes by name, an error in the place of a bad file, whole or not there."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from slimexp.errors import UserError
from slimexp.export.predictions import Prediction, Predictions, make_prediction, writing

NAMES = ["beach", "a;b", 'night "1"']
SCORES = np.array([0.25, 0.5, 0.1234567])
LOGITS = np.log(SCORES)


def named(scores, logits, **options):
    return make_prediction("/x/1.jpg", scores, NAMES, logits=logits, threshold=0.25, **options)


def written(kind, task="single", all_scores=False, top_k=2):
    file = io.StringIO()
    writer = Predictions(file, kind, class_names=NAMES, task=task, top_k=top_k, all_scores=all_scores)
    writer.write(named(SCORES, LOGITS, task=task, top_k=top_k))
    writer.write(Prediction("/x/é 2.jpg", error="the file is empty (0 bytes)"))
    return file.getvalue()


def test_csv_names_the_best_classes():
    assert written("csv") == (
        "path,error,class_1,score_1,class_2,score_2\n"
        "/x/1.jpg,,a;b,0.5,beach,0.25\n"
        "/x/é 2.jpg,the file is empty (0 bytes),,,,\n"
    )
    rows = list(csv.DictReader(io.StringIO(written("csv", "multi", all_scores=True, top_k=9))))
    assert json.loads(rows[0]["labels"]) == ["a;b", "beach"]
    assert rows[0]["class_3"] == 'night "1"'
    assert [rows[0][f"score:{name}"] for name in NAMES] == ["0.25", "0.5", "0.123457"]
    assert set(rows[1].values()) == {"/x/é 2.jpg", "the file is empty (0 bytes)", ""}


def test_classes_whose_scores_are_nothing_have_an_order_too():
    logits = np.array([-900.0, 100.0, -800.0])
    assert [name for name, _ in named(np.array([0, 1, 0]), logits, task="single", top_k=3).best] == [
        "a;b",
        'night "1"',
        "beach",
    ]


def test_no_label_is_an_empty_list():
    file = io.StringIO()
    writer = Predictions(file, "csv", class_names=NAMES, task="multi", top_k=1, all_scores=False)
    writer.write(named(SCORES / 9, LOGITS, task="multi", top_k=1))
    assert file.getvalue().splitlines()[1].split(",")[2] == "[]"


def test_json_lines_say_the_same():
    first, second = (json.loads(line) for line in written("jsonl", "multi", all_scores=True).splitlines())
    assert first["labels"] == ["a;b", "beach"]
    assert first["best"] == [{"class": "a;b", "score": 0.5}, {"class": "beach", "score": 0.25}]
    assert first["scores"] == {"beach": 0.25, "a;b": 0.5, 'night "1"': 0.123457}
    assert second == {"path": "/x/é 2.jpg", "error": "the file is empty (0 bytes)"}
    assert json.loads(written("jsonl").splitlines()[0]).keys() == {"path", "error", "best"}


def test_a_file_is_whole_or_partial(tmp_path, capsys):
    target = tmp_path / "new" / "a.csv"

    def fail(file):
        file.write("x\n")
        raise RuntimeError

    with pytest.raises(RuntimeError), writing(target) as file:
        fail(file)
    assert not target.exists()
    assert (tmp_path / "new" / "a.csv.partial").read_text() == "x\n"
    with writing(target) as file:
        file.write("y\n")
    assert [path.name for path in target.parent.iterdir()] == ["a.csv"]
    with writing(None) as file:
        file.write("z\n")
    assert capsys.readouterr().out == "z\n"
    with pytest.raises(UserError, match=r"predict.output=.*: cannot be written \("), writing(target / "b.csv"):
        pass
