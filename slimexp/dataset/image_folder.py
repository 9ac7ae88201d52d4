"""Loads datasets from folders of images, one folder a class.

Two layouts, told apart by what is there:

    root/train/<class>/…  and  root/eval/<class>/…      (or val, valid, validation, test)
    root/<class>/…                                      of which a fraction is held out

Classes are sorted by name. Images may lie in folders below the class's. Files and folders with a leading dot are left
out, files that aren't images are counted and left out. A class folder without an image is an error, as leaving it out
would shift the indices of the classes after it, and so is a class that only the evaluation folder has. So is a folder
of class folders named like a split (`val`) beside classes, unless `dataset.class_names` has it as a class. Images that
lie in no class folder are left out with a warning.

What is held out is decided by a hash of each image's path below the root, so an image keeps its place when others
come or go. Each class with two images or more has one at least in either split.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Sequence

import numpy as np

from slimexp.dataset.checks import check_files as check_files_of
from slimexp.dataset.checks import counted, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.split import Dataset, Split
from slimexp.errors import UserError

__all__ = ["READABLE_SUFFIXES", "load_image_folder"]

_log = logging.getLogger(__name__)

# The pipeline reads these, whatever the suffix says; and images that it does not read.
READABLE_SUFFIXES = frozenset(
    {b"jpg", b"jpeg", b"jpe", b"jfif", b"png", b"gif", b"bmp", b"webp", b"tif", b"tiff", b"jp2", b"j2k", b"avif"}
    | {b"pbm", b"pgm", b"ppm", b"pnm"}
)
_UNREADABLE = frozenset({b"heic", b"heif", b"jxl", b"tga", b"svg", b"psd"})
_EVAL_DIRS = ("eval", "val", "valid", "validation", "test")
_SPLIT_DIRS = frozenset({"train", *_EVAL_DIRS})


def load_image_folder(
    *,
    root: str,
    train_dir: str | None = "train",
    eval_dir: str | None = "auto",
    eval_fraction: float = 0.2,
    seed: int = 0,
    num_classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    check_files: bool = True,
    allow_empty_files: bool = False,
    name: str = "image_folder",
) -> Dataset:
    """Loads a folder whose sub-folders are the classes.

    Args:
        root: The folder.
        train_dir: The folder below `root` that holds the training classes. If it is not there, or None, the classes
            lie in `root` itself.
        eval_dir: The same for evaluation; `auto` takes the first of eval, val, valid, validation and test that is
            there. Without one, or if None, a fraction of the training images is held out.
        eval_fraction: The fraction to hold out, from 0 (no evaluation split) to below 1. Not used if there is an
            evaluation folder.
        seed: Chooses which images are held out.
        num_classes: If given, the number of classes that must be there.
        class_names: If given, the classes in this order (or a text file of them, one a line); other folders are left
            out.
        check_files: Whether to look if each file is a file and not empty.
        allow_empty_files: Whether `check_files` lets empty ones through, which reading then finds.
        name: The dataset's name, for run names.

    Returns:
        A single-label dataset.

    Raises:
        UserError: If a folder or a class is missing or empty, an option out of range, or a file empty.
    """
    if not 0 <= eval_fraction < 1:
        raise UserError(f"dataset.eval_fraction={eval_fraction} must be 0 or more (0: no evaluation) and below 1.")
    top = os.fsencode(require_folder(root, "dataset.root"))
    train_root, eval_root = _find_layout(top, root, train_dir, eval_dir)
    found = _class_folders(train_root)
    wanted = None if class_names is None else load_class_names(class_names)
    names = _choose_classes(found, wanted, num_classes, train_root, eval_root)

    seen: Counter[str] = Counter()
    images = [_images_below(found[class_name], seen) for class_name in names]
    for class_name, there in zip(names, images, strict=True):
        if not there:
            raise UserError(
                f"{_text(found[class_name])}: the class folder has no image ({_readable_list()}); add some or remove "
                "the folder. (It isn't left out silently, as the classes after it would get other indices.)"
            )
    eval_split: Split | None
    if eval_root is not None:
        train = _split("train", train_root, images)
        eval_split = _load_eval(eval_root, names, wanted is not None, seen)
    else:
        held_out = [_held_out(there, top, eval_fraction, seed) for there in images]
        train = _split("train", train_root, [_pick(there, ~out) for there, out in zip(images, held_out, strict=True)])
        eval_split = _split(
            "eval", train_root, [_pick(there, out) for there, out in zip(images, held_out, strict=True)]
        )
        if not len(eval_split):
            eval_split = None
            if eval_fraction:
                _log.warning("dataset.root=%s: no class has two images, so none is held out for evaluation.", root)
    _log_left_out(root, seen)
    for folder in dict.fromkeys((top, train_root, eval_root)):
        if folder is not None:
            _warn_of_loose_images(folder)
    num_eval = 0 if eval_split is None else len(eval_split)
    _log.info(
        "%s: %s, %s, %s",
        root,
        counted(len(names), "class", "classes"),
        counted(len(train), "train image"),
        counted(num_eval, "eval image"),
    )
    if check_files:
        for split in (train, eval_split):
            if split is not None:
                check_files_of(split, allow_empty=allow_empty_files)
    return Dataset(name, "single", names, train, eval_split)


def _find_layout(top: bytes, root: str, train_dir: str | None, eval_dir: str | None) -> tuple[bytes, bytes | None]:
    """Returns the folder of the training classes and, if there is one, that of the evaluation classes."""
    if train_dir is None or not _is_train_folder(top, train_dir):
        if train_dir not in (None, "train"):
            require_folder(os.path.join(root, train_dir), "dataset.train_dir")
            raise UserError(f"dataset.train_dir={train_dir}: {os.path.join(root, train_dir)} has no class folders.")
        if eval_dir not in (None, "auto"):
            # Without a training folder beside it, the evaluation folder would be taken for a class.
            raise UserError(
                f"dataset.eval_dir={eval_dir} is set, but {root} has no folder {train_dir or 'train'!r} with class "
                "folders in it; set dataset.train_dir, or dataset.eval_dir=null to hold out dataset.eval_fraction."
            )
        return top, None
    train_root = os.path.join(top, os.fsencode(train_dir))
    if eval_dir is None:
        return train_root, None
    if eval_dir != "auto":
        return train_root, os.fsencode(require_folder(os.path.join(root, eval_dir), "dataset.eval_dir"))
    # With a training folder beside it, it can't be meant as a class, so images of its own don't matter.
    there = [name for name in _EVAL_DIRS if _holds_folders(os.path.join(top, name.encode()))]
    if not there:
        return train_root, None
    if len(there) > 1:
        _log.info("%s: evaluating on %s; %s left out (see dataset.eval_dir)", root, there[0], ", ".join(there[1:]))
    return train_root, os.path.join(top, there[0].encode())


def _holds_folders(folder: bytes) -> bool:
    return os.path.isdir(folder) and any(entry.is_dir() for entry in _list(folder))


def _is_train_folder(top: bytes, train_dir: str) -> bool:
    """Returns whether the training classes lie in `train_dir`, which could also be a class of that name."""
    folder = os.path.join(top, os.fsencode(train_dir))
    if not _holds_folders(folder):
        return False
    # A class has images of its own, and other classes beside it.
    has_images = any(_suffix(entry.name) in READABLE_SUFFIXES for entry in _list(folder))
    return train_dir != "train" or not has_images or _class_folders(top).keys() <= _SPLIT_DIRS


def _list(folder: bytes) -> list[os.DirEntry[bytes]]:
    """Lists a folder, sorted by name, without hidden entries."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if entry.name[:1] != b"."), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(
            f"{_text(folder)}: the folder can't be listed ({error.strerror}); change its permissions or move it away."
        ) from error


