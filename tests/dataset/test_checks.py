from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from slimexp.dataset import Split, check_files
from slimexp.dataset.checks import first_of, require_file, require_folder
from slimexp.errors import UserError


def split_of(paths: list[bytes], lines: list[int] | None = None) -> Split:
    return Split(
        "train", paths, np.zeros(len(paths), np.int32), "train.txt", None if lines is None else np.array(lines)
    )


def test_names_each_kind_of_fault(tmp_path: Path) -> None:
    (tmp_path / "good.jpg").write_bytes(b"x")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "link.jpg").symlink_to("nothing.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    names = ["good.jpg", "missing.jpg", "empty.jpg", "folder.jpg", "link.jpg", "pipe.jpg", "good.jpg/a.jpg", "n" * 300]
    paths = [os.fsencode(tmp_path / name) for name in names]
    check_files(split_of(paths[:1] * 10_000))
    with pytest.raises(UserError) as error:
        check_files(split_of([*paths, b"/caf\xe9"], list(range(1, 10))))
    where = f"'{tmp_path}"
    assert str(error.value).split("\n") == [
        "8 of the 9 train images can't be read:",
        f"  train.txt:2: {where}/missing.jpg': no such file",
        f"  train.txt:3: {where}/empty.jpg': empty (0 bytes)",
        f"  train.txt:4: {where}/folder.jpg': a folder",
        f"  train.txt:5: {where}/link.jpg': a link to nothing",
        f"  train.txt:6: {where}/pipe.jpg': not a regular file",
        f"  train.txt:7: {where}/good.jpg/a.jpg': no such file",
        f"  train.txt:8: {where}/{'n' * 300}': file name too long",
        "  train.txt:9: '/caf\\\\xe9': no such file",
        "Mend or remove them. (dataset.check_files=false skips this check; such a file then stops the run when read.)",
    ]


def test_counts_what_is_not_shown(tmp_path: Path) -> None:
    paths = [os.fsencode(tmp_path / f"{i}.jpg") for i in range(5000)]
    with pytest.raises(UserError) as error:
        check_files(split_of(paths))
    lines = str(error.value).split("\n")
    assert lines[0] == "5000 of the 5000 train images can't be read:"
    assert lines[10].startswith(f"  train.txt: '{tmp_path}/9.jpg'")
    assert lines[11] == "  … and 4990 more"
    assert lines[12].startswith("All are missing: relative paths start from dataset.image_dir")


def test_requires_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Train.txt").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "dangling").symlink_to("gone")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert require_file("~/Train.txt", "k") == require_file("Train.txt", "k") == str(tmp_path / "Train.txt")
    assert require_folder("sub", "k") == str(tmp_path / "sub")
    for path, message in (
        ("train.txt", rf"k=train.txt: there is no such file; nearest in '{tmp_path}': 'Train.txt'\."),
        ("sub", r"k=sub is a folder; name the file"),
        ("", r"k='' is not a path"),
        ("a\0", r"k='a\\x00' is not a path"),
        ("sub/x.txt", r"k=sub/x.txt: there is no such file; '.*/sub' is empty"),
        ("subs/train.txt", r"no such file, nor a folder '.*/subs'; nearest in '.*': 'sub'"),
        ("Train.txt/x", r"k=Train.txt/x: there is no such file; '.*/Train.txt' is a file, not a folder\.$"),
        ("train.txt/x", r"no such file, nor a folder '.*/train.txt'; '.*' has no folder of a similar name\.$"),
        ("dangling", r"k=dangling: there is no such file; '.*/dangling' is a link to 'gone', which is not there\.$"),
        ("qqqqqqq", r"has nothing of a similar name"),
    ):
        with pytest.raises(UserError, match=message):
            require_file(path, "k")
    with pytest.raises(UserError, match=r"k=Train.txt is a file; name the folder"):
        require_folder("Train.txt", "k")


def test_for_a_missing_folder_only_folders_are_near(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").touch()
    with pytest.raises(UserError, match=r"k=.*/photos: there is no such folder; '.*' has no folder of a similar name"):
        require_folder(str(tmp_path / "photos"), "k")
    (tmp_path / "photos2").mkdir()
    (tmp_path / "photo").symlink_to("photos2")
    (tmp_path / "photos3").symlink_to("photos3")  # A link to itself: to ask what it is is an error.
    with pytest.raises(UserError) as error:
        require_folder(str(tmp_path / "photos"), "k")
    near = str(error.value).partition(f"; nearest in '{tmp_path}': ")[2]
    assert sorted(near.removesuffix(".").split(", ")) == ["'photo'", "'photos2'"]


def test_says_where_a_missing_folder_is_to_be_had(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r" is empty\. Get it for /.*/data\.$"):
        require_folder(str(tmp_path / "data"), "k", lambda folder: f"Get it for {folder}.")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_requires_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0)
    (tmp_path / "b").mkdir(mode=0)
    with pytest.raises(UserError, match=r"may not be read; change its permissions"):
        require_file(str(tmp_path / "a"), "k")
    with pytest.raises(UserError, match=r"may not be listed; change its permissions"):
        require_folder(str(tmp_path / "b"), "k")
    with pytest.raises(UserError, match=r"or none that may be seen: '.*/b' can't be listed \(Permission denied\)"):
        require_file(str(tmp_path / "b" / "c"), "k")


def test_first_of_says_how_many_more() -> None:
    assert first_of(["a", "b"], 2) == "  a\n  b"
    assert first_of(map(str, range(12)), 12).endswith("  9\n  … and 2 more")
