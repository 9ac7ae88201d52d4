"""Loads PASCAL VOC's classification task, or a tree of one's own in its form.

    root/ JPEGImages/<id>.jpg …    ImageSets/Main/<class>_<set>.txt …

Each class has a file a set (`train`, `val`, `trainval`, …) with one image a line: its id and 1 (shows the class), -1
(does not), or 0 (only objects that are marked difficult: don't care). All classes' files of a set name the same images
(M. Everingham et al., "The PASCAL Visual Object Classes Challenge 2012 Development Kit", section 8.1.1).
"""

from __future__ import annotations

import difflib
import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence

import numpy as np

from slimexp.dataset.checks import check_files as check_files_of
from slimexp.dataset.checks import counted, first_of, require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.split import Dataset, Split
from slimexp.errors import UserError

__all__ = ["load_pascal_voc"]

_log = logging.getLogger(__name__)

_MAIN = os.path.join("ImageSets", "Main")
_IMAGES = "JPEGImages"
_PAGE = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/"
_ARCHIVE = "VOCtrainval_11-May-2012.tar"
_UNPACKED = os.path.join("VOCdevkit", "VOC2012")  # What the archive makes.
_USUAL_SETS = ("train", "val", "trainval", "test")
# Other suffixes that a tree of one's own may have for some of its images.
_SUFFIXES = (".jpg", ".jpeg", ".JPG", ".JPEG", ".png", ".PNG", ".bmp", ".gif", ".webp")
# How far below or above the folder that was named the right one is looked for, and in how many folders.
_LEVELS, _MOST_FOLDERS = 3, 500
_VALUES = {"1": 1, "+1": 1, "-1": -1, "0": 0}
_SHOWN = 5
_SAME = "all classes' files of a set name the same images."


