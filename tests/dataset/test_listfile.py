"""Lists become datasets: classes, messages, totals, speed of nothing but a few lines."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.dataset import format_path, load_listfile
from slimexp.errors import UserError


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def load(tmp_path: Path, text: str, eval_text: str | None = None, **options):
    """Loads lists of images that aren't there."""
    train_list = write(tmp_path, "train.txt", text)
    eval_list = None if eval_text is None else write(tmp_path, "eval.txt", eval_text)
    return load_listfile(train_list=train_list, eval_list=eval_list, check_files=False, **options)


def refuse(tmp_path: Path, text: str, eval_text: str | None = None, **options) -> str:
    with pytest.raises(UserError) as error:
        load(tmp_path, text, eval_text, **options)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_loads_real_images_of_awkward_names(tmp_path: Path) -> None:
    names = ["0.jpg", "my cat, 1.jpg", "étiquettes 中文/ein Bild.jpg", 'say "hi".jpg', "#1.jpg"]
    for name in names:
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / name, "JPEG")
    absolute = str(tmp_path / "images" / "0.jpg")
    lines = [f"{format_path(name)} -1:* 1:{i},7" for i, name in enumerate([*names, absolute])]
    train_list = write(tmp_path, "train.txt", "\ufeff# a comment\r\n\r\n" + " \t\r\n".join(lines))
    dataset = load_listfile(
        train_list=train_list, image_dir=str(tmp_path / "images"), num_classes=8, task="multi", name="mine"
    )
    assert (dataset.name, dataset.task, dataset.num_classes, dataset.eval) == ("mine", "multi", 8, None)
    assert dataset.class_names == tuple("01234567")
    assert [os.path.relpath(dataset.train.path(i), tmp_path / "images") for i in range(6)] == [*names, "0.jpg"]
    assert all(os.path.isfile(path) for path in dataset.train.paths)
    assert dataset.train.labels.dtype == np.int8
    assert dataset.train.labels[2].tolist() == [-1, -1, 1, -1, -1, -1, -1, 1]
    assert dataset.train.origin(0) == f"{train_list}:3"


def test_paths_start_from_the_lists_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path, "train.txt", "a.jpg 0")
    write(tmp_path / "other", "eval.txt", "a.jpg 1")
    monkeypatch.chdir(tmp_path / "other")
    dataset = load_listfile(train_list="../train.txt", eval_list="eval.txt", num_classes=2, check_files=False)
    assert dataset.train.paths[0] == os.fsencode(tmp_path / "a.jpg")
    assert dataset.eval is not None
    assert dataset.eval.paths[0] == os.fsencode(tmp_path / "other" / "a.jpg")
    assert dataset.train.origin(0) == "../train.txt:1"


def test_single_label_lists(tmp_path: Path) -> None:
    dataset = load(tmp_path, "a 0\nb 2\nc -1:* 1:1\n", "d 1", num_classes=3)
    assert dataset.train.labels.tolist() == [0, 2, 1]
    assert dataset.train.labels.dtype == np.int32
    assert dataset.class_names == ("0", "1", "2")
    dataset = load(tmp_path, "a 1\nb 3\n", num_classes=3, labels_offset=1)
    assert dataset.train.labels.tolist() == [0, 2]
    dataset = load(tmp_path, "a dog\nb 0\nc 1:1", class_names=["cat", "dog"])
    assert dataset.train.labels.tolist() == [1, 0, 1]


def test_classes_follow_from_the_names(tmp_path: Path) -> None:
    text = 'a dog\nb cat\nc\tgolden retriever\nd "dog"\ne "007"\n'
    dataset = load(tmp_path, text, "f cat\n")
    assert dataset.class_names == ("007", "cat", "dog", "golden retriever")
    assert dataset.train.labels.tolist() == [2, 1, 3, 2, 0]
    assert dataset.train.labels.dtype == np.int32
    assert dataset.eval is not None
    assert dataset.eval.labels.tolist() == [1]
    assert load(tmp_path, text, num_classes=4).num_classes == 4
    assert refuse(tmp_path, text, num_classes=5) == (
        "dataset.num_classes=5, but train.txt names 4 classes ('007', 'cat', 'dog', 'golden retriever'); leave "
        "dataset.num_classes out, or set dataset.class_names, which may have classes without an image."
    )
    message = refuse(tmp_path, text, "f cat\ng kat\n")
    assert (
        message
        == "1 bad line in train.txt and eval.txt:\n  eval.txt:2: 'kat': no class has this name; the nearest are 'cat'"
    )
    message = refuse(tmp_path, "a 1\nb cat\n", num_classes=3)
    assert message.startswith("train.txt gives some classes by name (line 2: 'cat') and some by index (line 1: 1); set")