def _suffix(name: bytes) -> bytes:
    stem, dot, suffix = name.rpartition(b".")
    return suffix.lower() if dot and stem else b""


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _readable_list() -> str:
    return " ".join(sorted(_text(suffix) for suffix in READABLE_SUFFIXES))


def _class_folders(folder: bytes) -> dict[str, bytes]:
    return {_text(entry.name): entry.path for entry in _list(folder) if entry.is_dir()}


def _choose_classes(
    found: dict[str, bytes],
    wanted: tuple[str, ...] | None,
    num_classes: int | None,
    train_root: bytes,
    eval_root: bytes | None,
) -> tuple[str, ...]:
    where = _text(train_root)
    if not found:
        raise UserError(
            f"{where} has no sub-folders; each class needs one, with its images in it. (For a flat folder of images "
            "write a list of them: dataset=listfile.)"
        )
    if eval_root is None:
        _refuse_splits_as_classes(found, wanted or (), where)
    if eval_root is None and found.keys() <= _SPLIT_DIRS:
        raise UserError(
            f"{where}: {', '.join(found)} would be the classes, but these are names of splits; name the folder of the "
            "training classes with dataset.train_dir, and have a folder for each class in it."
        )
    if wanted is not None:
        missing = [name for name in wanted if name not in found]
        if missing:
            raise UserError(
                f"{where} has no folder for {', '.join(map(repr, missing[:10]))} of dataset.class_names; it has "
                f"{', '.join(map(repr, list(found)[:10]))}{', …' if len(found) > 10 else ''}."
            )
        others = [name for name in found if name not in wanted]
        if others:
            _log.info("%s: not in dataset.class_names, left out: %s", where, ", ".join(others[:10]))
    names = wanted or tuple(found)
    if num_classes is not None and num_classes != len(names):
        source = "dataset.class_names has" if wanted else f"{where} has folders for"
        raise UserError(
            f"dataset.num_classes={num_classes}, but {source} {len(names)} classes; leave dataset.num_classes out."
        )
    return names