class _Faults:
    """Collects what is wrong, with file and line; the first of it is shown, all is counted."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, path: str, line: int, text: str) -> None:
        self.messages.append(f"{path}:{line}: {text}")


def load_pascal_voc(
    *,
    root: str,
    train_set: str = "train",
    eval_set: str | None = "val",
    num_classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    check_files: bool = True,
    allow_empty_files: bool = False,
    name: str = "pascal_voc",
) -> Dataset:
    """Loads the labels of two sets.

    Args:
        root: The folder with `JPEGImages` and `ImageSets`, such as VOCdevkit/VOC2012.
        train_set: The set to learn from.
        eval_set: The set to evaluate on; None for no evaluation.
        num_classes: How many classes there must be; any number by default.
        class_names: The classes in their order, or a text file of them; by default all that have a file for
            `train_set`, sorted, which is the usual order of PASCAL VOC's 20.
        check_files: Whether to look if each image is there and not empty.
        allow_empty_files: Whether `check_files` lets empty ones through, which reading then finds.
        name: The dataset's name, for run names.

    Returns:
        A multi-label dataset: int8 [n, num_classes], 1 = positive, -1 = negative, 0 = don't care.

    Raises:
        UserError: If a folder, a class's file or an image is missing, or a line is wrong. Bad lines are told all at
            once: the first ten, each as `FILE:LINE: what is wrong`, and how many more.
    """
    folder = _find_root(root)
    names = _find_classes(folder, train_set, class_names)
    if num_classes is not None and num_classes != len(names):
        source = (
            "dataset.class_names has" if class_names is not None else f"{os.path.join(folder, _MAIN)} has files for"
        )
        raise UserError(
            f"dataset.num_classes={num_classes}, but {source} {len(names)} classes: {', '.join(names[:25])}."
        )
    faults = _Faults()
    images = _Images(os.path.join(folder, _IMAGES))
    splits = [_read_split(folder, "train", train_set, names, images, faults)]
    if eval_set is not None:
        _require_files(folder, "eval_set", eval_set, names)
        splits.append(_read_split(folder, "eval", eval_set, names, images, faults))
    if faults.messages:
        total = len(faults.messages)
        raise UserError(
            f"{counted(total, 'fault')} in {os.path.join(folder, _MAIN)}:\n{first_of(faults.messages, total)}"
        )
    for split in splits:
        if not split.labels.any():
            raise UserError(f"{split.source}: all labels of all classes are 0, don't care, so nothing can be learnt.")
        _log.info("%s: %s of %s", split.source, counted(len(split), "image"), counted(len(names), "class", "classes"))
    if len(splits) == 2 and (num_shared := len(set(splits[0].paths) & set(splits[1].paths))):
        _log.warning(
            "%d of the %s of dataset.eval_set=%s %s in dataset.train_set=%s too, so the evaluation will look better "
            "than it is.",
            num_shared,
            counted(len(splits[1]), "image"),
            eval_set,
            "is" if num_shared == 1 else "are",
            train_set,
        )
    if check_files:
        for split in splits:
            check_files_of(split, allow_empty=allow_empty_files)
    return Dataset(name, "multi", names, splits[0], splits[1] if len(splits) == 2 else None)


def _find_root(root: str) -> str:
    folder = require_folder(root, "dataset.root", lambda missing: _where_to_get(root, missing))
    if not _is_root(folder):
        near = next((path for path in itertools.chain(_above(folder), _below(folder)) if _is_root(path)), None)
        hint = f"name the folder of a year, such as {_UNPACKED}. {_where_to_get(root, folder)}"
        if near is not None:
            where = os.path.relpath(near, folder)
            hint = f"{where} there has: dataset.root={os.path.normpath(os.path.join(root, where))}."
        missing = [part for part in (_MAIN, _IMAGES) if not os.path.isdir(os.path.join(folder, part))]
        raise UserError(
            f"dataset.root={root} has no {'folders' if len(missing) > 1 else 'folder'} {' and '.join(missing)} in it; "
            f"{hint}"
        )
    for part in (_MAIN, _IMAGES):
        require_folder(os.path.join(folder, part), "dataset.root")
    return folder


def _where_to_get(root: str, folder: str) -> str:
    """Says where PASCAL VOC is to be had, and in which folder to unpack it.

    Args:
        root: The folder as the user named it.
        folder: Its absolute path.
    """
    place = folder.removesuffix(os.sep + _UNPACKED)
    then = ""
    if place == folder:
        then = f", and set dataset.root={os.path.normpath(os.path.join(root, _UNPACKED))}"
    return (
        f"Nothing is downloaded: get {_ARCHIVE} from {_PAGE} (PASCAL VOC's own page; other years' are beside it), "
        f"unpack it in {place or os.sep}{then}."
    )


def _is_root(folder: str) -> bool:
    return all(os.path.isdir(os.path.join(folder, part)) for part in (_MAIN, _IMAGES))


def _above(folder: str) -> Iterator[str]:
    for _ in range(_LEVELS):
        folder = os.path.dirname(folder)
        yield folder


def _below(folder: str) -> Iterator[str]:
    """Lists the folders below one, level by level, the first some hundred."""
    level = [folder]
    for _ in range(_LEVELS):
        inner = []
        for path in level:
            try:
                with os.scandir(path) as entries:
                    inner += [entry.path for entry in itertools.islice(entries, _MOST_FOLDERS) if entry.is_dir()]
            except OSError:
                continue  # Not to be listed; then it is not found there.
        level = sorted(inner)[:_MOST_FOLDERS]
        yield from level


def _file(folder: str, class_name: str, set_name: str) -> str:
    return os.path.join(folder, _MAIN, f"{class_name}_{set_name}.txt")


def _classes_with(folder: str, set_name: str) -> list[str]:
    """Returns the classes that have a file for a set, sorted."""
    ending = f"_{set_name}.txt"
    names = os.listdir(os.path.join(folder, _MAIN))
    return sorted(name.removesuffix(ending) for name in names if name.endswith(ending) and len(name) > len(ending))


def _sets_there(folder: str) -> list[str]:
    """Returns the usual sets of which there are classes, and others by what stands behind the last line in a name."""
    found = {
        match[1]
        for name in os.listdir(os.path.join(folder, _MAIN))
        if (match := re.fullmatch(r".+_([^_]+)\.txt", name))
    }
    return sorted(found, key=lambda name: (name not in _USUAL_SETS, name))


def _find_classes(folder: str, train_set: str, class_names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Returns the classes, each of which has a file for `train_set`."""
    if class_names is not None:
        names = load_class_names(class_names)
        bad = next((name for name in names if "/" in name or "\0" in name), None)
        if bad is not None:
            raise UserError(f"dataset.class_names: {bad!r} is a part of no file's name.")
        _require_files(folder, "train_set", train_set, names)
        return names
    found = _classes_with(folder, train_set)
    # A class may lack its file for this set and show by that of another.
    others = [other for other in _USUAL_SETS if other != train_set and not train_set.endswith(f"_{other}")]
    known = {name for other in others for name in _classes_with(folder, other)}
    if not found:
        raise _no_set(folder, "train_set", train_set)
    _require_files(folder, "train_set", train_set, sorted({*found, *(known if train_set in _USUAL_SETS else ())}))
    return tuple(found)


