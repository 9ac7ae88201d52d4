"""Lists become datasets: classes, messages, totals, speed of nothing but a few lines."""

from __future__ import annotations

import logging
import os
import re
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
    assert "dataset.num_classes is not set, and a multi-label list" in refuse(tmp_path, "a 1:0", task="multi")


def test_options_must_agree(tmp_path: Path) -> None:
    assert "dataset.task='both' must be single" in refuse(tmp_path, "a 0", task="both", num_classes=1)
    assert "dataset.num_classes=0 must be 1 or more" in refuse(tmp_path, "a 0", num_classes=0)
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


@pytest.mark.parametrize("text", ["", "\n\n# nothing\n", "\ufeff"])
def test_refuses_empty_lists(tmp_path: Path, text: str) -> None:
    assert re.match(r"dataset.train_list=train.txt names no image", refuse(tmp_path, text, num_classes=2))
    assert re.match(r"dataset.eval_list=eval.txt names no image", refuse(tmp_path, "a 0", text, num_classes=2))


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
        "train.txt: 4 lines, 3 images, 1 duplicates",
        "eval.txt: 2 lines, 2 images, 0 duplicates",
        "1 of the 2 images of eval.txt are in train.txt too, so the evaluation will look better than it is.",
    ]


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys, slimexp.dataset; "
        "print({'tensorflow', 'mlflow', 'sklearn', 'PIL', 'hydra', 'omegaconf'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
