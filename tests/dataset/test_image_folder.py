from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from PIL import Image

from slimexp.dataset import load_image_folder
from slimexp.dataset.split import Split
from slimexp.errors import UserError


def make(root: Path, *names: str) -> str:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return str(root)


def held(split: Split | None, root: Path) -> dict[str, int]:
    assert split is not None
    return {os.path.relpath(split.path(i), root): int(label) for i, label in enumerate(split.labels)}


def test_train_and_eval_folders(tmp_path: Path) -> None:
    make(tmp_path, "train/dog/1.jpg", "train/cat/2.PNG", "train/cat/deep/er/3.JPEG", "val/dog/4.jpg", "test/cat/5.jpg")
    dataset = load_image_folder(root=str(tmp_path), name="pets")
    assert (dataset.name, dataset.task, dataset.class_names) == ("pets", "single", ("cat", "dog"))
    assert held(dataset.train, tmp_path) == {"train/cat/2.PNG": 0, "train/cat/deep/er/3.JPEG": 0, "train/dog/1.jpg": 1}
    assert held(dataset.eval, tmp_path) == {"val/dog/4.jpg": 1}
    assert dataset.train.labels.dtype.name == "int32"
    assert dataset.train.origin(0) == str(tmp_path / "train")
    other = load_image_folder(root=str(tmp_path), eval_dir="test")
    assert held(other.eval, tmp_path) == {"test/cat/5.jpg": 0}
    none = load_image_folder(root=str(tmp_path), eval_dir=None, eval_fraction=0)
    assert none.eval is None
    assert len(none.train) == 3