def _refuse_splits_as_classes(found: dict[str, bytes], wanted: Sequence[str], where: str) -> None:
    """Refuses a split's folder among the folders of classes, which would make a class of it."""
    classes = [name for name in found if name.lower() not in _SPLIT_DIRS]
    if not classes:
        return
    for name, folder in found.items():
        if name in classes or name in wanted:
            continue
        inner = [sub for sub, path in _class_folders(folder).items() if _images_below(path, Counter())]
        if not inner:
            continue
        apart = f"{where}/train" if name.lower() == "train" else f"{where}/train, beside {where}/{name.lower()}"
        raise UserError(
            f"{where}/{name} is named like a split and has folders of images ({_some(inner)}), but lies beside folders "
            f"of classes ({_some(classes)}), so it would be taken for a class. Move all training classes into {apart}; "
            f"or, if {name} is a class, rename it or list all classes in dataset.class_names."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")


def _warn_of_loose_images(folder: bytes) -> None:
    """Warns of images that lie beside the class folders rather than in one."""
    suffixes = READABLE_SUFFIXES | _UNREADABLE
    if count := sum(_suffix(entry.name) in suffixes and not entry.is_dir() for entry in _list(folder)):
        _log.warning(
            "%s: %s left out that %s in no class folder; move %s into one if meant as examples.",
            _text(folder),
            counted(count, "image"),
            "lies" if count == 1 else "lie",
            "it" if count == 1 else "them",
        )


def _images_below(folder: bytes, seen: Counter[str]) -> list[bytes]:
    """Lists the images of a class, sorted by path; counts what is left out."""
    images = []
    folders = [folder]
    visited = set()
    while folders:
        current = folders.pop()
        status = os.stat(current)
        # A link may lead to a folder above, or to one that is listed anyway.
        if (status.st_dev, status.st_ino) in visited:
            seen["linked twice"] += 1
            continue
        visited.add((status.st_dev, status.st_ino))
        for entry in _list(current):
            if entry.is_dir():
                folders.append(entry.path)
            elif (suffix := _suffix(entry.name)) in READABLE_SUFFIXES:
                images.append(entry.path)
            else:
                seen[f".{_text(suffix)}" if suffix in _UNREADABLE else "other"] += 1
    return sorted(images)


def _log_left_out(root: str, seen: Counter[str]) -> None:
    formats = {suffix: count for suffix, count in seen.items() if suffix.startswith(".")}
    if formats:
        _log.warning(
            "%s: %s left out that can't be decoded (%s); convert to JPEG or PNG.",
            root,
            counted(sum(formats.values()), "image"),
            ", ".join(f"{count} {suffix}" for suffix, count in sorted(formats.items())),
        )
    if seen["other"]:
        _log.info(
            "%s: %s left out without the suffix of an image (%s)",
            root,
            counted(seen["other"], "file"),
            _readable_list(),
        )
    if seen["linked twice"]:
        _log.info("%s: %s left out, leading to a folder listed already", root, counted(seen["linked twice"], "link"))


def _held_out(images: list[bytes], top: bytes, fraction: float, seed: int) -> np.ndarray:
    """Returns which images of a class are held out, bool [n]."""
    if fraction == 0 or len(images) < 2:
        return np.zeros(len(images), bool)
    start = len(os.path.join(top, b""))
    key = str(seed).encode()
    hashes = np.array(
        [int.from_bytes(hashlib.blake2b(image[start:], digest_size=8, key=key).digest(), "big") for image in images],
        np.uint64,
    )
    out = hashes < np.uint64(fraction * 2.0**64)
    # Small classes: a fixed threshold may leave a split without any.
    out[np.argmin(hashes)] = True
    out[np.argmax(hashes)] = False
    return out


def _pick(images: list[bytes], chosen: np.ndarray) -> list[bytes]:
    return [image for image, is_chosen in zip(images, chosen.tolist(), strict=True) if is_chosen]


def _split(name: str, folder: bytes, images: list[list[bytes]]) -> Split:
    labels = np.repeat(np.arange(len(images), dtype=np.int32), [len(there) for there in images])
    return Split(name, [image for there in images for image in there], labels, _text(folder))


def _load_eval(eval_root: bytes, names: tuple[str, ...], ignore_others: bool, seen: Counter[str]) -> Split:
    folders = _class_folders(eval_root)
    unknown = [name for name in folders if name not in names]
    if unknown and not ignore_others:
        raise UserError(
            f"{_text(eval_root)} has classes that the training folder has not: {', '.join(map(repr, unknown[:10]))}; "
            "they can't be learnt. Remove them, or name the classes to use with dataset.class_names."
        )
    images = [_images_below(folders[name], seen) if name in folders else [] for name in names]
    without = [name for name, there in zip(names, images, strict=True) if not there]
    if len(without) == len(names):
        raise UserError(f"{_text(eval_root)} has no image of any class; add some, or set dataset.eval_dir=null.")
    if without:
        _log.warning(
            "%s: no image of these classes, so they are never judged: %s%s",
            _text(eval_root),
            ", ".join(without[:10]),
            f" and {len(without) - 10} more" if len(without) > 10 else "",
        )
    return _split("eval", eval_root, images)
