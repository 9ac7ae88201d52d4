"""TFRecord files as TF-Slim's download scripts write them: the flowers, and ImageNet's 1000 classes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from slimexp.dataset.checks import require_folder
from slimexp.dataset.split import Dataset
from slimexp.dataset.tfrecord import load_tfrecord, matching
from slimexp.errors import UserError

__all__ = ["load_flowers", "load_imagenet"]

# As TF-Slim's script numbers them: by the names of the archive's folders.
_FLOWERS = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
_FLOWERS_SOURCE = (
    "TF-Slim's download_and_convert_data.py --dataset_name=flowers makes the shards from "
    "http://download.tensorflow.org/example_images/flower_photos.tgz"
)
_IMAGENET_SOURCE = "TF-Slim's download_and_convert_imagenet.sh makes the shards from the ILSVRC 2012 pictures of https://image-net.org/download"
_IMAGENET_CLASSES = 1000
_NAMES_FILE = "labels.txt"


def load_flowers(
    *,
    root: str,
    file_pattern: str = "flowers_%s_*-of-*.tfrecord",
    eval_pattern: str | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    cache_dir: str | None = None,
    name: str = "flowers",
    allow_damaged_shards: bool = False,
) -> Dataset:
    """Loads TF-Slim's flowers: 5 classes, labels 0..4, the splits `train` and `validation`.

    Args:
        root: The folder with the shards.
        file_pattern: Their names, as for `load_tfrecord`.
        eval_pattern: Likewise.
        num_classes: If given, how many classes there must be.
        class_names: The names of the classes; by default those of `labels.txt` beside the shards, else the flowers'.
        cache_dir: As for `load_tfrecord`.
        name: The dataset's name, for run names.
        allow_damaged_shards: As for `load_tfrecord`.

    Raises:
        UserError: As `load_tfrecord`; if there is no shard it says where they come from.
    """
    folder = _require_shards(root, file_pattern, _FLOWERS_SOURCE)
    if class_names is None:
        class_names = _names_beside(folder) or _FLOWERS
    return load_tfrecord(
        root=root,
        file_pattern=file_pattern,
        eval_pattern=eval_pattern,
        num_classes=num_classes,
        class_names=class_names,
        cache_dir=cache_dir,
        name=name,
        allow_damaged_shards=allow_damaged_shards,
    )


def load_imagenet(
    *,
    root: str,
    file_pattern: str = "%s-*-of-*",
    eval_pattern: str | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    labels_offset: int = 0,
    cache_dir: str | None = None,
    name: str = "imagenet",
    allow_damaged_shards: bool = False,
) -> Dataset:
    """Loads TF-Slim's ImageNet: the records' labels are 1..1000, and 0 is a background class without an image.

    Args:
        root: The folder with train-00000-of-01024 … and validation-00000-of-00128 ….
        file_pattern: Their names, as for `load_tfrecord`.
        eval_pattern: Likewise.
        num_classes: If given, how many classes there must be: 1001 or 1000, see `labels_offset`.
        class_names: The names of the classes; by default those of `labels.txt` beside the shards, else numbers.
        labels_offset: 0 keeps the background class, so there are 1001 classes, as the published Inception and
            ResNet v2 checkpoints have; 1 drops it, so there are 1000, as the published VGG and ResNet v1 ones have.
        cache_dir: As for `load_tfrecord`.
        name: The dataset's name, for run names.
        allow_damaged_shards: As for `load_tfrecord`.

    Raises:
        UserError: As `load_tfrecord`; if the names are not as many as the classes; or if there is no shard, with where
            they come from.
    """
    if labels_offset not in (0, 1):
        raise UserError(
            f"dataset.labels_offset={labels_offset} must be 0 (1001 classes, the background class among them) or 1 "
            "(1000 classes)."
        )
    expected = _IMAGENET_CLASSES + 1 - labels_offset
    if num_classes not in (None, expected):
        kept = "drops" if labels_offset else "keeps"
        raise UserError(
            f"dataset.num_classes={num_classes}: dataset.labels_offset={labels_offset} {kept} the background class, so "
            f"there are {expected}; dataset.labels_offset={1 - labels_offset} makes {expected - 1 + 2 * labels_offset}."
        )
    folder = _require_shards(root, file_pattern, _IMAGENET_SOURCE)
    if class_names is None:
        class_names = _names_beside(folder)
    return load_tfrecord(
        root=root,
        file_pattern=file_pattern,
        eval_pattern=eval_pattern,
        num_classes=expected,
        class_names=class_names,
        labels_offset=labels_offset,
        cache_dir=cache_dir,
        name=name,
        allow_damaged_shards=allow_damaged_shards,
    )


def _require_shards(root: str, file_pattern: str, source: str) -> str:
    def where_to_get(folder: str) -> str:
        return f"Nothing is downloaded: {source}. Put them into {folder}"

    folder = require_folder(root, "dataset.root", lambda missing: f"{where_to_get(missing)}.")
    pattern, found = matching(folder, file_pattern.replace("%s", "train"))
    if not found:
        raise UserError(
            f"dataset.root={root}: no file matches {pattern}. {where_to_get(folder)}, or set dataset.file_pattern."
        )
    return folder


def _names_beside(folder: str) -> str | None:
    path = os.path.join(folder, _NAMES_FILE)
    return path if os.path.isfile(path) else None