def test_holds_out_a_stable_fraction(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/{i}.jpg" for name in "abc" for i in range(200)), "few/1.jpg", "few/2.jpg", "one/1.jpg")
    first = load_image_folder(root=str(tmp_path))
    assert first.class_names == ("a", "b", "c", "few", "one")
    before = held(first.eval, tmp_path)
    assert 90 < len(before) < 150  # 600 at 0.2, and one of `few`
    assert sum(label == 3 for label in before.values()) == 1
    assert len(first.train) + len(before) == 603
    # New images change nobody else's place; nor does the place of the root.
    make(tmp_path, *(f"a/new{i}.jpg" for i in range(50)))
    moved = tmp_path.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    after = held(load_image_folder(root=str(moved)).eval, moved)
    assert {name for name in after if "new" not in name} == before.keys()
    assert held(load_image_folder(root=str(moved), seed=1).eval, moved) != after
    moved.rename(tmp_path)


def test_a_train_folder_alone_is_split(tmp_path: Path) -> None:
    make(tmp_path, *(f"train/{name}/{i}.jpg" for name in "ab" for i in range(5)))
    dataset = load_image_folder(root=str(tmp_path), eval_fraction=0.5)
    assert dataset.class_names == ("a", "b")
    assert len(held(dataset.train, tmp_path) | held(dataset.eval, tmp_path)) == 10
    assert len(dataset.train) < 10


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/{i}.jpg" for name in ("car", "train") for i in range(3)))
    assert load_image_folder(root=str(tmp_path)).class_names == ("car", "train")


def test_leaves_out_what_is_no_image(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    make(tmp_path, "é 中/a b.jpg", "é 中/b.WebP", "é 中/c.heif", "é 中/d.heic", "é 中/notes.txt", "é 中/jpg")
    make(tmp_path, ".hidden/a.jpg", "é 中/.b.jpg", "é 中/.c/a.jpg", "z/1.jpg", "readme.txt")
    (tmp_path / "é 中" / "loop").symlink_to("..")
    (tmp_path / "z" / "self").symlink_to(".")
    (tmp_path / "linked").symlink_to("z")
    dataset = load_image_folder(root=str(tmp_path), eval_fraction=0)
    assert dataset.class_names == ("linked", "z", "é 中")
    names = held(dataset.train, tmp_path)
    assert {"é 中/a b.jpg": 2, "é 中/b.WebP": 2, "z/1.jpg": 1, "linked/1.jpg": 0}.items() <= names.items()
    assert any("2 images left out that can't be decoded (1 .heic, 1 .heif)" in m for m in caplog.messages)
    assert any("3 files left out without the suffix of an image" in m for m in caplog.messages)
    assert any("links left out" in m for m in caplog.messages)
    assert any("3 classes, " in m for m in caplog.messages)


def test_class_names_set_the_order(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/a/2.jpg", "val/c/2.jpg")
    dataset = load_image_folder(root=str(tmp_path), class_names=["c", "b"], num_classes=2)
    assert dataset.class_names == ("c", "b")
    assert held(dataset.train, tmp_path) == {"train/c/1.jpg": 0, "train/b/1.jpg": 1}
    assert held(dataset.eval, tmp_path) == {"val/c/2.jpg": 0}
    with pytest.raises(UserError, match=r"has no folder for 'd' of dataset.class_names; it has 'a', 'b', 'c'"):
        load_image_folder(root=str(tmp_path), class_names=["c", "d"])
    with pytest.raises(UserError, match=r"dataset.num_classes=4, but .*/train has folders for 3 classes"):
        load_image_folder(root=str(tmp_path), num_classes=4)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["a/1.jpg"], {"eval_fraction": 1.0}, r"dataset.eval_fraction=1.0 must be 0 or more"),
        (["a/1.jpg"], {"eval_fraction": -0.1}, r"dataset.eval_fraction=-0.1 must be"),
        (["1.jpg"], {}, r"has no sub-folders; each class needs one.*dataset=listfile"),
        (["a/1.jpg", "b/notes.txt"], {}, r"/b: the class folder has no image \(avif bmp gif .*\); add some or remove"),
        (
            ["train/a/1.jpg", "val/a/1.jpg", "val/z/1.jpg"],
            {},
            r"/val has classes that the training folder has not: 'z'",
        ),
        (["train/a/1.jpg", "val/a/notes.txt"], {}, r"/val has no image of any class"),
        (["val/a/1.jpg", "test/a/1.jpg"], {}, r"test, val would be the classes, but these are names of splits"),
        (
            ["cats/1.jpg", "dogs/1.jpg", "val/cats/1.jpg", "val/dogs/1.jpg"],
            {},
            (
                r"/val is named like a split and has folders of images \('cats', 'dogs'\), but lies beside folders of "
                r"classes \('cats', 'dogs'\), .* Move all .* into .*/train, beside .*/val; or, if val is a class, re"
            ),
        ),
        (["cats/1.jpg", "train/1.jpg", "train/cats/x/1.jpg"], {}, r"/train is named like .* into [^ ]*/train; or, if"),
        (
            ["a/1.jpg", "Test/a/1.jpg"],
            {"eval_dir": None},
            r"/Test is named like .*/train, beside .*/test; or, if Test is",
        ),
        (["a/1.jpg", "val/a/1.jpg"], {"class_names": ["a"]}, r"/val is named like a split"),
        (["a/1.jpg"], {"train_dir": "fit"}, r"dataset.train_dir=.*/fit: there is no such folder"),
        (["a/1.jpg"], {"train_dir": "a"}, r"dataset.train_dir=a: .*/a has no class folders"),
        (["a/1.jpg"], {"eval_dir": "b"}, r"dataset.eval_dir=b is set, but .* has no folder 'train'"),
        (["train/a/1.jpg"], {"eval_dir": "b"}, r"dataset.eval_dir=.*/b: there is no such folder"),
    ],
)
def test_refuses(tmp_path: Path, names: list[str], options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_image_folder(root=make(tmp_path, *names), **options)


def test_classes_may_have_the_names_of_splits(tmp_path: Path) -> None:
    make(tmp_path, "a/1.jpg", "val/1.jpg", "val/deep/.x/1.jpg", "val/notes/x.txt", "test/b/1.jpg")
    (tmp_path / "test").rename(tmp_path / "exam")
    assert load_image_folder(root=str(tmp_path)).class_names == ("a", "exam", "val")
    make(tmp_path, "val/deep/1.jpg")
    names = ["val", "exam", "a"]
    assert load_image_folder(root=str(tmp_path), class_names=names).class_names == tuple(names)


def test_warns_of_images_in_no_class_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flat = make(tmp_path / "flat", "a/1.jpg", "a/2.jpg", "b/1.jpg", "3.jpg", "4.PNG", "5.tif", ".6.jpg", "readme.txt")
    assert load_image_folder(root=flat).class_names == ("a", "b")
    assert [m for m in caplog.messages if "in no class" in m] == [
        f"{flat}: 3 images left out that lie in no class folder; move them into one if meant as examples."
    ]
    caplog.clear()
    # Neither folder stops being a split's for an image of its own.
    both = make(tmp_path / "both", "train/a/1.jpg", "train/b/1.jpg", "train/x.jpg", "val/a/1.jpg", "val/x.jpg")
    assert held(load_image_folder(root=both).eval, tmp_path / "both") == {"val/a/1.jpg": 0}
    assert [m for m in caplog.messages if "in no class" in m] == [
        f"{both}/{name}: 1 image left out that lies in no class folder; move it into one if meant as examples."
        for name in ("train", "val")
    ]
    caplog.clear()
    fit = make(tmp_path / "fit", "fit/a/1.jpg", "fit/x.jpg", "other/1.jpg")
    assert load_image_folder(root=fit, train_dir="fit", eval_fraction=0).class_names == ("a",)
    assert "fit/fit: 1 image left out" in caplog.text


def test_refuses_a_missing_root_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset.root=.*/no: there is no such folder"):
        load_image_folder(root=str(tmp_path / "no"))
    make(tmp_path, "a/1.jpg", "a/2.jpg", "b/1.jpg")
    (tmp_path / "b" / "1.jpg").write_bytes(b"")
    (tmp_path / "b" / "2.jpg").symlink_to("gone.jpg")
    with pytest.raises(UserError, match=r"(?s)b/(1.jpg': empty \(0 bytes\)|2.jpg': a link to nothing)"):
        load_image_folder(root=str(tmp_path))
    assert load_image_folder(root=str(tmp_path), check_files=False).num_classes == 2


def test_warns_of_classes_that_are_not_judged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "x", "train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg")
    load_image_folder(root=str(tmp_path / "x"))
    assert "no image of these classes, so they are never judged: b" in caplog.text
    make(tmp_path / "y", "a/1.jpg", "b/1.jpg")
    assert load_image_folder(root=str(tmp_path / "y")).eval is None
    assert "no class has two images, so none is held out" in caplog.text


def test_lists_what_tensorflow_can_decode(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for suffix in ("jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp"):
        path = tmp_path / "a" / f"1.{suffix}"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 9)).save(path)
    dataset = load_image_folder(root=str(tmp_path), eval_fraction=0)
    assert len(dataset.train) == 8
    for path in dataset.train.paths:
        assert tf.io.decode_image(tf.io.read_file(path), expand_animations=False).shape[:2] == (9, 8)
