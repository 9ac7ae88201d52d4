"""`export.json`: read back as written, and refused where it cannot be used."""

from __future__ import annotations

import json

import pytest

from slimexp.errors import UserError
from slimexp.export.manifest import Manifest, find_export
from slimexp.export.scoring import load_scorer
from slimexp.export.summary import summary

MANIFEST = Manifest(
    model={"name": "lenet", "network": "slimexp.nets.lenet.lenet", "image_size": 28, "parameters": 7},
    task="single",
    classes=["é", "b"],
    saved_model=None,
    frozen_graph=None,
    tflite={"images": {}},
    preprocessing={"_target_": "x.Y", "steps": []},
    decoding={"exif": "apply", "scaled_decode": True},
    checkpoint={"path": "/run/model.ckpt-7", "step": 7, "weights": "last"},
    code=None,
    versions={"tensorflow": "2.21.0"},
    check={"images": 4, "files": 3, "split": "eval of x", "tolerance": 1e-4, "max_difference": {"tflite": 2e-7}},
    created="2026-01-01T00:00:00+00:00",
    notes=["no signature image_bytes: so"],
)


def test_it_is_read_back_as_written(tmp_path):
    (tmp_path / "export.json").write_text(MANIFEST.text(), encoding="utf-8")
    assert Manifest.read(tmp_path) == MANIFEST
    assert find_export(tmp_path) == tmp_path
    assert find_export(tmp_path / "frozen_graph.pb") == tmp_path
    assert find_export(tmp_path.parent) is None
    alone = tmp_path / "deep" / "saved_model"
    (alone / "assets.extra").mkdir(parents=True)
    (alone / "assets.extra" / "export.json").write_text(MANIFEST.text(), encoding="utf-8")
    assert find_export(alone) == alone
    assert Manifest.read(alone) == MANIFEST


def test_what_cannot_be_used_is_said(tmp_path):
    path = tmp_path / "export.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"predict.model=.*: export.json cannot be used: .*\. Export the model again"):
        Manifest.read(tmp_path)
    path.write_text(json.dumps({"task": "single"}))
    with pytest.raises(UserError, match=r"cannot be used: .*missing"):
        Manifest.read(tmp_path)
    path.write_text(MANIFEST.text().replace('"version": 1', '"version": 9'))
    with pytest.raises(UserError, match="is of version 9, and this slimexp knows 1"):
        Manifest.read(tmp_path)
    with pytest.raises(
        UserError, match=r"has neither saved_model/ nor frozen_graph.pb; .*export.formats=\[saved_model"
    ):
        load_scorer(tmp_path, MANIFEST)
    broken = Manifest(**{**json.loads(MANIFEST.text()), "saved_model": {"images": {}}})
    with pytest.raises(UserError, match=r"the export cannot be loaded: .* was not copied as a whole"):
        load_scorer(tmp_path, broken)


def test_the_summary_says_how_it_was_checked_and_how_to_use_it(tmp_path):
    lines = summary(tmp_path, MANIFEST)
    assert "Checked:     4 images (eval of x), the scores are evaluation's to 2e-07; 3 of them also from" in lines[3]
    assert "Note:        no signature image_bytes: so" in lines
    assert "get_signature_runner('images')" in lines[-1]
