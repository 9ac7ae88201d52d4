"""Conversions in earnest: what goes round comes back as it was, and what cannot is said."""

from __future__ import annotations

import csv
import filecmp
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from slimexp.convert import convert
from slimexp.convert.conversion import Counts
from slimexp.convert.source import load_source
from slimexp.dataset import load_image_folder, load_listfile, load_tfrecord
from slimexp.dataset.record_file import read_record
from slimexp.dataset.tfrecord import parse_example
from slimexp.errors import UserError
from tests.dataset.trees import write_mnist, write_voc
from tests.records import damage, example, picture, write_shards


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write_images(folder: Path, names: list[str]) -> None:
    random = np.random.RandomState(3)
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = random.randint(0, 256, [8 + number, 12, 3]).astype(np.uint8)
        suffix = Path(name).suffix[1:].upper().replace("JPG", "JPEG")
        Image.fromarray(pixels).save(folder / name, suffix if suffix in ("JPEG", "PNG", "GIF", "WEBP") else "JPEG")


def go(
    source: str, target: str, to: str = "records", how: dict[str, Any] | None = None, **options: Any
) -> dict[str, Counts]:
    return convert(load_source(source, **options), target, to, **(how or {})).counts


NAMES = ["a.jpg", "my cat, 1.jpg", "étiquettes 中文/b.png", 'q"uote.jpg', "#hash.gif", "deep/er/c.webp", "no_suffix"]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Two lists with names that need care, one of them with labels of every kind."""
    write_images(tmp_path / "images", NAMES)
    multi = ["-1:* 1:0,2", "1:* 0:1", "0:*", "-1:*", "1:1", "-1:* 0:0,2", "1:*"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    (tmp_path / "multi.txt").write_text("".join(f"{n} {m}\n" for n, m in zip(quoted, multi, strict=True)))
    (tmp_path / "single.txt").write_text("".join(f"{n} {i % 3}\n" for i, n in enumerate(quoted)) + "a.jpg 0\n")
    (tmp_path / "eval.txt").write_text("deep/er/c.webp 1\n")
    (tmp_path / "names.txt").write_text("red\nleaf green\nblue\n")
    return tmp_path


def same_files(one: Path, other: Path, names: list[str]) -> bool:
    return filecmp.cmpfiles(one, other, names, shallow=False) == (names, [], [])


def test_list_records_list_is_the_same(listed: Path) -> None:
    options = {"image_dir": "images", "class_names": "names.txt"}
    counts = go("single.txt", "records", how={"num_shards": 3}, eval_path="eval.txt", **options)
    assert counts == {"train": Counts(8, 8, 0), "eval": Counts(1, 1, 0)}
    assert sorted(os.listdir("records")) == [
        *("conversion.json", "eval-00000-of-00001.tfrecord", "labels.txt"),
        *(f"train-0000{number}-of-00003.tfrecord" for number in range(3)),
    ]
    # TF-Slim's features, and the name; as training reads them.
    data = load_tfrecord(root="records", file_pattern="%s-*")
    assert (data.class_names, len(data.train), len(data.eval or ())) == (("red", "leaf green", "blue"), 8, 1)
    features = parse_example(read_record(os.fsencode("records/train-00001-of-00003.tfrecord"), 0)).features.feature
    assert features["image/encoded"].bytes_list.value[0] == Path("images", NAMES[2]).read_bytes()
    assert {key: list(value.bytes_list.value or value.int64_list.value) for key, value in features.items()} == {
        "image/encoded": [Path("images", NAMES[2]).read_bytes()],
        "image/format": [b"png"],
        "image/class/label": [2],
        "image/class/text": [b"blue"],
        "image/height": [10],
        "image/width": [12],
        "image/filename": [NAMES[2].encode()],
    }
    go("records", "again", "list")
    assert same_files(Path("images"), Path("again"), NAMES)
    first = load_listfile(train_list="single.txt", eval_list="eval.txt", **options)
    again = load_listfile(train_list="again/train.txt", eval_list="again/eval.txt", class_names="again/labels.txt")
    for one, other in ((first.train, again.train), (first.eval, again.eval)):
        assert [Path(os.fsdecode(path)).relative_to(listed / "images") for path in one.paths] == [
            Path(os.fsdecode(path)).relative_to(listed / "again") for path in other.paths
        ]
        np.testing.assert_array_equal(one.labels, other.labels)
    assert first.class_names == again.class_names
    # The next time around nothing changes any more, not even the bytes of the list and of the records.
    go("again", "records2", how={"num_shards": 3})
    go("records2", "again2", "list")
    lists = ["train.txt", "eval.txt", "labels.txt"]
    assert same_files(Path("again"), Path("again2"), [*lists, *NAMES])
    assert same_files(Path("records"), Path("records2"), sorted(set(os.listdir("records")) - {"conversion.json"}))


def test_dont_care_survives(listed: Path) -> None:
    go("multi.txt", "records", image_dir="images", class_names="names.txt", task="multi")
    data = load_tfrecord(root="records", file_pattern="%s-*", task="multi", label_form="signed")
    (record,) = data.train.read([1]).values()
    features = parse_example(record).features.feature
    assert list(features["image/class/label"].int64_list.value) == [1, 0, 1]
    assert list(features["image/class/text"].bytes_list.value) == [b"red", b"blue"]
    go("records", "again", "list")
    first = load_listfile(train_list="multi.txt", image_dir="images", num_classes=3, task="multi")
    again = load_listfile(train_list="again/train.txt", num_classes=3, task="multi")
    np.testing.assert_array_equal(first.train.labels, again.train.labels)
    assert Path("again/train.txt").read_text().splitlines()[:3] == [
        "a.jpg 1:* -1:1",
        '"my cat, 1.jpg" 1:* 0:1',
        '"étiquettes 中文/b.png" 0:*',
    ]
    with pytest.raises(UserError, match=r"--to=folder: an image lies in one class's folder, but these have several"):
        go("records", "folder", "folder")


def test_pascal_voc_to_records(tmp_path: Path) -> None:
    write_voc(tmp_path / "VOC2012")
    assert go("VOC2012", "records") == {"train": Counts(4, 4, 0), "eval": Counts(2, 2, 0)}
    data = load_source("records").data
    assert (data.task, data.class_names) == ("multi", ("cat", "dog", "emu"))
    go("records", "list", "list")
    again = load_listfile(train_list="list/train.txt", class_names="list/labels.txt", task="multi")
    assert again.train.labels.tolist() == [[1, -1, -1], [-1, 1, -1], [0, 0, 1], [1, 1, 0]]
    assert again.train.path(0) == f"{tmp_path}/list/JPEGImages/2008_0000.jpg"


def test_folder_records_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{split}/{name}/{number}.jpg" for split in ("train", "val") for name in "ba" for number in range(6)]
    write_images(tmp_path / "photos", names)
    write_images(tmp_path / "photos" / "train" / "c", ["sub/.1.jpg", "sub/x.jpg"])
    with caplog.at_level(logging.INFO):
        go("photos", "records", how={"num_shards": 2})
    assert "put in another order (seed 0); --shuffle=no keeps that of the source" in caplog.text
    data = load_source("records").data
    labels = [
        parse_example(record).features.feature["image/class/label"].int64_list.value[0]
        for record in data.train.read(range(13)).values()
    ]
    assert sorted(labels) == [0] * 6 + [1] * 6 + [2]
    assert labels != sorted(labels)
    go("records", "again", "folder")
    again = load_image_folder(root="again")
    assert again.class_names == ("a", "b", "c")
    expected = {name.replace("val", "eval") for name in names} | {"train/c/sub/x.jpg"}
    assert {str(path.relative_to("again")) for path in Path("again").rglob("*.jpg")} == expected
    for name in names:
        assert Path("photos", name).read_bytes() == Path("again", name.replace("val", "eval")).read_bytes()
    go("photos", "plain", how={"shuffle": False})
    assert load_source("plain").data.train.read([0])[0] != data.train.read([0])[0]


def test_mnist_to_a_folder(tmp_path: Path) -> None:
    arrays = write_mnist(tmp_path / "mnist")
    go("mnist", "photos", "folder")
    np.testing.assert_array_equal(np.asarray(Image.open("photos/train/7/00017.png")), arrays["train-images"][17])
    data = load_source("photos").data
    assert (len(data.train), len(data.eval or ())) == (20, 6)


def test_a_folder_cannot_say_everything(tmp_path: Path) -> None:
    write_images(tmp_path, ["1.dat", ".hidden.jpg", "x/3/odd.jpg"])
    (tmp_path / "list.txt").write_text("1.dat 0\n.hidden.jpg 1\nx/3/odd.jpg 3\n")
    with pytest.raises(
        UserError, match=r"1 of the 4 classes have no training image \(2\); a folder of classes cannot say"
    ):
        go("list.txt", "photos", "folder", num_classes=4)
    (tmp_path / "list.txt").write_text("1.dat 0\n.hidden.jpg 1\nx/3/odd.jpg 3\nx/3/odd.jpg 2\n")
    go("list.txt", "photos", "folder", num_classes=4)
    assert sorted(str(path.relative_to("photos/train")) for path in Path("photos/train").rglob("*.*")) == [
        *("0/1.dat.jpg", "1/_.hidden.jpg", "2/x/3/odd.jpg", "3/odd.jpg"),
    ]
    assert len(load_image_folder(root="photos", eval_fraction=0).train) == 4
    with pytest.raises(
        UserError, match=r"the class 'a/b' cannot be a folder: its name has a slash or begins with a dot"
    ):
        go("list.txt", "other", "folder", class_names=["a/b", "c", "d", "e"])
    with pytest.raises(UserError, match=r"the class name ' a' cannot stand in labels\.txt"):
        go("list.txt", "other", class_names=[" a", "c", "d", "e"])
    assert not Path("other").exists()


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """12 images of which three cannot be read."""
    write_images(tmp_path, [f"{number}.jpg" for number in range(12)])
    (tmp_path / "3.jpg").write_bytes((tmp_path / "3.jpg").read_bytes()[:200])
    (tmp_path / "4.jpg").write_bytes(b"")
    (tmp_path / "9.jpg").write_text("hello")
    (tmp_path / "list.txt").write_text("".join(f"{number}.jpg {number % 2}\n" for number in range(12)))
    return tmp_path


def test_bad_images_stop_it_or_are_counted(spoilt: Path) -> None:
    options: dict[str, Any] = {"num_classes": 2, "allow_empty_files": True}
    with pytest.raises(UserError) as raised:
        go("list.txt", "records", **options)
    text = str(raised.value)
    assert text.startswith("3 images of the train split cannot be read, among those looked at:\n")
    assert f"list.txt:4: '{spoilt}/3.jpg': the JPEG is cut short" in text
    assert "list.txt:5: " in text
    assert f"list.txt:10: '{spoilt}/9.jpg': it is something that begins with b'hello'" in text
    assert text.endswith("leave such images out with --on-bad-image=skip.")
    assert not Path("records").exists()
    skip = {"on_bad_image": "skip", "num_shards": 4}
    assert go("list.txt", "records", how=skip, **options) == {"train": Counts(12, 9, 3)}
    with open("records/rejected.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["split"], row["origin"]) for row in rows] == [
        ("train", f"{spoilt}/list.txt:{line}") for line in (4, 5, 10)
    ]
    assert load_source("records").data.train.counts.tolist() == [3, 1, 3, 2]
    assert json.loads(Path("records/conversion.json").read_text())["splits"] == {
        "train": {"listed": 12, "written": 9, "rejected": 3}
    }
    # By the beginning alone most faults show too.
    assert go("list.txt", "again", "list", how={**skip, "decode": False}, **options)["train"].rejected == 3
    (spoilt / "5.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of the 12 train images can't be read:\n.*list\.txt:6: .*no such file"):
        go("list.txt", "third", how=skip, **options)
    (spoilt / "list.txt").write_text("3.jpg 0\n4.jpg 1\n")
    with pytest.raises(UserError, match=r"none of the 2 images of the train split can be read; the first: '.*3\.jpg'"):
        go("list.txt", "third", how=skip, **options)


def test_damaged_records(tmp_path: Path) -> None:
    paths = write_shards(
        tmp_path / "data", [4, 3], replace={5: example(image__encoded=b"no picture", image__class__label=1)}
    )
    damage(paths[0], len(paths[0].read_bytes()) // 2)
    with pytest.raises(
        UserError, match=r"(?s)2 images of the train split cannot be read.*'.*#\d': .*do not match their ch"
    ):
        go("data", "list", "list", num_classes=5)
    counts = go("data", "list", "list", how={"on_bad_image": "skip"}, num_classes=5)
    assert counts == {"train": Counts(7, 5, 2)}
    lines = Path("list/train.txt").read_text().splitlines()
    # Without names they are numbered.
    assert lines[-1] == "train/00000006.jpg 1"
    assert Path("list/train/00000006.jpg").read_bytes() == picture(6)
    write_shards(tmp_path / "wrong", [2], label=lambda number: 7 * number)
    with pytest.raises(
        UserError, match=r"of-00001#1: the label is 7; one whole number in 0\.\.4 allowed \(5 classes\)"
    ):
        go("wrong", "x", how={"on_bad_image": "skip"}, num_classes=5)
    write_shards(tmp_path / "none", [2], replace={1: example(image__class__label=1)})
    with pytest.raises(UserError, match=r"#1: dataset\.image_key=image/encoded holds 0 byte strings; it must hold one"):
        go("none", "x", num_classes=5)
    write_shards(tmp_path / "bytes", [2], replace={1: b"\xff\xff"})
    with pytest.raises(UserError, match=r"#1: it is no tf\.train\.Example"):
        go("bytes", "x", num_classes=5)


def test_names_in_records_lead_nowhere_else_and_collide_with_nothing(tmp_path: Path) -> None:
    names = [b"../../up.jpg", b"/etc/abs.jpg", b"train.txt", b"same.jpg", b"same.jpg", b"same.jpg", b".."]
    numbers = [0, 1, 2, 3, 3, 4, 5]
    records = {
        place: example(image__encoded=picture(number), image__class__label=0, image__filename=name)
        for place, (number, name) in enumerate(zip(numbers, names, strict=True))
    }
    write_shards(tmp_path / "data", [7], replace=records)
    go("data", "list", "list", num_classes=1)
    assert Path("list/train.txt").read_text().splitlines() == [
        *("up.jpg 0", "etc/abs.jpg 0", "images/train.txt 0", "same.jpg 0", "same.jpg 0", "same-2.jpg 0"),
        "train/00000006.jpg 0",
    ]
    assert Path("list/same-2.jpg").read_bytes() == picture(4)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "list", "cache"}


@pytest.mark.parametrize(
    ("form", "labels", "expected"),
    [
        ("indices", [[1], [], [1, 3]], [[1, -1, -1], [-1, -1, -1], [1, -1, 1]]),
        ("binary", [[1, 0, 0], [0, 0, 0], [1, 0, 1]], [[1, -1, -1], [-1, -1, -1], [1, -1, 1]]),
        ("signed", [[1.0, 0.0, -1.0]] * 3, [[1, 0, -1]] * 3),
    ],
)
def test_every_form_of_labels_is_read(tmp_path: Path, form: str, labels: list[Any], expected: list[Any]) -> None:
    write_shards(tmp_path / "data", [3], label=lambda number: labels[number])
    options = {"num_classes": 3, "task": "multi", "label_form": form, "labels_offset": int(form == "indices")}
    go("data", "list", "list", **options)
    data = load_listfile(train_list="list/train.txt", num_classes=3, task="multi")
    assert data.train.labels.tolist() == expected


def test_links(spoilt: Path) -> None:
    (spoilt / "list.txt").write_text("0.jpg 0\n1.jpg 1\n")
    go("list.txt", "hard", "list", how={"link": "hard"}, num_classes=2)
    assert os.stat("hard/0.jpg").st_ino == os.stat("0.jpg").st_ino
    go("list.txt", "soft", "folder", how={"link": "symbolic"}, num_classes=2)
    assert os.readlink("soft/train/1/1.jpg") == f"{spoilt}/1.jpg"
    with pytest.raises(UserError, match=r"--link=hard: links lead from files to files; records hold their pictures in"):
        go("list.txt", "records", how={"link": "hard"}, num_classes=2)
    # A link to what is itself a link leads to the file.
    go("soft/train/1/../..", "soft2", "folder", how={"link": "symbolic"})
    assert os.readlink("soft2/train/1/1.jpg") == f"{spoilt}/1.jpg"


def test_what_stands_in_the_way(spoilt: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"num_classes": 2, "allow_empty_files": True}
    (spoilt / "list.txt").write_text("".join(f"{number}.jpg {int(number > 5)}\n" for number in (0, 1, 2, 6, 7)))
    with caplog.at_level(logging.WARNING):
        go("list.txt", "records", **options)
    assert (
        "list.txt is sorted by class, so these records will be read in blocks of a class; --shuffle=yes" in caplog.text
    )
    with pytest.raises(UserError, match=r"--shuffle=yes: records are read from front to back"):
        go("records", "again", how={"shuffle": True})
    with pytest.raises(UserError, match=r"--shards=0 must be 1 or more"):
        go("list.txt", "again", how={"num_shards": 0}, **options)
    with pytest.raises(UserError, match=r"--threads=0 must be 1 or more"):
        go("list.txt", "again", how={"threads": 0}, **options)
    with pytest.raises(UserError, match=r"TARGET=.* holds .*list\.txt, which is to be converted"):
        go("list.txt", str(spoilt), how={"overwrite": True}, **options)
    with pytest.raises(UserError, match=r"TARGET=.*/records is not empty"):
        go("list.txt", "records", **options)
    write_images(spoilt / "photos", ["a/1.jpg", "b/1.jpg"])
    with pytest.raises(
        UserError, match=r"TARGET=.*/photos/records lies in SOURCE, where it would be taken for a class"
    ):
        go("photos", "photos/records")
    # An image from elsewhere, so names count from the folder that holds both.
    (spoilt / "sub").mkdir()
    (spoilt / "sub" / "list.txt").write_text("../0.jpg 0\n../photos/a/1.jpg 1\n")
    go("sub/list.txt", "moved", "list", num_classes=2)
    assert Path("moved/train.txt").read_text() == "0.jpg 0\nphotos/a/1.jpg 1\n"


def test_a_name_that_no_list_can_hold(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", ["a/1.jpg", "b/1.jpg"])
    os.rename(b"photos/a/1.jpg", b"photos/a/\xff.jpg")
    with pytest.raises(
        UserError, match=r"is not UTF-8, so it cannot stand in a list file; rename the file, or convert to"
    ):
        go("photos", "list", "list")
    go("photos", "records")
    go("records", "again", "folder")
    assert os.listdir(b"again/train/a") == [b"\xff.jpg"]
    os.rename(b"photos/a/\xff.jpg", b"photos/a/1\n.jpg")
    with pytest.raises(UserError, match=r"can't stand in a list file"):
        go("photos", "list", "list")
