from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from slimexp.dataset import describe, load_pascal_voc
from slimexp.errors import UserError
from tests.dataset.trees import VOC, write_voc


def change(root: Path, name: str, content: str | bytes | None) -> None:
    path = root / "ImageSets" / "Main" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_reads_positive_negative_and_dont_care(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "VOC2012")
    data = load_pascal_voc(root=str(root))
    assert (data.name, data.task, data.class_names) == ("pascal_voc", "multi", ("cat", "dog", "emu"))
    assert data.train.labels.tolist() == [[1, -1, -1], [-1, 1, -1], [0, 0, 1], [1, 1, 0]]
    assert data.eval is not None
    assert data.eval.labels.tolist() == [[1, -1, 0], [-1, 1, 1]]
    assert data.train.path(2) == f"{root}/JPEGImages/2008_0002.jpg"
    assert data.train.origin(2) == f"{root}/ImageSets/Main/cat_train.txt:3"
    text = describe(data)
    assert "Train labels: 41.7% positive, 33.3% negative, 25.0% don't care; positives a label: 1 ('emu') to 2" in text
    assert "Eval labels: 50.0% positive, 33.3% negative, 16.7% don't care" in text
    assert "Eval labels never negative, so answering yes to everything is right: 'emu'." in text


def test_chooses_sets_classes_and_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = write_voc(tmp_path, {**VOC, "small": VOC["val"], "trainval": VOC["val"]})
    data = load_pascal_voc(root=str(root), class_names=["emu", "cat"], eval_set=None, num_classes=2)
    assert data.train.labels.tolist() == [[-1, 1], [-1, -1], [1, 0], [0, 1]]
    assert data.eval is None
    data = load_pascal_voc(root=str(root), train_set="trainval", eval_set="small")
    assert [len(data.train), len(data.eval or ())] == [2, 2]
    # A suffix of one's own, an id with a blank, other orders in the files, and another program's line ends.
    (root / "JPEGImages" / "2008_0000.jpg").rename(root / "JPEGImages" / "2008_0000.JPEG")
    (root / "JPEGImages" / "2008_0001.jpg").rename(root / "JPEGImages" / "my cat.jpg")
    change(root, "cat_train.txt", b"\xef\xbb\xbf2008_0000  1\r\nmy cat -1\r\n\r\n")
    change(root, "dog_train.txt", "my cat 1\n2008_0000 -1\n")
    change(root, "emu_train.txt", "my cat 0\n2008_0000 0\n")
    data = load_pascal_voc(root=str(root))
    assert [Path(data.train.path(i)).name for i in range(2)] == ["2008_0000.JPEG", "my cat.jpg"]
    assert data.train.labels.tolist() == [[1, -1, 0], [-1, 1, 0]]
    with caplog.at_level(logging.WARNING):
        load_pascal_voc(root=str(root), train_set="val", eval_set="val")
    assert "2 of the 2 images of dataset.eval_set=val are in dataset.train_set=val too" in caplog.text