def test_says_when_the_number_of_classes_is_unknown(tmp_path: Path) -> None:
    for text in ("# x\na 3\nb cat", "\na -1:* 1:3"):
        message = refuse(tmp_path, text)
        assert message.startswith("train.txt:2: ")
        assert "set dataset.num_classes=N, or dataset.class_names" in message
    message = refuse(tmp_path, "a 1:0\nb 1:", task="multi")
    assert message.startswith("train.txt:1: '1:0': labels are given by index here, which doesn't say how many classes")
    assert refuse(tmp_path, "a 1:\n", task="multi").startswith("train.txt:1: ")


def test_options_must_agree(tmp_path: Path) -> None:
    assert "dataset.task='both' must be single" in refuse(tmp_path, "a 0", task="both", num_classes=1)
    assert "dataset.num_classes=0 must be 1 or more" in refuse(tmp_path, "a 0", num_classes=0)
    for task in ("single", "multi"):
        message = refuse(tmp_path, "a 1:0", num_classes=2**31, task=task)
        assert message.startswith("dataset.num_classes=2147483648 must be 1000000 or less; it is how many classes")
    assert "dataset.num_classes=3, but dataset.class_names has 2 names" in refuse(
        tmp_path, "a 0", num_classes=3, class_names=["a", "b"]
    )
    assert load(tmp_path, "a 1:1", num_classes=2, class_names=["a", "b"], task="multi").class_names == ("a", "b")


def test_tells_the_first_ten_bad_lines_of_both_lists(tmp_path: Path) -> None:
    text = "a.jpg -1:* 1:0\n\nmy cat 1:2.jpg -1:* 1:0\nb.jpg 1:\nc.jpg 1:9\nd.jpg\n"
    message = refuse(tmp_path, text, "e.jpg 3\n" * 9, num_classes=7, task="multi")
    lines = message.split("\n")
    assert lines[0] == "13 bad lines in train.txt and eval.txt:"
    assert lines[1].startswith("  train.txt:3: 'cat': not a VALUE:INDICES term")
    assert lines[2].startswith("  train.txt:4: '1:': no index after the colon")
    assert lines[3] == "  train.txt:5: '9': the label is outside 0..6 (dataset.num_classes=7)"
    assert lines[4].startswith("  train.txt:6: 'd.jpg': no labels after the path")
    assert lines[5].startswith("  eval.txt:1: '3': a label needs its value here, as in 1:3")
    assert lines[11] == "  … and 3 more"
    assert len(lines) == 12


def test_label_equal_to_num_classes_is_refused(tmp_path: Path) -> None:
    message = refuse(tmp_path, "a.jpg 0\nb.jpg 7\n", num_classes=7)
    assert message == "1 bad line in train.txt:\n  train.txt:2: '7': the label is outside 0..6 (dataset.num_classes=7)"


def test_refuses_more_classes_than_it_can_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimexp.dataset.listfile._MAX_CLASSES", 2)
    text = "a x\nb y\nc z\n"
    assert "dataset.class_names has 3 names, but 2 classes are the most" in refuse(tmp_path, text, class_names=[*"xyz"])
    assert refuse(tmp_path, text).startswith(
        "train.txt names 3 classes, but 2 are the most there may be; is the second"
    )
    assert load(tmp_path, "a x\nb y\n").num_classes == 2


def test_refuses_numbers_as_names_of_other_classes(tmp_path: Path) -> None:
    message = refuse(tmp_path, "a 2\n", class_names=["3", "1", "2"])
    assert message.startswith("dataset.class_names: '3' is the name of the class with index 0, but a bare number in a")
    assert "leave dataset.class_names out and set dataset.num_classes." in message
    names = write(tmp_path, "names.txt", "cat\n9999999999999999999\n")
    message = refuse(tmp_path, "a 0\n", class_names=names)
    assert message.startswith(
        "dataset.class_names=names.txt: '9999999999999999999' is the name of the class with index 1"
    )
    message = refuse(tmp_path, "a 1\n", class_names=["0", "1"], labels_offset=1)
    assert message.startswith(
        "dataset.class_names: '0' is the name of the class with index 1 with dataset.labels_offset=1"
    )
    assert load(tmp_path, "a 2\n", class_names=["0", "cat", "02"]).train.labels.tolist() == [2]
    assert load(tmp_path, "a 2\n", class_names=["1", "2"], labels_offset=1).train.labels.tolist() == [1]
    assert load(tmp_path, "a 1:0\n", class_names=["3", "1"], task="multi").class_names == ("3", "1")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ("\n\n# nothing\n", "3 lines, all blank or comments"),
        ("#", "1 line, all blank or comments"),
        ("\ufeff", "the file is empty"),
    ],
)
@pytest.mark.parametrize("task", ["single", "multi"])
def test_refuses_empty_lists(tmp_path: Path, text: str, what: str, task: str) -> None:
    options: list[dict] = [{}, {"num_classes": 2}, {"class_names": ["x", "y"]}, {"num_classes": 2, "labels_offset": 1}]
    for given in options:
        message = f"dataset.train_list=train.txt names no image ({what}); write one image a line, as in a.jpg 3."
        assert refuse(tmp_path, text, task=task, **given) == message
        assert refuse(tmp_path, text, text, task=task, **given) == message
        if given or task == "single":
            line = "a 1:1" if given else "a cat"
            message = refuse(tmp_path, line, text, task=task, **given)
            assert message.startswith(f"dataset.eval_list=eval.txt names no image ({what}); write")


