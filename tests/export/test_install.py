"""An export is in its place as a whole or not at all; an earlier one stays until the new one is complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.export.install import discard, install, locked, make_folder, present, restore, workplace
from slimexp.jobs.lock import exclusive


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
    restore(tmp_path)
    workplace(tmp_path)
    assert os.listdir(tmp_path) == [f".export-{os.getpid()}.tmp"]


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def killed_after(count, monkeypatch, work):
    """Does some work until it wants to move something for the `count`-th time; nothing moves from then on."""
    left, rename = [count], os.rename

    def dying(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", dying)
        try:
            work()
        except KeyboardInterrupt:
            return True
    return False


OLD = ("saved_model", "frozen_graph.pb", "labels.txt", "export.json")
NEW = ("saved_model", "model.tflite", "labels.txt", "export.json")


@pytest.mark.parametrize("again", [99, 0, 1, 2, 4], ids=lambda count: f"restored_until_{count}")
@pytest.mark.parametrize("count", range(10))
def test_a_process_that_is_killed_leaves_the_earlier_one_or_the_new_one(tmp_path, monkeypatch, count, again):
    install(build(tmp_path, "1", OLD), tmp_path)
    earlier = contents(tmp_path)
    place = build(tmp_path, "2", NEW)
    is_killed = killed_after(count, monkeypatch, lambda: install(place, tmp_path))
    assert is_killed == (count < 9)  # Four to leave, one between, four to come.
    killed_after(again, monkeypatch, lambda: restore(tmp_path))  # Killed as well, and once more undone.
    with locked(tmp_path):
        pass
    wanted = earlier if is_killed else dict.fromkeys(["saved_model/saved_model.pb", *NEW[1:]], "2")
    assert contents(tmp_path) == wanted
    assert not list(tmp_path.glob(".export-*"))


def test_what_could_not_be_put_back_is_not_thrown_away(tmp_path, monkeypatch):
    install(build(tmp_path, "1"), tmp_path)
    place = build(tmp_path, "2")
    assert killed_after(2, monkeypatch, lambda: install(place, tmp_path))
    assert killed_after(0, monkeypatch, lambda: discard(place, tmp_path))
    discard(place, tmp_path)
    assert set(contents(tmp_path).values()) == {"1"}
    discard(place, tmp_path)  # Whether it is there or not.


def test_the_workplace_of_a_living_process_stays(tmp_path):
    place = build(tmp_path, "1")
    with (
        exclusive(tmp_path),
        pytest.raises(UserError, match=r"export.dir=.*: another process is working there now. Wait for it"),
        locked(tmp_path),
    ):
        pass
    assert (place / "export.json").exists()
    with locked(tmp_path):
        assert not place.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"export.dir=.*/file/export: cannot be written \(Not a directory\)"):
        make_folder(tmp_path / "file" / "export")
