from __future__ import annotations

from pathlib import Path

import pytest

from slimexp.dataset.class_names import load_class_names, write_class_names
from slimexp.errors import UserError


def write(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "labels.txt"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("data", "offset", "names"),
    [
        (b"cat\ndog\n", 0, ("cat", "dog")),
        (b"\xef\xbb\xbfcat\r\ngolden retriever \r\n\r\n", 0, ("cat", "golden retriever")),
        ("猫\n# 1\n".encode(), 0, ("猫", "# 1")),
        (b"0:cat\n1:dog\n", 0, ("cat", "dog")),
        (b"1:dog\n0:cat: big\n", 0, ("cat: big", "dog")),
        (b"0:background\n1:cat\n2:dog\n", 1, ("cat", "dog")),
        (b"0:cat\n1:dog\nbird\n", 0, ("0:cat", "1:dog", "bird")),  # not all are INDEX:NAME
        (b"cat\ndog\n", 1, ("cat", "dog")),
    ],
)
def test_reads_files(tmp_path: Path, data: bytes, offset: int, names: tuple[str, ...]) -> None:
    assert load_class_names(write(tmp_path, data), labels_offset=offset) == names


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    names = ("cat: big", "0:dog", "猫", "a b", "# 1", "7")
    write_class_names(tmp_path / "labels.txt", names)
    assert (tmp_path / "labels.txt").read_text(encoding="utf-8").splitlines()[:2] == ["0:cat: big", "1:0:dog"]
    assert load_class_names(str(tmp_path / "labels.txt")) == names


@pytest.mark.parametrize("name", [" a", "a\r", "a\nb", "a\0", "\udcff"], ids=["blank", "cr", "line", "nul", "no text"])
def test_what_would_not_be_read_back_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"the class name '.*' cannot stand in labels\.txt: blanks at an end"):
        write_class_names(tmp_path / "labels.txt", ["x", name])


def test_takes_lists() -> None:
    assert load_class_names(["b", "a"]) == ("b", "a")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"dataset.class_names has no name"),
        (["a", "b", "a"], r"dataset.class_names: 'a' is the name of the classes 0 and 2"),
        (["a", ""], r"dataset.class_names\[1\]='' is not a name"),
        (["a", True], r"dataset.class_names\[1\]=True is not a name; write it in quotes"),
    ],
)
def test_refuses_lists(names: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_class_names(names)


@pytest.mark.parametrize(
    ("data", "offset", "message"),
    [
        (b" \n", 0, r"dataset.class_names=.*labels.txt has no name"),
        (b"a\n\nb\n", 0, r"labels.txt:2: '' is not a class name"),
        (b"a\nb\0\n", 0, r"labels.txt:2: 'b\\x00' is not a class name"),
        (b"a\nb\xff\n", 0, r"labels.txt:2: byte 0xff is not UTF-8"),
        (b"a\na\n", 0, r"labels.txt: 'a' is the name of the classes 0 and 1"),
        (b"0:a\n0:b\n", 0, r"labels.txt:2: index 0 was named on an earlier line"),
        (b"0:a\n2:b\n", 0, r"none for index 1; the indices must run from 0 without a gap\."),
        (b"1:a\n2:b\n", 0, r"none for index 0"),
        (b"0:a\n2:b\n", 1, r"none for index 1; the indices must run from 1 without a gap \(dataset.labels_offset=1\)"),
    ],
)
def test_refuses_files(tmp_path: Path, data: bytes, offset: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_class_names(write(tmp_path, data), labels_offset=offset)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset.class_names=.*labels.txt: there is no such file; .* is empty"):
        load_class_names(str(tmp_path / "labels.txt"))
