"""Loads datasets from list files: text files with one image a line (see `listfile_grammar` for the format)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

import numpy as np

from slimexp.dataset.checks import check_files as check_files_of
from slimexp.dataset.checks import counted, first_of, require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.listfile_grammar import LabelReader
from slimexp.dataset.listfile_repeats import find_repeats, hash_paths
from slimexp.dataset.listfile_scan import ParsedList, read_list
from slimexp.dataset.split import Dataset, Split
from slimexp.errors import UserError

__all__ = ["load_listfile"]

_log = logging.getLogger(__name__)

# Far more than any set of classes has. Each class is given a name and weights, so a slip of the keyboard (or an id in
# place of a count) would otherwise end in a lack of memory.
_MAX_CLASSES = 1_000_000
_ROWS = 1 << 16
# As in `LabelReader`: a word of digits is an index. Longer ones are no index of any class.
_DIGITS = re.compile(r"0*([0-9]{1,18})")


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
    allow_empty_files: bool = False,
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
            names in the training list, if its labels are names, else "0", "1", … In a single-label list a bare number
            is an index, so a name may be one only if it is its own class's.
        task: `single` (one class an image) or `multi` (each label positive, negative or don't care).
        labels_offset: Is subtracted from each label index, as TF-Slim's option of this name does: 1 drops a
            background class. `num_classes` and `class_names` are those that remain.
        check_files: Whether to look if each image is there (1 million take a few seconds on a local disk).
        allow_empty_files: Whether `check_files` lets empty ones through, which reading then finds.
        name: The dataset's name, for run names.

    Returns:
        The dataset. Labels are int32 [n] for `single`, int8 [n, num_classes] in -1, 0, 1 for `multi`.

    Raises:
        UserError: If an option, a list or an image is wrong. Bad lines are told all at once: the first ten of both
            lists, each as `FILE:LINE: offending text: rule`, and how many more.
    """
    names = None if class_names is None else load_class_names(class_names, labels_offset=labels_offset)
    num_classes = _agree(num_classes, names, task)
    if names is not None and task == "single":
        _refuse_numbers_as_names(names, class_names, labels_offset)
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
    for split_name, shown, list_file in lists:
        parsed.append(read_list(list_file, reader, image_dir=os.fsencode(folder or os.path.dirname(list_file))))
        if reader.learns_names:
            _raise_for_bad_lines([shown], parsed)  # Which names there are isn't sure with a line missing.
            _raise_if_empty(split_name, shown, parsed[0])
            names = _learnt_names(shown, parsed[0], reader.names, num_classes)
            num_classes = len(names) if names else num_classes
            reader = LabelReader(task, num_classes, names, labels_offset=labels_offset)
    _raise_for_bad_lines([shown for _, shown, _ in lists], parsed)

    splits = []
    hashes = []
    for (split_name, shown, _), result in zip(lists, parsed, strict=True):
        _raise_if_empty(split_name, shown, result)
        splits.append(Split(split_name, result.paths, result.labels, shown, result.lines))
        hashes.append(hash_paths(splits[-1]))
        _log_totals(splits[-1], hashes[-1], result.num_lines)
    # After all totals, which help to see what is wrong.
    if task == "multi":
        for split in splits:
            _raise_if_nothing_known(split)
    if len(splits) == 2 and (num_shared := int(np.isin(hashes[1], hashes[0]).sum())):
        _log.warning(
            "%d of the %s of %s %s in %s too, so the evaluation will look better than it is.",
            num_shared,
            counted(len(splits[1]), "image"),
            eval_list,
            "is" if num_shared == 1 else "are",
            train_list,
        )
    del hashes
    if check_files:
        for split in splits:
            check_files_of(split, allow_empty=allow_empty_files)
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
    if num_classes is not None and num_classes > _MAX_CLASSES:
        raise UserError(
            f"dataset.num_classes={num_classes} must be {_MAX_CLASSES} or less; it is how many classes there are, so "
            "one more than the highest label where labels count from 0."
        )
    if names is None:
        return num_classes
    if num_classes is not None and num_classes != len(names):
        raise UserError(
            f"dataset.num_classes={num_classes}, but dataset.class_names has {len(names)} names; make them agree, or "
            "leave dataset.num_classes out."
        )
    if len(names) > _MAX_CLASSES:
        raise UserError(
            f"dataset.class_names has {len(names)} names, but {_MAX_CLASSES} classes are the most there may be."
        )
    return len(names)


