"""Loads CIFAR-10 from its binary version.

The files (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009), by their page: each image is
one byte with the class, then 1024 bytes of red, 1024 of green and 1024 of blue, row by row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from slimexp.dataset.checks import require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.kept_arrays import Arrays, load_kept
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError

__all__ = ["load_cifar10"]

_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_ARCHIVE = "cifar-10-binary.tar.gz"
_BELOW = "cifar-10-batches-bin"
_FILES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "eval": ["test_batch.bin"]}
_NAMES_FILE = "batches.meta.txt"
_NUM_CLASSES, _SIDE_PX = 10, 32
_IMAGE_BYTES = 1 + 3 * _SIDE_PX**2


def load_cifar10(
    *,
    root: str,
    class_names: Sequence[str] | str | None = None,
    cache_dir: str | None = None,
    name: str = "cifar10",
) -> Dataset:
    """Loads the training and the test images, and writes them to the cache as TFRecord files if they aren't there.

    Args:
        root: The folder with data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt, or the one
            with cifar-10-batches-bin in it.
        class_names: The name of each class, or a text file of them; by default those of batches.meta.txt.
        cache_dir: As for `load_digits`; TFRecord files with one PNG an image are kept there.
        name: The dataset's name, for run names.

    Returns:
        A single-label dataset of 32 x 32 pixels; the test images are its evaluation split.

    Raises:
        UserError: If a file is missing or not of this form, or the cache can't be written.
    """
    folder = require_folder(root, "dataset.root", _where_to_get)
    if os.path.isdir(os.path.join(folder, _BELOW)):
        folder = os.path.join(folder, _BELOW)
    wanted = [*_FILES["train"], *_FILES["eval"], *([_NAMES_FILE] if class_names is None else [])]
    paths = {name: _find(folder, root, name) for name in wanted}
    names = list(load_class_names(class_names)) if class_names is not None else _read_names(paths[_NAMES_FILE])

    def read() -> dict[str, Arrays]:
        return {split: _read_split([paths[name] for name in files]) for split, files in _FILES.items()}

    files = [paths[name] for split in _FILES.values() for name in split]
    return load_kept(files, read, name=name, kind="cifar10", class_names=names, cache_dir=cache_dir)


def _find(folder: str, root: str, name: str) -> str:
    path = os.path.join(folder, name)
    if os.path.isfile(path):
        return require_file(path, "dataset.root")
    hint = ""
    if os.path.isfile(os.path.join(folder, name.removesuffix(".bin"))):
        hint = f" {name.removesuffix('.bin')} is there: that is the Python version; the binary one is needed."
    elif os.path.isfile(os.path.join(folder, _ARCHIVE)):
        hint = f" {_ARCHIVE} is there: unpack it (tar xzf {_ARCHIVE})."
    also = "" if os.path.basename(folder) == _BELOW else f", nor a folder {_BELOW}"
    raise UserError(f"dataset.root={root}: there is no {name} in {folder}{also}.{hint} {_where_to_get(folder)}")


def _where_to_get(folder: str) -> str:
    # The archive makes the folder _BELOW.
    place = os.path.dirname(folder) if os.path.basename(folder) == _BELOW else folder
    return (
        f"Nothing is downloaded: get {_ARCHIVE}, the binary version, from {_PAGE} (CIFAR-10's own page), and unpack it "
        f"in {place}."
    )


def _read_names(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        names = [line.strip() for line in file if line.strip()]
    if len(names) != _NUM_CLASSES or len(set(names)) != _NUM_CLASSES:
        raise UserError(
            f"{path}: {len(set(names))} different names; the {_NUM_CLASSES} classes need one each, one a line."
        )
    return names


def _read_split(paths: list[str]) -> Arrays:
    images, labels = [], []
    for path in paths:
        try:
            contents = np.fromfile(path, np.uint8)
        except OSError as error:
            raise UserError(f"{path}: the file cannot be read: {error.strerror}.") from error
        if len(contents) == 0 or len(contents) % _IMAGE_BYTES:
            raise UserError(
                f"{path}: {len(contents)} bytes are no whole number of images of {_IMAGE_BYTES} bytes each; it is cut "
                "short or not CIFAR-10's binary version. Fetch it again."
            )
        rows = contents.reshape(-1, _IMAGE_BYTES)
        bad = np.flatnonzero(rows[:, 0] >= _NUM_CLASSES)
        if len(bad):
            raise UserError(
                f"{path}: image {bad[0]} (counted from 0) has the class {rows[bad[0], 0]}; 0..{_NUM_CLASSES - 1} are "
                "allowed. It is damaged or not CIFAR-10's binary version."
            )
        labels.append(rows[:, 0])
        # Planes of red, green and blue -> pixels.
        images.append(rows[:, 1:].reshape(-1, 3, _SIDE_PX, _SIDE_PX).transpose(0, 2, 3, 1))
    return Arrays(np.concatenate(images), np.concatenate(labels))
