from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.dataset import load_cifar10
from slimexp.dataset.tfrecord import parse_example
from slimexp.errors import UserError
from tests.dataset.trees import write_cifar10


def test_reads_the_binary_version(tmp_path: Path) -> None:
    pixels = write_cifar10(tmp_path / "cifar-10-batches-bin")
    for root in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        data = load_cifar10(root=str(root), cache_dir=str(tmp_path / "cache"))
    assert (data.name, data.image_side_px, data.class_names[1], data.class_names[9]) == (
        "cifar10",
        32,
        "automobile",
        "truck",
    )
    assert data.eval is not None
    assert (len(data.train), len(data.eval)) == (20, 4)
    assert data.train.labels is not None
    assert data.train.labels.tolist() == [number % 10 for number in range(20)]
    for split, first in ((data.train, 0), (data.eval, 20)):
        for index, record in split.read(range(len(split))).items():
            features = parse_example(record).features.feature
            image = Image.open(io.BytesIO(features["image/encoded"].bytes_list.value[0]))
            np.testing.assert_array_equal(np.asarray(image), pixels[first + index])
            assert features["image/class/label"].int64_list.value[0] == (first + index) % 10
    assert len([path for path in (tmp_path / "cache").iterdir() if path.name.startswith("cifar10-")]) == 1
    names = [f"kind {number}" for number in range(10)]
    assert (
        load_cifar10(root=str(tmp_path), class_names=names, cache_dir=str(tmp_path / "cache")).class_names[9]
        == "kind 9"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "none",
            r"there is no data_batch_1\.bin in .*, nor a folder cifar-10-batches-bin\. .*get cifar-10-binary\.tar",
        ),
        ("python", r"data_batch_1 is there: that is the Python version; the binary one is needed"),
        ("archive", r"cifar-10-binary\.tar\.gz is there: unpack it \(tar xzf"),
        ("batch", r"no data_batch_5\.bin .*https://www\.cs\.toronto\.edu/~kriz/cifar\.html \(CIFAR-10's own page\)"),
        ("cut", r"data_batch_2\.bin: 12291 bytes are no whole number of images of 3073 bytes each"),
        ("label", r"test_batch\.bin: image 1 \(counted from 0\) has the class 77; 0\.\.9 are allowed"),
        (
            "nowhere",
            r"there is no such folder; .*get cifar-10-binary\.tar\.gz, .*/cifar\.html .*unpack it in .*/source\.$",
        ),
        ("below", r"there is no such folder; .* unpack it in .*/source\.$"),
        ("names", r"batches\.meta\.txt: 1 different names; the 10 classes need one each"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: str, message: str) -> None:
    root = tmp_path / "source"
    root.mkdir()
    if change == "nowhere":
        root.rmdir()
    elif change == "below":
        root /= "cifar-10-batches-bin"
    elif change in ("batch", "cut", "label", "names"):
        write_cifar10(root)
    if change == "python":
        (root / "data_batch_1").touch()
    elif change == "archive":
        (root / "cifar-10-binary.tar.gz").touch()
    elif change == "batch":
        (root / "data_batch_5.bin").unlink()
    elif change == "cut":
        (root / "data_batch_2.bin").write_bytes((root / "data_batch_2.bin").read_bytes()[:-1])
    elif change == "label":
        content = bytearray((root / "test_batch.bin").read_bytes())
        content[3073] = 77
        (root / "test_batch.bin").write_bytes(content)
    elif change == "names":
        (root / "batches.meta.txt").write_text("cat\n" * 10)
    with pytest.raises(UserError, match=message):
        load_cifar10(root=str(root), cache_dir=str(tmp_path / "cache"))