def _refuse_numbers_as_names(names: Sequence[str], class_names: Sequence[str] | str | None, labels_offset: int) -> None:
    """Refuses names that a single-label list would have to quote, as they read like the index of another class."""
    for place, name in enumerate(names):
        match = _DIGITS.fullmatch(name)
        own = place + labels_offset
        if name.isascii() and name.isdecimal() and (match is None or int(match[1]) != own):
            source = f"dataset.class_names={class_names}" if isinstance(class_names, str) else "dataset.class_names"
            offset = f" with dataset.labels_offset={labels_offset}" if labels_offset else ""
            raise UserError(
                f"{source}: {name!r} is the name of the class with index {own}{offset}, but a bare number in a list is "
                f"an index, so {name} there could mean either class. Give it a name that is no number (class {name}), "
                "or order the classes so that each number is its own index; if the lists hold indices only, leave "
                "dataset.class_names out and set dataset.num_classes."
            )


def _raise_if_empty(split_name: str, shown: str, result: ParsedList) -> None:
    if not result.paths:
        what = (
            f"{counted(result.num_lines, 'line')}, all blank or comments" if result.num_lines else "the file is empty"
        )
        raise UserError(
            f"dataset.{split_name}_list={shown} names no image ({what}); write one image a line, as in a.jpg 3."
        )


def _raise_if_nothing_known(split: Split) -> None:
    # A list with labels shows one in its first rows, so this seldom looks further.
    if any(split.labels[begin : begin + _ROWS].any() for begin in range(0, len(split), _ROWS)):
        return
    purpose = "learn from" if split.name == "train" else "measure"
    way_out = "" if split.name == "train" else ", or leave dataset.eval_list out"
    raise UserError(
        f"dataset.{split.name}_list={split.source} says nothing about any label of its {counted(len(split), 'image')}: "
        f"all are don't care, so there is nothing to {purpose}. Make labels positive or negative, as in "
        f"a.jpg -1:* 1:0,7{way_out}."
    )


def _log_totals(split: Split, hashes: np.ndarray, num_lines: int) -> None:
    repeats = find_repeats(split, hashes)
    _log.info(
        "%s: %s, %s, %s",
        split.source,
        counted(num_lines, "line"),
        counted(len(split), "image"),
        counted(repeats.num_repeats, "duplicate"),
    )
    if repeats.first_conflict is not None:
        assert split.lines is not None
        one, other = repeats.first_conflict
        _log.warning(
            "%s: %s named more than once with different labels, the first %r on lines %d and %d; all these lines "
            "count, so keep the right ones only.",
            split.source,
            counted(repeats.num_conflicts, "image is", "images are"),
            split.path(one),
            split.lines[one],
            split.lines[other],
        )


def _raise_for_bad_lines(shown: list[str], parsed: list[ParsedList]) -> None:
    total = sum(result.num_bad_lines for result in parsed)
    if total:
        messages = (
            f"{file}:{number}: {error}"
            for file, result in zip(shown, parsed, strict=True)
            for number, error in result.bad_lines
        )
        raise UserError(f"{counted(total, 'bad line')} in {' and '.join(shown)}:\n{first_of(messages, total)}")


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
    if len(codes) > _MAX_CLASSES:
        raise UserError(
            f"{shown} names {len(codes)} classes, but {_MAX_CLASSES} are the most there may be; is the second word of "
            "its lines the class?"
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
