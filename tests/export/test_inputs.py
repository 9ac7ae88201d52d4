"""What `predict.input` means: an image, a folder, a pattern, a list."""

from __future__ import annotations

import os

import pytest

from slimexp.errors import UserError
from slimexp.export.inputs import find_inputs
from tests.export.pictures import encoded, smooth

JPEG = encoded(smooth(4, 4), "JPEG")


@pytest.fixture
def folder(tmp_path):
    for name in ("b/2.JPG", "b/10.png", "a.webp", "b/c d/é 1.jpeg", ".hidden/x.jpg", "b/.x.jpg", "notes.txt", "x.pdf"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG)
    return tmp_path / "photos"


def names(found, folder):
    return [os.path.relpath(os.fsdecode(path), folder) for path in found]


def test_a_folder_is_all_its_images_sorted(folder):
    assert names(find_inputs(str(folder)), folder) == ["a.webp", "b/10.png", "b/2.JPG", "b/c d/é 1.jpeg"]
    os.symlink(folder, folder / "b" / "round")  # In circles.
    assert len(find_inputs(str(folder))) == 4


def test_a_pattern_is_the_files_that_match(folder):
    assert names(find_inputs(f"{folder}/**/*.jp*"), folder) == ["b/c d/é 1.jpeg"]
    assert names(find_inputs(f"{folder}/*"), folder) == ["a.webp", "notes.txt", "x.pdf"]
    odd = folder / "[1].jpg"
    odd.write_bytes(JPEG)
    assert names(find_inputs(str(odd)), folder) == ["[1].jpg"]
    with pytest.raises(UserError, match=r"predict.input=.*/\*.tif: no file matches\. \*\* stands for any number"):
        find_inputs(f"{folder}/*.tif")
    with pytest.raises(UserError, match="the pattern matches 1 folders and no file"):
        find_inputs(f"{folder}/b*")


def test_an_image_is_itself_whatever_its_name(folder):
    (folder / "photo").write_bytes(JPEG)
    assert names(find_inputs(str(folder / "photo")), folder) == ["photo"]
    (folder / "broken.jpg").write_bytes(b"no image")
    assert names(find_inputs(str(folder / "broken.jpg")), folder) == ["broken.jpg"]


def test_a_list_is_its_paths_in_order(folder, tmp_path):
    lines = [
        "\ufeff# a comment",
        "",
        "b/2.JPG -1:* 1:0,7",
        "a.webp",
        '"b/c d/é 1.jpeg" 3',
        "b/c d/é 1.jpeg",
        "b/c d/é 1.jpeg\t1:0",
        "missing.jpg 1",
        "a.webp\r",
        '"it""s.jpg"',
        "/elsewhere/x.jpg",
    ]
    (folder / "list.txt").write_text("\n".join(lines), encoding="utf-8")
    wanted = ["b/2.JPG", "a.webp", *["b/c d/é 1.jpeg"] * 3, "missing.jpg", "a.webp", 'it"s.jpg']
    found = find_inputs(str(folder / "list.txt"))
    assert names(found[:-1], folder) == wanted
    assert found[-1] == b"/elsewhere/x.jpg"
    (tmp_path / "list.txt").write_text("a.webp\n")
    assert names(find_inputs(str(tmp_path / "list.txt"), image_dir=str(folder)), folder) == ["a.webp"]


def test_what_cannot_be_is_said(folder, tmp_path):
    with pytest.raises(UserError, match=r"there is no such file or folder; .*/photos is there"):
        find_inputs(str(folder / "c" / "d.jpg"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"the folder has no image \(.avif, .bmp, "):
        find_inputs(str(tmp_path / "empty"))
    (tmp_path / "list.txt").write_text("# nothing\n")
    with pytest.raises(UserError, match="the list is empty"):
        find_inputs(str(tmp_path / "list.txt"))
    (tmp_path / "list.txt").write_text('a.jpg\n"b.jpg 1\n')
    with pytest.raises(UserError, match=r"list.txt:2: .*the closing quote mark is missing"):
        find_inputs(str(tmp_path / "list.txt"))
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04\0\0")
    with pytest.raises(UserError, match="is neither an image nor a list of paths, but a ZIP archive"):
        find_inputs(str(tmp_path / "model.bin"))
    with pytest.raises(UserError, match=r"predict.image_dir=/x: is for the paths in a list file, and .* is none"):
        find_inputs(str(folder), image_dir="/x")
