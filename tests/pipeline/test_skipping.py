from __future__ import annotations

import csv
import logging
from pathlib import Path

import numpy as np
import pytest

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline.diagnose import Fault
from slimexp.pipeline.skipping import FILE_NAME, SkippedImages


def split_of(count: int, name: str = "train", repeats: int = 0) -> Split:
    paths = [f"/images/{number}.jpg".encode() for number in range(count - repeats)]
    paths += paths[:repeats]
    return Split(name, paths, np.zeros(count, np.int32), f"{name}.txt", np.arange(1, count + 1))


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines()))


def test_skipped_images_are_listed_at_once_and_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / FILE_NAME
    skipped = SkippedImages(split_of(300), path=path, max_fraction=0.01)
    assert (len(skipped), skipped.mask.any(), path.exists(), skipped.limit) == (0, False, False, 3)
    assert skipped.add({7: Fault("it is, well, bad"), 2: Fault("the file is empty (0 bytes)")}) == [7, 2]
    assert rows(path) == [
        ["path", "origin", "reason"],
        ["/images/7.jpg", "train.txt:8", "it is, well, bad"],
        ["/images/2.jpg", "train.txt:3", "the file is empty (0 bytes)"],
    ]
    assert "Skipped a bad image: train.txt:8: '/images/7.jpg': it is, well, bad" in caplog.text
    assert skipped.add({7: Fault("again")}) == []
    caplog.clear()
    resumed = SkippedImages(split_of(300), path=path, max_fraction=0.01)
    assert (len(resumed), np.flatnonzero(resumed.mask).tolist()) == (2, [2, 7])
    assert resumed.add({2: Fault("again"), 9: Fault("new")}) == [9]
    assert len(rows(path)) == 4
    assert caplog.text.count("Skipped") == 1


def test_splits_share_the_list_and_not_what_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    SkippedImages(split_of(9), path=path, max_fraction=0.5).add({1: Fault("bad")})
    other = SkippedImages(split_of(9, "eval"), path=path, max_fraction=0.5)
    assert len(other) == 0
    other.add({1: Fault("bad")})
    assert [row[1] for row in rows(path)] == ["origin", "train.txt:2", "eval.txt:2"]


def test_a_file_named_twice_is_skipped_twice(tmp_path: Path) -> None:
    skipped = SkippedImages(split_of(10, repeats=3), path=None, max_fraction=0.5)
    assert skipped.add({8: Fault("bad")}) == [1, 8]
    assert np.flatnonzero(skipped.mask).tolist() == [1, 8]


def test_too_many_stop_with_the_list(tmp_path: Path) -> None:
    skipped = SkippedImages(split_of(359), path=tmp_path / FILE_NAME, max_fraction=0.01)
    skipped.add({number: Fault("bad") for number in range(3)})
    with pytest.raises(UserError) as caught:
        skipped.add({5: Fault("the last")})
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "4 of the 359 images of train.txt cannot be read, and dataset.max_bad_fraction=0.01 lets 3 be skipped:"
    )
    assert lines[1] == "  train.txt:1: '/images/0.jpg': bad"
    assert lines[4:] == [
        "  train.txt:6: '/images/5.jpg': the last",
        "Mend or replace the files, take them out of the list, or raise dataset.max_bad_fraction.",
    ]
    assert len(rows(tmp_path / FILE_NAME)) == 5
    with pytest.raises(UserError, match=r"  and 20 more \(.*skipped_images.csv lists all\)"):
        skipped.add({number: Fault("bad") for number in range(40)})


def test_one_must_be_left() -> None:
    skipped = SkippedImages(split_of(2), path=None, max_fraction=1)
    skipped.add({0: Fault("bad")})
    assert skipped.first_good() == 1
    with pytest.raises(UserError, match=r"^2 of the 2 images of train.txt cannot be read, and none is left:"):
        skipped.add({1: Fault("bad")})


@pytest.mark.parametrize(("count", "fraction", "limit"), [(5, 0.01, 1), (5, 0.0, 1), (100, 0.29, 29), (10, 1.0, 10)])
def test_the_limit(count: int, fraction: float, limit: int) -> None:
    assert SkippedImages(split_of(count), path=None, max_fraction=fraction).limit == limit


def test_warnings_turn_into_a_count(caplog: pytest.LogCaptureFixture) -> None:
    skipped = SkippedImages(split_of(100), path=None, max_fraction=1)
    with caplog.at_level(logging.WARNING):
        for number in range(12):
            skipped.add({number: Fault("bad")})
    assert caplog.text.count("Skipped a bad image") == 10
    assert [record.getMessage() for record in caplog.records[10:]] == [
        "Skipped 11 bad images of train.txt so far.",
        "Skipped 12 bad images of train.txt so far.",
    ]


def test_a_row_that_a_crash_cut_short_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    SkippedImages(split_of(9), path=path, max_fraction=1).add({1: Fault('a "quoted", reason'), 2: Fault("bad")})
    whole = path.read_bytes()
    for length in (5, len(whole) - 4, whole.index(b'"a ') + 2):
        path.write_bytes(whole[:length])
        skipped = SkippedImages(split_of(9), path=path, max_fraction=1)
        skipped.add({1: Fault('a "quoted", reason'), 2: Fault("bad")})
        assert path.read_bytes() == whole


def test_odd_file_names_come_back(tmp_path: Path) -> None:
    names = [b'/a,b\n"c".jpg', b"/\xff\xfe.jpg", "/étiquettes 中文.jpg".encode(), b"/good.jpg"]
    split = Split("train", names, np.zeros(4, np.int32), "folder")
    SkippedImages(split, path=tmp_path / "list.csv", max_fraction=1).add({n: Fault("bad") for n in range(3)})
    assert SkippedImages(split, path=tmp_path / "list.csv", max_fraction=1).mask.tolist() == [True] * 3 + [False]
