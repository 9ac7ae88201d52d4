"""Loads datasets from list files: text files with one image a line (see `listfile_grammar` for the format)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import numpy as np

from slimexp.dataset.checks import check_files as check_files_of
from slimexp.dataset.checks import first_of, require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.listfile_grammar import LabelReader
from slimexp.dataset.listfile_scan import ParsedList, read_list
from slimexp.dataset.split import Dataset, Split
from slimexp.errors import UserError

__all__ = ["load_listfile"]

_log = logging.getLogger(__name__)


def load_listfile(
    *,
    train_list: str,
    eval_list: str | None = None,
    image_dir: str | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    task: str = "single",
    labels_offset: int = 0,
    check_files: bool = True,
    name: str = "listfile",
) -> Dataset:
    """Loads and checks a training list and, if there is one, an evaluation list.

    Args:
        train_list: The list of the training images.
        eval_list: The list of the held-out images.
        image_dir: The folder that relative paths start from; by default that of the list they stand in.
        num_classes: The number of classes; may be left out if `class_names` tells it, or if all labels of a
            single-label list are names.
        class_names: The name of each class, or a text file of them (see `load_class_names`). Without it: the sorted
            names in the training list, if its labels are names, else "0", "1", …
        task: `single` (one class an image) or `multi` (each label positive, negative or don't care).
        labels_offset: Is subtracted from each label index, as TF-Slim's option of this name does: 1 drops a
            background class. `num_classes` and `class_names` are those that remain.
        check_files: Whether to look if each image is there (1 million take a few seconds on a local disk).
        name: The dataset's name, for run names.

    Returns:
        The dataset. Labels are int32 [n] for `single`, int8 [n, num_classes] in -1, 0, 1 for `multi`.

    Raises:
        UserError: If an option, a list or an image is wrong. Bad lines are told all at once: the first ten of both
            lists, each as `FILE:LINE: offending text: rule`, and how many more.
    """
    names = None if class_names is None else load_class_names(class_names, labels_offset=labels_offset)
    num_classes = _agree(num_classes, names, task)
    folder = None if image_dir is None else require_folder(image_dir, "dataset.image_dir")
    lists = [("train", train_list, require_file(train_list, "dataset.train_list"))]
    if eval_list is not None:
        lists.append(("eval", eval_list, require_file(eval_list, "dataset.eval_list")))

    reader = LabelReader(
        task,
        num_classes,
        names,
        labels_offset=labels_offset,
        learns_names=task == "single" and names is None,
    )
    parsed: list[ParsedList] = []
    for _, shown, list_file in lists:
        parsed.append(read_list(list_file, reader, image_dir=os.fsencode(folder or os.path.dirname(list_file))))
        if reader.learns_names:
            _raise_for_bad_lines([shown], parsed)  # Which names there are isn't sure with a line missing.
            names = _learnt_names(shown, parsed[0], reader.names, num_classes)
            num_classes = len(names) if names else num_classes
            reader = LabelReader(task, num_classes, names, labels_offset=labels_offset)
    _raise_for_bad_lines([shown for _, shown, _ in lists], parsed)

    splits = []
    hashes = []
    for (split_name, shown, _), result in zip(lists, parsed, strict=True):
        if not result.paths:
            raise UserError(
                f"dataset.{split_name}_list={shown} names no image ({result.num_lines} lines, all blank or comments); "
                "write one image a line, as in a.jpg 3."
            )
        hashes.append(np.fromiter(map(hash, result.paths), np.int64, len(result.paths)))
        duplicates = len(result.paths) - len(np.unique(hashes[-1]))
        _log.info("%s: %d lines, %d images, %d duplicates", shown, result.num_lines, len(result.paths), duplicates)
        splits.append(Split(split_name, result.paths, result.labels, shown, result.lines))
    if len(splits) == 2 and (num_shared := int(np.isin(hashes[1], hashes[0]).sum())):
        _log.warning(
            "%d of the %d images of %s are in %s too, so the evaluation will look better than it is.",
            num_shared,
            len(splits[1]),
            eval_list,
            train_list,
        )
    del hashes
    if check_files:
        for split in splits:
            check_files_of(split)
    assert num_classes is not None
    return Dataset(
        name,
        task,
        names or tuple(map(str, range(num_classes))),
        splits[0],
        splits[1] if len(splits) == 2 else None,
    )


def _agree(num_classes: int | None, names: Sequence[str] | None, task: str) -> int | None:
    """Returns the number of classes as far as the options tell it."""
    if task not in ("single", "multi"):
        raise UserError(f"dataset.task={task!r} must be single (one class an image) or multi (several labels).")
    if num_classes is not None and num_classes < 1:
        raise UserError(f"dataset.num_classes={num_classes} must be 1 or more.")
    if names is None:
        if num_classes is None and task == "multi":
            raise UserError(
                "dataset.num_classes is not set, and a multi-label list doesn't tell it; set dataset.num_classes=N, "
                "or dataset.class_names."
            )
        return num_classes
    if num_classes is not None and num_classes != len(names):
        raise UserError(
            f"dataset.num_classes={num_classes}, but dataset.class_names has {len(names)} names; make them agree, or "
            "leave dataset.num_classes out."
        )
    return len(names)


def _raise_for_bad_lines(shown: list[str], parsed: list[ParsedList]) -> None:
    total = sum(result.num_bad_lines for result in parsed)
    if total:
        messages = (
            f"{file}:{number}: {error}"
            for file, result in zip(shown, parsed, strict=True)
            for number, error in result.bad_lines
        )
        raise UserError(
            f"{total} bad {'line' if total == 1 else 'lines'} in {' and '.join(shown)}:\n{first_of(messages, total)}"
        )


def _learnt_names(
    shown: str, parsed: ParsedList, codes: dict[str, int], num_classes: int | None
) -> tuple[str, ...] | None:
    """Makes the names of a training list its classes, sorted, or returns None if its labels are all indices."""
    if not codes:
        return None
    is_name = parsed.labels < 0
    if not is_name.all():
        by_name, by_index = int(np.argmax(is_name)), int(np.argmin(is_name))
        name = next(name for name, code in codes.items() if code == parsed.labels[by_name])
        raise UserError(
            f"{shown} gives some classes by name (line {parsed.lines[by_name]}: {name!r}) and some by index (line "
            f"{parsed.lines[by_index]}: {parsed.labels[by_index]}); set dataset.class_names, which says which name has "
            "which index."
        )
    names = tuple(sorted(codes))
    if num_classes is not None and num_classes != len(names):
        listed = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
        raise UserError(
            f"dataset.num_classes={num_classes}, but {shown} names {len(names)} classes ({listed}); leave "
            "dataset.num_classes out, or set dataset.class_names, which may have classes without an image."
        )
    class_of_code = np.zeros(len(names) + 1, np.int32)
    for index, name in enumerate(names):
        class_of_code[-codes[name]] = index
    parsed.labels[:] = class_of_code[-parsed.labels]
    return names
