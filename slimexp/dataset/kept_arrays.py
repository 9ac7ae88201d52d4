"""Turns datasets that come as arrays of pixels into TFRecord files with PNGs, once: the pipeline reads those.

    CACHE/mnist-v1-<digest>/ train-00000-of-00008.tfrecord …  eval-00000-of-00002.tfrecord …  labels.npz  manifest.json

The folder is named for the contents of the files that it was made from, so others get one of their own, and the same
ones in another place do not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from slimexp.cache_dir import default_cache_dir
from slimexp.dataset.example import encode_png, make_example
from slimexp.dataset.kept_folder import digest_of, make_once
from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError

__all__ = ["Arrays", "load_kept"]

_VERSION = 1
_LABELS_FILE = "labels.npz"
# Some for several readers to read at once, and for the order of an epoch to differ from another's.
_NUM_SHARDS = {"train": 8, "eval": 2}
_MAX_SIDE_PX = 512


class Arrays(NamedTuple):
    """The examples of one split.

    Attributes:
        images: uint8 [n, height, width] or [n, height, width, 3].
        labels: uint8 [n].
    """

    images: np.ndarray
    labels: np.ndarray


def load_kept(
    files: Sequence[str],
    read: Callable[[], dict[str, Arrays]],
    *,
    name: str,
    kind: str,
    class_names: Sequence[str],
    cache_dir: str | None,
) -> Dataset:
    """Loads a dataset from its records in the cache, and writes those first if they aren't there.

    Args:
        files: The source's files.
        read: Reads and checks them: the arrays of `train` and `eval`.
        name: The dataset's name.
        kind: What the folder's name begins with.
        class_names: One name a class.
        cache_dir: As for `load_digits`.

    Returns:
        A single-label dataset whose labels are known.

    Raises:
        UserError: If the cache can't be written, or a label has no name.
    """
    cache = os.path.abspath(os.path.expanduser(cache_dir or default_cache_dir()))
    folder = os.path.join(cache, f"{kind}-v{_VERSION}-{_digest(files)}")
    num_bytes = sum(os.path.getsize(file) for file in files)
    make_once(
        folder, lambda new: _write(new, read()), what=f"{name} as TFRecord files", num_mb=1 + num_bytes // 500_000
    )
    with np.load(os.path.join(folder, _LABELS_FILE)) as labels:
        known = {split: labels[split].astype(np.int32) for split in _NUM_SHARDS}
        height, width = labels["size"].tolist()
    for split, there in known.items():
        if there.max() >= len(class_names):
            place = int(np.argmax(there >= len(class_names)))
            raise UserError(
                f"{os.path.dirname(files[0])}: the {split} image {place} (counted from 0) has label {there[place]}; "
                f"with {len(class_names)} class names (dataset.class_names) 0..{len(class_names) - 1} are allowed."
            )
    label = LabelFormat("image/class/label", "class", len(class_names))
    splits = [
        RecordSplit(
            split,
            tuple(os.fsencode(os.path.join(folder, shard)) for shard in _shards(split)),
            np.diff(_bounds(len(known[split]), _NUM_SHARDS[split])),
            os.path.join(folder, f"{split}-*"),
            "image/encoded",
            label,
            known[split],
        )
        for split in _NUM_SHARDS
    ]
    side = height if height == width and height <= _MAX_SIDE_PX else None
    return Dataset(name, "single", tuple(class_names), splits[0], splits[1], image_side_px=side)


def _digest(files: Sequence[str]) -> str:
    try:
        return hashlib.blake2b(digest_of(list(files)).encode(), digest_size=8).hexdigest()
    except OSError as error:
        raise UserError(f"{error.filename} can't be read: {error.strerror}.") from error


def _shards(split: str) -> list[str]:
    count = _NUM_SHARDS[split]
    return [f"{split}-{number:05d}-of-{count:05d}.tfrecord" for number in range(count)]


def _bounds(num_examples: int, num_shards: int) -> np.ndarray:
    """Returns where the shards begin and the last one ends, int64 [num_shards + 1]."""
    return np.arange(num_shards + 1, dtype=np.int64) * num_examples // num_shards


def _write(folder: str, splits: dict[str, Arrays]) -> None:
    import tensorflow as tf

    os.makedirs(folder)
    for split, (images, labels) in splits.items():
        height, width = images.shape[1:3]
        bounds = _bounds(len(images), _NUM_SHARDS[split]).tolist()
        for shard, begin, end in zip(_shards(split), bounds[:-1], bounds[1:], strict=True):
            examples = (
                make_example(
                    encode_png(images[index]),
                    image_format="png",
                    label=int(labels[index]),
                    text=(),
                    height=height,
                    width=width,
                    filename=b"%s/%05d.png" % (split.encode(), index),
                )
                for index in range(begin, end)
            )
            try:
                with tf.io.TFRecordWriter(os.path.join(folder, shard)) as writer:
                    for example in examples:
                        writer.write(example)
            except tf.errors.OpError as error:  # A full disk, say.
                raise OSError(error.message) from error
    np.savez(
        os.path.join(folder, _LABELS_FILE),
        size=np.array([height, width]),
        train=splits["train"].labels,
        eval=splits["eval"].labels,
    )
