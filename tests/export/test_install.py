"""An export is in its place as a whole or not at all; an earlier one stays until the new one is complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.export.install import install, make_folder, present, workplace


def build(folder, text, names=("saved_model", "labels.txt", "export.json")):
    make_folder(folder)
    place = workplace(folder)
    for name in names:
        if name == "saved_model":
            (place / name).mkdir()
            (place / name / "saved_model.pb").write_text(text)
        else:
            (place / name).write_text(text)
    return place


def test_it_comes_whole_and_replaces_an_earlier_one(tmp_path):
    folder = tmp_path / "new" / "export"
    install(build(folder, "1", ("saved_model", "frozen_graph.pb", "labels.txt", "export.json")), folder)
    assert present(folder) == ["saved_model", "frozen_graph.pb", "labels.txt", "export.json"]
    (folder / "own.txt").write_text("stays")
    install(build(folder, "2"), folder)
    assert present(folder) == ["saved_model", "labels.txt", "export.json"]  # Nothing of the earlier one is left.
    assert (folder / "saved_model" / "saved_model.pb").read_text() == "2"
    assert sorted(os.listdir(folder)) == ["export.json", "labels.txt", "own.txt", "saved_model"]


def test_a_failure_on_the_way_puts_the_earlier_one_back(tmp_path, monkeypatch):
    install(build(tmp_path, "1"), tmp_path)
    place = build(tmp_path, "2")
    rename = os.rename

    def failing(source, target):
        if Path(target) == tmp_path / "labels.txt" and (Path(source).read_text() == "2"):
            raise OSError("no room")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no room"):
        install(place, tmp_path)
    assert (tmp_path / "export.json").read_text() == "1"
    assert (tmp_path / "labels.txt").read_text() == "1"
    assert (tmp_path / "saved_model" / "saved_model.pb").read_text() == "1"


def test_what_a_killed_process_left_goes_with_the_next(tmp_path):
    (tmp_path / ".export-123.tmp" / "saved_model").mkdir(parents=True)
    workplace(tmp_path)
    assert os.listdir(tmp_path) == [f".export-{os.getpid()}.tmp"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"export.dir=.*/file/export: cannot be written \(Not a directory\)"):
        make_folder(tmp_path / "file" / "export")
