from __future__ import annotations

import logging
from pathlib import Path

import pytest

from slimexp.dataset import load_flowers, load_imagenet
from slimexp.errors import UserError
from tests.records import write_shards


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))


def test_flowers(tmp_path: Path) -> None:
    for split, counts in (("train", [2, 1]), ("validation", [1])):
        for path in write_shards(tmp_path / "data", counts, name=split):
            path.rename(path.with_name(f"flowers_{path.name.replace('-', '_', 1)}.tfrecord"))
    data = load_flowers(root=str(tmp_path / "data"))
    assert data.eval is not None
    assert (data.name, len(data.train), len(data.eval), data.class_names[4]) == ("flowers", 3, 1, "tulips")
    (tmp_path / "data" / "labels.txt").write_text("0:a\n1:b\n2:c\n3:d\n4:e\n")
    assert load_flowers(root=str(tmp_path / "data")).class_names == tuple("abcde")


def test_imagenet_with_and_without_the_background_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_shards(tmp_path, [1, 1], label=lambda number: 1000)
    write_shards(tmp_path, [1], name="validation", label=lambda number: 1)
    data = load_imagenet(root=str(tmp_path))
    assert data.eval is not None
    assert (data.num_classes, data.train.label.rule) == (1001, "one whole number in 0..1000")
    data = load_imagenet(root=str(tmp_path), labels_offset=1)
    assert (data.num_classes, data.train.label.rule) == (1000, "one whole number in 1..1000")
    # As TF-Slim writes them: two classes are cranes.
    names = ["background", *(f"name {number}" for number in range(1, 1001))]
    names[135] = names[518] = "crane"
    lines = [f"{number}:{name}\n" for number, name in enumerate(names)]
    (tmp_path / "labels.txt").write_text("".join(lines))
    assert load_imagenet(root=str(tmp_path)).class_names[135:519:383] == ("crane (135)", "crane (518)")
    data = load_imagenet(root=str(tmp_path), labels_offset=1)
    assert (data.class_names[0], data.class_names[134]) == ("name 1", "crane (134)")
    with pytest.raises(UserError, match=r"num_classes=1001, but dataset\.class_names has 2 names"):
        load_imagenet(root=str(tmp_path), class_names=["a", "b"])
    with pytest.raises(UserError, match=r"num_classes=1000: dataset\.labels_offset=0 keeps .* 1001; .*=1 makes 1000\."):
        load_imagenet(root=str(tmp_path), num_classes=1000)
    with pytest.raises(UserError, match=r"num_classes=1001: dataset\.labels_offset=1 drops .* 1000; .*=0 makes 1001\."):
        load_imagenet(root=str(tmp_path), num_classes=1001, labels_offset=1)
    with pytest.raises(UserError, match=r"labels_offset=2 must be 0 \(1001 classes.* or 1 \(1000 classes\)"):
        load_imagenet(root=str(tmp_path), labels_offset=2)
    (tmp_path / "train-00000-of-00002").unlink()
    with caplog.at_level(logging.WARNING):
        load_imagenet(root=str(tmp_path))
    assert "train: 1 of the 2 shards is not there, the first number 00000; its examples will be left out" in caplog.text


def test_without_shards_it_says_where_they_come_from(tmp_path: Path) -> None:
    message = (
        r"root=.*: no file matches .*/flowers_train_\*-of-\*\.tfrecord\. Nothing is downloaded: .*flower_photos\.tgz"
    )
    with pytest.raises(UserError, match=message):
        load_flowers(root=str(tmp_path))
    with pytest.raises(UserError, match=r"no file matches .*/train-\*-of-\*\. Nothing is downloaded: .*image-net\.org"):
        load_imagenet(root=str(tmp_path))
    for load, page in ((load_flowers, r"flower_photos\.tgz"), (load_imagenet, r"https://image-net\.org/download")):
        message = rf"there is no such folder; .* Nothing is downloaded: .*{page}\. Put them into {tmp_path}/no\.$"
        with pytest.raises(UserError, match=message):
            load(root=str(tmp_path / "no"))


def test_brackets_in_the_folders_name(tmp_path: Path) -> None:
    write_shards(tmp_path / "of [2012]", [1], label=lambda number: 3)
    assert len(load_imagenet(root=str(tmp_path / "of [2012]")).train) == 1
