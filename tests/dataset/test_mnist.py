from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.dataset import class_counts, describe, fingerprint, kept_arrays, load_mnist
from slimexp.dataset.record_file import count_records
from slimexp.dataset.tfrecord import parse_example
from slimexp.errors import UserError
from tests.dataset.trees import write_idx, write_mnist


def test_keeps_the_images_as_png_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = write_mnist(tmp_path / "source")
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))
    data = load_mnist(root=str(tmp_path / "source"))
    assert (data.name, data.task, data.image_side_px) == ("mnist", "single", 28)
    assert data.class_names == tuple("0123456789")
    assert data.eval is not None
    assert (len(data.train), len(data.eval)) == (20, 6)
    assert [count_records(shard) for shard in data.train.shards] == data.train.counts.tolist()
    for split, prefix in ((data.train, "train"), (data.eval, "t10k")):
        for index, record in split.read(range(len(split))).items():
            features = parse_example(record).features.feature
            image = Image.open(io.BytesIO(features["image/encoded"].bytes_list.value[0]))
            assert (image.format, image.mode) == ("PNG", "L")
            np.testing.assert_array_equal(np.asarray(image), arrays[f"{prefix}-images"][index])
            assert list(features["image/class/label"].int64_list.value) == [arrays[f"{prefix}-labels"][index]]
            assert [features[f"image/{side}"].int64_list.value[0] for side in ("height", "width")] == [28, 28]
    # The labels are known, so they are counted and described.
    assert class_counts(data.train, 10).tolist() == [2] * 10
    assert "Train images a class: 2 each." in describe(data)
    # Found again: by other names, in another place; and made anew when damaged.
    monkeypatch.setattr(kept_arrays, "_write", None)
    names = ["top", *"123456789"]
    again = load_mnist(root=str(tmp_path / "source"), class_names=names, name="fashion")
    assert (again.name, again.class_names[0]) == ("fashion", "top")
    assert fingerprint(again.train) == fingerprint(data.train)
    monkeypatch.undo()
    shard = Path(os.fsdecode(data.train.shards[0]))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    load_mnist(root=str(tmp_path / "source"), cache_dir=str(tmp_path / "cache"))
    assert shard.read_bytes() == whole
    with pytest.raises(
        UserError, match=r"the train image 3 \(counted from 0\) has label 3; with 3 class names .* 0\.\.2 are"
    ):
        load_mnist(root=str(tmp_path / "source"), class_names=["a", "b", "c"], cache_dir=str(tmp_path / "cache"))


def test_missing_files_and_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    message = (
        r"there is no train-images-idx3-ubyte, nor train-images-idx3-ubyte\.gz, train-images\.idx3-ubyte, .*"
        r"get train-images-idx3-ubyte\.gz, train-labels-.*, t10k-.* and t10k-labels-idx1-ubyte\.gz from "
        r"http://yann\.lecun\.com/exdb/mnist/ .*put them into "
    )
    with pytest.raises(UserError, match=message):
        load_mnist(root=str(tmp_path))
    message = (
        r"there is no such folder; .* is empty\. Nothing is downloaded: .*/exdb/mnist/ .*put them into .*/nowhere\."
    )
    with pytest.raises(UserError, match=message):
        load_mnist(root=str(tmp_path / "nowhere"))
    write_mnist(tmp_path / "MNIST" / "raw")
    (labels,) = (tmp_path / "MNIST" / "raw").glob("t10k-labels*")
    labels.rename(tmp_path / "kept")
    message = r"there is no t10k-labels-.*get t10k-labels-idx1-ubyte\.gz from .*-ubyte\.gz \(a copy\), and put it into"
    with pytest.raises(UserError, match=message):
        load_mnist(root=str(tmp_path))
    (tmp_path / "kept").rename(labels)
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"mnist as TFRecord files can't be written to .*/file/cache \(Not a directory\)"
    ):
        load_mnist(root=str(tmp_path), cache_dir=str(tmp_path / "file" / "cache"))


ZEROS = np.zeros([2, 28, 28], np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cut", r"its header says 2 x 28 x 28 bytes, so 1584 with the header, but it has 1583; fetch"),
        ("long", r"so 1584 with the header, but it has 1585"),
        ("other", r"it begins with b'.x00.x00.x08.x01', where an IDX file of unsigned bytes in 3 dimensions begins"),
        ("type", r"it begins with b'.x00.x00.r.x03'"),
        ("gzip", r"the gzip file is damaged or cut short"),
        ("empty", r"it begins with b''"),
        ("none", r"its header says 0 x 28 x 28, so there is nothing in it"),
        ("few", r"images-idx3-ubyte has 2 images, but .*labels-idx1-ubyte has 3 labels"),
    ],
)
def test_damaged_files(tmp_path: Path, change: str, message: str) -> None:
    write_mnist(tmp_path, num_train=3)
    images = write_idx(tmp_path / "train-images-idx3-ubyte", ZEROS)
    content = images.read_bytes()
    if change in ("cut", "long", "empty"):
        images.write_bytes({"cut": content[:-1], "long": content + b"x", "empty": b""}[change])
    elif change == "other":
        write_idx(images, ZEROS[0, 0])
    elif change == "type":
        write_idx(images, ZEROS, kind=13)
    elif change == "gzip":
        packed = write_idx(tmp_path / "x.gz", ZEROS).read_bytes()
        images.write_bytes(packed[:-9])
    elif change == "none":
        write_idx(images, ZEROS[:0])
    with pytest.raises(UserError, match=message):
        load_mnist(root=str(tmp_path), cache_dir=str(tmp_path / "cache"))