def test_refuses_multi_label_lists_that_say_nothing(tmp_path: Path) -> None:
    message = refuse(tmp_path, "a 0:*\nb 1:0 0:0\n", num_classes=2, task="multi")
    assert message == (
        "dataset.train_list=train.txt says nothing about any label of its 2 images: all are don't care, so there is "
        "nothing to learn from. Make labels positive or negative, as in a.jpg -1:* 1:0,7."
    )
    message = refuse(tmp_path, "a 0:*\nb -1:1\n", "c 0:1", num_classes=2, task="multi")
    assert message.startswith(
        "dataset.eval_list=eval.txt says nothing about any label of its 1 image: all are don't care"
    )
    assert message.endswith(
        "nothing to measure. Make labels positive or negative, as in a.jpg -1:* 1:0,7, or leave dataset.eval_list out."
    )


def test_refuses_missing_lists_and_folders(tmp_path: Path) -> None:
    write(tmp_path, "training.txt", "a 0")
    with pytest.raises(
        UserError, match=r"dataset.train_list=.*trainin.txt: there is no such file; nearest .*'training.txt'"
    ):
        load_listfile(train_list=str(tmp_path / "trainin.txt"), num_classes=1)
    with pytest.raises(UserError, match=r"dataset.eval_list=.* is a folder; name the file"):
        load_listfile(train_list=str(tmp_path / "training.txt"), eval_list=str(tmp_path), num_classes=1)
    with pytest.raises(UserError, match=r"dataset.image_dir=.*/no: there is no such folder"):
        load_listfile(train_list=str(tmp_path / "training.txt"), image_dir=str(tmp_path / "no"), num_classes=1)


def test_looks_for_the_images(tmp_path: Path) -> None:
    train_list = write(tmp_path, "train.txt", "a.jpg 0")
    with pytest.raises(UserError, match=r"train.txt:1: '.*/a.jpg': no such file"):
        load_listfile(train_list=train_list, num_classes=1)


def test_logs_totals_duplicates_and_shared_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    load(tmp_path, "# x\na 0\nb 0\na 1\n", "a 0\nc 0\n", num_classes=2)
    messages = [message.replace(f"{tmp_path}/", "") for message in caplog.messages]
    assert messages == [
        "train.txt: 4 lines, 3 images, 1 duplicate",
        (
            "train.txt: 1 image is named more than once with different labels, the first 'a' on lines 2 and 4; "
            "all these lines count, so keep the right ones only."
        ),
        "eval.txt: 2 lines, 2 images, 0 duplicates",
        "1 of the 2 images of eval.txt is in train.txt too, so the evaluation will look better than it is.",
    ]
    caplog.clear()
    load(tmp_path, "a 1:0\n", "a 1:1\nb 1:0\nb 1:0 -1:1\na 1:1\nb 1:1\na 0:1\n", num_classes=2, task="multi")
    messages = [message.replace(f"{tmp_path}/", "") for message in caplog.messages]
    assert messages[0] == "train.txt: 1 line, 1 image, 0 duplicates"
    assert messages[1] == "eval.txt: 6 lines, 6 images, 4 duplicates"
    assert "2 images are named more than once with different labels, the first 'b' on lines 2 and 3;" in messages[2]
    assert messages[3].startswith("3 of the 6 images of eval.txt are in train.txt too")
    caplog.clear()
    load(tmp_path, "a cat\nb dog\na cat\n")
    assert [message.replace(f"{tmp_path}/", "") for message in caplog.messages] == [
        "train.txt: 3 lines, 3 images, 1 duplicate"
    ]


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys, slimexp.dataset; "
        "print({'tensorflow', 'mlflow', 'sklearn', 'PIL', 'hydra', 'omegaconf'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
