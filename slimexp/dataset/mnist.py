"""Loads MNIST, or data in the same form (Fashion-MNIST, KMNIST), from its four IDX files.

The files (Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits"), unpacked or with .gz, lie
in one folder. The format, by that page: two zero bytes, the type of the values (8: unsigned bytes), the number of
dimensions, each dimension as four bytes with the highest first, then the values.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Sequence

import numpy as np

from slimexp.dataset.checks import require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.kept_arrays import Arrays, load_kept
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError

__all__ = ["load_mnist"]

_PAGE = "http://yann.lecun.com/exdb/mnist/"
_COPY = "https://storage.googleapis.com/cvdf-datasets/mnist/"  # The page has been closed at times.
_PREFIXES = {"train": "train", "eval": "t10k"}
_KINDS = {"images": 3, "labels": 1}  # What a file holds, and in how many dimensions.
_UNSIGNED_BYTE = 8
_NUM_CLASSES = 10
# Where torchvision keeps them, below the folder that it is given.
_BELOW = ("", "raw", "MNIST/raw")


def load_mnist(
    *,
    root: str,
    class_names: Sequence[str] | str | None = None,
    cache_dir: str | None = None,
    name: str = "mnist",
) -> Dataset:
    """Loads the training and the test images, and writes them to the cache as TFRecord files if they aren't there.

    Args:
        root: The folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
            t10k-labels-idx1-ubyte, each as it is or with .gz, also with a dot before idx.
        class_names: The name of each class, or a text file of them; by default "0" to "9".
        cache_dir: As for `load_digits`; TFRecord files with one PNG an image are kept there.
        name: The dataset's name, for run names.

    Returns:
        A single-label dataset; the test images are its evaluation split.

    Raises:
        UserError: If a file is missing or not of this form, the numbers of images and labels differ, a label has no
            name, or the cache can't be written.
    """
    names = [str(digit) for digit in range(_NUM_CLASSES)]
    if class_names is not None:
        names = list(load_class_names(class_names))
    wanted = [(split, kind) for split in _PREFIXES for kind in _KINDS]
    folder = require_folder(root, "dataset.root", lambda missing: _where_to_get(wanted, missing))
    files = {which: path for which in wanted if (path := _find(folder, *which)) is not None}
    missing = [which for which in wanted if which not in files]
    if missing:
        first, *others = _names(*missing[0])
        raise UserError(
            f"dataset.root={root}: there is no {first}, nor {', '.join(others)}. {_where_to_get(missing, folder)}"
        )

    def read() -> dict[str, Arrays]:
        return {split: _read_split(files[split, "images"], files[split, "labels"]) for split in _PREFIXES}

    return load_kept(list(files.values()), read, name=name, kind="mnist", class_names=names, cache_dir=cache_dir)


def _names(split: str, kind: str) -> list[str]:
    """Returns what a file may be called, first its own name, then that under which it is published."""
    stem = f"{_PREFIXES[split]}-{kind}"
    return [f"{stem}{mark}idx{_KINDS[kind]}-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz")]


def _where_to_get(missing: Sequence[tuple[str, str]], folder: str) -> str:
    names = [_names(split, kind)[1] for split, kind in missing]
    listed, so_on, them = names[0], "", "it"
    if len(names) > 1:
        listed, so_on, them = f"{', '.join(names[:-1])} and {names[-1]}", " and so on", "them"
    return (
        f"Nothing is downloaded: get {listed} from {_PAGE} (MNIST's own page) or {_COPY}{names[0]}{so_on} (a copy), "
        f"and put {them} into {folder}."
    )


def _find(folder: str, split: str, kind: str) -> str | None:
    for below in _BELOW:
        for name in _names(split, kind):
            path = os.path.join(folder, below, name)
            if os.path.isfile(path):
                return require_file(path, "dataset.root")
    return None


def _read_split(images_file: str, labels_file: str) -> Arrays:
    images, labels = _read_idx(images_file, _KINDS["images"]), _read_idx(labels_file, _KINDS["labels"])
    if len(images) != len(labels):
        raise UserError(
            f"{images_file} has {len(images)} images, but {labels_file} has {len(labels)} labels; the files do not "
            "belong together."
        )
    return Arrays(images, labels)


def _read_idx(path: str, num_dimensions: int) -> np.ndarray:
    """Reads and checks a file: uint8, of so many dimensions."""
    try:
        with open(path, "rb") as file:
            contents = file.read()
        if contents[:2] == b"\x1f\x8b":  # By its contents: some programs unpack it and leave the name.
            contents = gzip.decompress(contents)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: the gzip file is damaged or cut short ({error}); fetch it again.") from error
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read: {error.strerror}.") from error
    magic = bytes([0, 0, _UNSIGNED_BYTE, num_dimensions])
    if contents[:4] != magic:
        raise UserError(
            f"{path}: it begins with {contents[:4]!r}, where an IDX file of unsigned bytes in "
            f"{num_dimensions} dimension{'s' if num_dimensions > 1 else ''} begins with {magic!r}; fetch it again."
        )
    start = 4 + 4 * num_dimensions
    sizes = [int.from_bytes(contents[at : at + 4], "big") for at in range(4, start, 4)]
    shape = " x ".join(map(str, sizes))
    if 0 in sizes:
        raise UserError(f"{path}: its header says {shape}, so there is nothing in it.")
    expected = start + math.prod(sizes)
    if len(contents) != expected:
        raise UserError(
            f"{path}: its header says {shape} bytes, so {expected} with the header, but it has {len(contents)}; fetch "
            "it again."
        )
    return np.frombuffer(contents, np.uint8, offset=start).reshape(sizes)