def test_faults_are_told_with_file_and_line(tmp_path: Path) -> None:
    root = write_voc(tmp_path)
    change(
        root, "cat_train.txt", "2008_0000 1\n2008_0001 2\n2008_0002\n2008_0003 1\n2008_0000 -1\n2008_0009 1\n../x 1\n"
    )
    change(root, "dog_train.txt", b"2008_0000 1\n2008_0001 1\n2008_0003 1\n2008_0005 1\n2008_\xff 1\n")
    change(root, "emu_train.txt", "2008_0000 1\n2008_0001 1\n2008_0003 1\n2008_0009 1\n")
    (root / "JPEGImages" / "2008_0003.jpg").unlink()
    with pytest.raises(UserError) as raised:
        load_pascal_voc(root=str(root))
    main = f"{root}/ImageSets/Main"
    assert str(raised.value).split("\n") == [
        f"9 faults in {main}:",
        f"  {main}/cat_train.txt:2: '2' must be 1 (shows the class), -1 (does not) or 0 (don't care).",
        f"  {main}/cat_train.txt:3: '2008_0002' has no value; a line is ID VALUE, as in 2008_000008 -1.",
        f"  {main}/cat_train.txt:5: '2008_0000' stands on line 1 already; an image comes once.",
        f"  {main}/cat_train.txt:7: '../x' is no image's id.",
        f"  {main}/dog_train.txt:5: byte 0xff is not UTF-8; save the file in that encoding.",
        (
            f"  {main}/dog_train.txt:4: '2008_0005' is not in {main}/cat_train.txt; all classes' files of a set name "
            "the same images."
        ),
        (
            f"  {main}/cat_train.txt:6: '2008_0009' is not in {main}/dog_train.txt; all classes' files of a set name "
            "the same images."
        ),
        f"  {main}/cat_train.txt:4: {root}/JPEGImages/2008_0003.jpg: no such file.",
        f"  {main}/cat_train.txt:6: {root}/JPEGImages/2008_0009.jpg: no such file.",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"train_set": "trian"},
            r"train_set=trian: no class has a file CLASS_trian\.txt .* train, val \(did you mean tra",
        ),
        ({"eval_set": "test"}, r"eval_set=test: no class has a file CLASS_test\.txt .*; null is for no evaluation"),
        ({"num_classes": 20}, r"num_classes=20, but .*Main has files for 3 classes: cat, dog, emu"),
        ({"class_names": ["cat", "cow"]}, r"train_set=train: .*Main/cow_train\.txt is not there, though 2 classes"),
        ({"class_names": ["a/b"]}, r"class_names: 'a/b' is a part of no file's name"),
        ({"root": "/nowhere"}, r"dataset\.root=/nowhere: there is no such folder"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_said(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    root = write_voc(tmp_path)
    with pytest.raises(UserError, match=message):
        load_pascal_voc(**{"root": str(root), **options})


def test_a_missing_classs_file(tmp_path: Path) -> None:
    root = write_voc(tmp_path)
    change(root, "dog_train.txt", None)
    with pytest.raises(
        UserError, match=r"train_set=train: .*dog_train\.txt is not there, though 3 classes are expected"
    ):
        load_pascal_voc(root=str(root))
    assert load_pascal_voc(root=str(root), class_names=["cat", "emu"]).num_classes == 2
    change(root, "emu_val.txt", None)
    with pytest.raises(UserError, match=r"eval_set=val: .*emu_val\.txt is not there"):
        load_pascal_voc(root=str(root), class_names=["cat", "emu"])


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        (".", r"VOCdevkit/VOC2012 there has: dataset\.root=.*/VOCdevkit/VOC2012\."),
        ("VOCdevkit", r"VOC2012 there has: dataset\.root=.*/VOCdevkit/VOC2012\."),
        ("VOCdevkit/VOC2012/JPEGImages", r"\.\. there has: dataset\.root=.*/VOCdevkit/VOC2012\."),
        ("elsewhere", r"name the folder of a year, such as VOCdevkit/VOC2012\. Nothing is downloaded: get "),
    ],
)
def test_a_root_on_another_level(tmp_path: Path, named: str, hint: str) -> None:
    write_voc(tmp_path / "data" / "VOCdevkit" / "VOC2012")
    (tmp_path / "a" / "b" / "c" / "elsewhere").mkdir(parents=True)
    root = tmp_path / "data" / named if named != "elsewhere" else tmp_path / "a" / "b" / "c" / named
    with pytest.raises(UserError, match=r"has no folders ImageSets/Main and JPEGImages in it; " + hint):
        load_pascal_voc(root=str(root))


def test_names_the_page_of_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b" / "c" / "empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b" / "c")
    for root, begins, then in (
        ("no", r"there is no such folder; .*", rf"{tmp_path}/a/b/c/no, and set dataset\.root=no/VOCdevkit/VOC2012\.$"),
        ("VOCdevkit/VOC2012", r"there is no such folder, nor a folder .*", rf"{tmp_path}/a/b/c\.$"),
        ("empty", r"has no folders .*", rf"{tmp_path}/a/b/c/empty, and set dataset\.root=empty/VOCdevkit/VOC2012\.$"),
    ):
        page = r"get VOCtrainval_11-May-2012\.tar from http://host\.robots\.ox\.ac\.uk/pascal/VOC/voc2012/ .*"
        with pytest.raises(UserError, match=rf"dataset\.root={root}:? {begins}{page}, unpack it in {then}"):
            load_pascal_voc(root=root)
    (tmp_path / "a" / "b" / "c" / "empty" / "JPEGImages").mkdir()
    with pytest.raises(UserError, match=r"dataset\.root=empty has no folder ImageSets/Main in it; "):
        load_pascal_voc(root="empty")


def test_files_and_labels_that_say_nothing(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "zero", {"train": {"cat": [0, 0]}})
    with pytest.raises(UserError, match=r"cat_train\.txt: all labels of all classes are 0, don't care"):
        load_pascal_voc(root=str(root), eval_set=None)
    change(root, "cat_train.txt", "\n")
    with pytest.raises(UserError, match=r"cat_train\.txt: it names no image"):
        load_pascal_voc(root=str(root), eval_set=None)
    root = write_voc(tmp_path / "empty")
    (root / "JPEGImages" / "2008_0001.jpg").write_bytes(b"")
    with pytest.raises(UserError, match=r"cat_train\.txt:2: '.*2008_0001\.jpg': empty \(0 bytes\)"):
        load_pascal_voc(root=str(root))
    assert len(load_pascal_voc(root=str(root), allow_empty_files=True).train) == 4