def _no_set(folder: str, key: str, set_name: str) -> UserError:
    there = _sets_there(folder)
    near = difflib.get_close_matches(set_name, there, n=1)
    hint = f"; the sets there are {', '.join(there[:_SHOWN])}" if there else "; there are no classes' files at all"
    return UserError(
        f"dataset.{key}={set_name}: no class has a file CLASS_{set_name}.txt in {os.path.join(folder, _MAIN)}{hint}"
        f"{f' (did you mean {near[0]}?)' if near else ''}{'' if key == 'train_set' else '; null is for no evaluation'}."
    )


def _require_files(folder: str, key: str, set_name: str, names: Sequence[str]) -> None:
    there = set(_classes_with(folder, set_name))
    missing = [name for name in names if name not in there]
    if not there & set(names):
        raise _no_set(folder, key, set_name)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"dataset.{key}={set_name}: {_file(folder, missing[0], set_name)}{more} is not there, though "
            f"{counted(len(names), 'class is', 'classes are')} expected; add the file, or list the classes to use in "
            "dataset.class_names."
        )


class _Images:
    """Finds the files of ids: those with .jpg, and where there is none, one with another suffix."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with os.scandir(folder) as entries:
            self._there = {entry.name for entry in entries}

    def find(self, image_id: str) -> str | None:
        """Returns the path, or None if no file is there."""
        if "/" not in image_id:
            for name in (image_id + suffix for suffix in _SUFFIXES):
                if name in self._there:
                    return os.path.join(self.folder, name)
            return os.path.join(self.folder, image_id) if image_id in self._there and "." in image_id else None
        for suffix in (*_SUFFIXES, ""):
            path = os.path.join(self.folder, image_id + suffix)
            if os.path.isfile(path):
                return path
        return None


def _read_split(
    folder: str, split: str, set_name: str, names: Sequence[str], images: _Images, faults: _Faults
) -> Split:
    """Reads the files of all classes; what is wrong goes to `faults`."""
    first = _file(folder, names[0], set_name)
    rows: dict[str, int] = {}
    lines: list[int] = []
    labels = np.zeros([0, len(names)], np.int8)
    for column, class_name in enumerate(names):
        path = _file(folder, class_name, set_name)
        values = _read_file(require_file(path, f"dataset.{split}_set"), faults)
        if column == 0:
            rows = {image_id: row for row, image_id in enumerate(values)}
            lines = [line for line, _ in values.values()]
            labels = np.zeros([len(rows), len(names)], np.int8)
        for image_id, (line, value) in values.items():
            if image_id in rows:
                labels[rows[image_id], column] = value
            else:
                faults.add(path, line, f"{image_id!r} is not in {first}; {_SAME}")
        for image_id, row in rows.items():
            if image_id not in values:
                faults.add(first, lines[row], f"{image_id!r} is not in {path}; {_SAME}")
    paths = []
    for image_id, row in rows.items():
        image = images.find(image_id)
        if image is None:
            faults.add(first, lines[row], f"{os.path.join(images.folder, image_id)}.jpg: no such file.")
        else:
            paths.append(os.fsencode(image))
    if len(paths) < len(rows):  # The faults will be raised; a split has as many labels as paths.
        labels, lines = labels[: len(paths)], lines[: len(paths)]
    return Split(split, paths, labels, first, np.array(lines, np.int64))


def _read_file(path: str, faults: _Faults) -> dict[str, tuple[int, int]]:
    """Returns by id the line and the value of a file's good lines, in their order."""
    with open(path, "rb") as file:
        content = file.read().removeprefix(b"\xef\xbb\xbf")
    values: dict[str, tuple[int, int]] = {}
    for number, raw in enumerate(content.split(b"\n"), 1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError as error:
            faults.add(path, number, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file in that encoding.")
            continue
        if not line:
            continue
        # From the right: an id may hold blanks.
        image_id, value = ["", *line.rsplit(None, 1)][-2:]
        if not image_id:
            faults.add(path, number, f"{line!r} has no value; a line is ID VALUE, as in 2008_000008 -1.")
        elif value not in _VALUES:
            faults.add(path, number, f"{value!r} must be 1 (shows the class), -1 (does not) or 0 (don't care).")
            values.setdefault(image_id, (number, 0))  # Else every other file would seem to have one image too many.
        elif "\0" in image_id or image_id.startswith("/") or ".." in image_id.split("/"):
            faults.add(path, number, f"{image_id!r} is no image's id.")
        elif image_id in values:
            faults.add(path, number, f"{image_id!r} stands on line {values[image_id][0]} already; an image comes once.")
        else:
            values[image_id] = (number, _VALUES[value])
    if not values and not faults.messages:
        raise UserError(f"{path}: it names no image; a line is ID VALUE, as in 2008_000008 -1.")
    return values
