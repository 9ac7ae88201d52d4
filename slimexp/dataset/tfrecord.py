"""Loads datasets from TFRecord files whose records are `tf.train.Example`s, by default with TF-Slim's features."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from slimexp.cache_dir import default_cache_dir
from slimexp.dataset.checks import counted, first_of, require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.record_file import RecordDamage, count_records, read_record
from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError

__all__ = ["load_tfrecord"]

_log = logging.getLogger(__name__)

_EVAL_NAMES = ("eval", "val", "valid", "validation", "test")
_FORMS = ("indices", "binary", "signed")
_MAX_CLASSES = 1_000_000
_NAMES_FILE = "labels.txt"  # What TF-Slim's converters write beside the shards.
# Header after header waits for the disk or the network, not for the CPU.
_THREADS = 32
_KEYS_SHOWN = 20
# STEM-NUMBER-of-TOTAL, with or without a suffix.
_SHARD = re.compile(rb"(.*)-([0-9]{1,9})-of-([0-9]{1,9})(?:\.[^/]*)?", re.DOTALL)


def load_tfrecord(
    *,
    file_pattern: str,
    root: str = ".",
    eval_pattern: str | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    task: str = "single",
    labels_offset: int = 0,
    image_key: str = "image/encoded",
    label_key: str = "image/class/label",
    label_form: str = "indices",
    cache_dir: str | None = None,
    name: str = "tfrecord",
    allow_damaged_shards: bool = False,
) -> Dataset:
    """Finds the shards, counts their records and looks at the first record of each split.

    Args:
        file_pattern: The training shards: `*`, `?` and `[...]` as in a shell. A `%s` stands for the split's name:
            `train`, and for evaluation the first of eval, val, valid, validation and test of which there are files.
        root: The folder that patterns count from.
        eval_pattern: The shards to evaluate on; by default those that `%s` finds, or none.
        num_classes: The number of classes; may be left out if `class_names`, or a `labels.txt` beside the shards as
            TF-Slim writes it, tells it.
        class_names: The name of each class, or a text file of them (see `load_class_names`).
        task: `single` (one class an image) or `multi` (each label positive, negative or don't care).
        labels_offset: Is subtracted from each class or label number; 1 drops a background class.
        image_key: The key of the encoded picture: one byte string.
        label_key: The key of the class, one integer, or of the labels.
        label_form: For `multi`, how `label_key` tells the labels: `indices`, `binary` or `signed`, see `LabelFormat`.
        cache_dir: The folder in which the numbers of records are remembered; by default `$SLIMEXP_CACHE`, else
            `$XDG_CACHE_HOME/slimexp`, else `~/.cache/slimexp`.
        name: The dataset's name, for run names.
        allow_damaged_shards: Whether shards that are damaged or cut short are let through, of which reading then finds
            the rest missing. How many records that is can only be told by its size; it counts as one at the least.

    Returns:
        The dataset. Its labels are checked as they are read.

    Raises:
        UserError: If an option is wrong, there is no shard or no record, a shard is damaged as far as its headers tell,
            or the first record of a split has not the features.
    """
    if task not in ("single", "multi"):
        raise UserError(f"dataset.task={task!r} must be single (one class an image) or multi (several labels).")
    if label_form not in _FORMS:
        raise UserError(f"dataset.label_form={label_form!r} must be one of {', '.join(_FORMS)}.")
    folder = require_folder(root, "dataset.root")
    train, found_eval = _find_shards(folder, file_pattern, eval_pattern)
    names = _names(train[1], class_names, labels_offset, num_classes)
    form = "class" if task == "single" else label_form
    label = LabelFormat(label_key, form, len(names), labels_offset)
    splits = [
        _split(split, shards, pattern, image_key, label, cache_dir, allow_damaged_shards)
        for split, (pattern, shards) in (("train", train), ("eval", found_eval))
        if shards
    ]
    for split in splits:
        _warn_of_missing_shards(split)
        _log.info("%s: %s in %s", split.source, counted(len(split), "record"), counted(len(split.shards), "shard"))
    return Dataset(name, task, names, splits[0], splits[1] if len(splits) == 2 else None)


def _find_shards(
    folder: str, file_pattern: str, eval_pattern: str | None
) -> tuple[tuple[str, list[bytes]], tuple[str, list[bytes]]]:
    """Returns pattern and shards of both splits; without any for evaluation, if none are asked for or found."""
    train_pattern, train = matching(folder, file_pattern.replace("%s", "train"))
    if not train:
        raise UserError(
            f"dataset.file_pattern={file_pattern}: no file matches {train_pattern}{_what_is_there(folder)}."
        )
    pattern: str = ""
    found: list[bytes] = []
    if eval_pattern is not None:
        pattern, found = matching(folder, eval_pattern)
        if not found:
            raise UserError(f"dataset.eval_pattern={eval_pattern}: no file matches {pattern}{_what_is_there(folder)}.")
    elif "%s" in file_pattern:
        for split in _EVAL_NAMES:
            pattern, found = matching(folder, file_pattern.replace("%s", split))
            if found:
                break
    shared = sorted(set(train) & set(found))
    if shared:
        raise UserError(
            f"{_text(shared[0])} is in {train_pattern} and in {pattern}, so the network would be judged by what it "
            "learns from; narrow dataset.file_pattern or dataset.eval_pattern."
        )
    return (train_pattern, train), (pattern, found)


def matching(folder: str, pattern: str) -> tuple[str, list[bytes]]:
    """Returns a pattern as a whole path, and the files that match it."""
    pattern = os.path.expanduser(pattern)
    # In the folder's own name a bracket is a bracket.
    found = glob.glob(os.path.join(glob.escape(folder), pattern), recursive=True)
    return os.path.join(folder, pattern), sorted(os.fsencode(path) for path in found if not os.path.isdir(path))


def _warn_of_missing_shards(split: RecordSplit) -> None:
    """Warns where the files' own names say that there should be more of them."""
    numbers: dict[tuple[bytes, bytes], set[int]] = {}
    for shard in split.shards:
        match = _SHARD.fullmatch(shard)
        if match:
            numbers.setdefault((match[1], match[3]), set()).add(int(match[2]))
    for (stem, total), there in numbers.items():
        missing = [number for number in range(int(total[:9])) if number not in there]
        if missing:
            _log.warning(
                "%s: %d of the %d shards %s not there, the first number %05d; %s examples will be left out.",
                _text(stem),
                len(missing),
                int(total[:9]),
                "is" if len(missing) == 1 else "are",
                missing[0],
                "its" if len(missing) == 1 else "their",
            )


def _what_is_there(folder: str) -> str:
    names = sorted(entry.name for entry in os.scandir(folder))
    if not names:
        return f"; {folder} is empty"
    more = ", …" if len(names) > 5 else ""
    return f"; {folder} has {', '.join(map(repr, names[:5]))}{more}"


def _names(
    shards: Sequence[bytes], class_names: Sequence[str] | str | None, labels_offset: int, num_classes: int | None
) -> tuple[str, ...]:
    """Returns the classes' names: those given, those of `labels.txt` beside the shards, or numbers."""
    source = "dataset.class_names"
    if class_names is None and num_classes is None:
        beside = os.path.join(os.path.dirname(os.fsdecode(shards[0])), _NAMES_FILE)
        if not os.path.exists(beside):
            raise UserError(
                f"dataset.num_classes is not set, and nothing else tells it: set it or dataset.class_names (a list, or "
                f"a file with one name a line), or put {_NAMES_FILE} beside the shards."
            )
        class_names = source = beside
        _log.info("The names of the classes are those of %s", beside)
    if class_names is None:
        assert num_classes is not None
        if not 1 <= num_classes <= _MAX_CLASSES:
            raise UserError(f"dataset.num_classes={num_classes} must be 1 or more, and {_MAX_CLASSES} or less.")
        return tuple(map(str, range(num_classes)))
    names = load_class_names(class_names, labels_offset=labels_offset, number_repeats=True)
    if num_classes is not None and num_classes != len(names):
        raise UserError(
            f"dataset.num_classes={num_classes}, but {source} has {len(names)} names; make them agree, or leave "
            "dataset.num_classes out."
        )
    return names


def _split(
    name: str,
    shards: list[bytes],
    pattern: str,
    image_key: str,
    label: LabelFormat,
    cache_dir: str | None,
    allow_damaged: bool,
) -> RecordSplit:
    for shard in shards:
        require_file(os.fsdecode(shard), "dataset.file_pattern" if name == "train" else "dataset.eval_pattern")
    counts = np.array(_count(shards, pattern, cache_dir, allow_damaged), np.int64)
    if not counts.any():
        raise UserError(f"{pattern}: {counted(len(shards), 'shard')} without a record; write them again.")
    is_float = False
    filled = np.flatnonzero(counts)
    for number in filled:
        try:
            is_float = _peek(shards[number], image_key, label)
            break
        except RecordDamage:
            if not allow_damaged or number == filled[-1]:
                raise
    label = LabelFormat(label.key, label.form, label.num_classes, label.offset, is_float)
    return RecordSplit(name, tuple(shards), counts, pattern, image_key, label)


def _count(shards: list[bytes], pattern: str, cache_dir: str | None, allow_damaged: bool) -> list[int]:
    """Counts the records of each shard; those of shards that have not changed since are remembered."""
    file = _memory_file(pattern, cache_dir)
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError), open(file, encoding="utf-8") as stream:
        known = json.load(stream)
    keys = [f"{_text(shard)} {(status := os.stat(shard)).st_size} {status.st_mtime_ns}" for shard in shards]
    counts: dict[str, int] = {key: known[key] for key in keys if isinstance(known.get(key), int)}
    missing = [(key, shard) for key, shard in zip(keys, shards, strict=True) if key not in counts]
    if missing:
        started = time.perf_counter()
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="count_records") as pool:
            results = list(pool.map(lambda item: _counted_or_fault(item[1]), missing))
        faults = [result for result in results if isinstance(result, UserError)]
        if faults and not (allow_damaged and all(isinstance(fault, RecordDamage) for fault in faults)):
            raise UserError(
                f"{len(faults)} of the {counted(len(shards), 'shard')} of {pattern} cannot be read:\n"
                + first_of(map(str, faults), len(faults))
            )
        counts.update((key, n) for (key, _), n in zip(missing, results, strict=True) if isinstance(n, int))
        _log.info("%s: records counted in %.1f s", pattern, time.perf_counter() - started)
        # What is guessed of damaged ones is not remembered: they are to be refused where they are not allowed.
        _remember(file, {key: counts[key] for key in keys if key in counts})
        counts.update(
            (key, _guess_count(shard, fault))
            for (key, shard), fault in zip(missing, results, strict=True)
            if isinstance(fault, RecordDamage)
        )
    return [counts[key] for key in keys]


def _counted_or_fault(shard: bytes) -> int | UserError:
    try:
        return count_records(shard)
    except UserError as error:
        return error


def _guess_count(shard: bytes, damage: RecordDamage) -> int:
    """Guesses how many records a damaged shard had: the rest is taken for records of the same size as those before."""
    rest = os.path.getsize(shard) - damage.offset
    lost = max(round(rest * damage.record / max(damage.offset, 1)), 1)
    _log.warning("%s About %s from there on cannot be read.", damage, counted(lost, "record"))
    return damage.record + lost


def _memory_file(pattern: str, cache_dir: str | None) -> str:
    folder = os.path.abspath(os.path.expanduser(cache_dir or default_cache_dir()))
    digest = hashlib.blake2b(os.fsencode(pattern), digest_size=10).hexdigest()
    return os.path.join(folder, "record-counts", f"{digest}.json")


def _remember(file: str, counts: dict[str, int]) -> None:
    """Writes down the counts; where that cannot be done they are counted anew the next time."""
    new = f"{file}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(new, "w", encoding="utf-8") as stream:
            json.dump(counts, stream)
        os.replace(new, file)
    except OSError as error:
        _log.info("The numbers of records are not remembered: %s", error)


def _peek(shard: bytes, image_key: str, label: LabelFormat) -> bool:
    """Checks that a shard's first record has the features; returns whether its labels are floats."""
    kinds = kinds_of(read_record(shard, 0))
    where = f"{_text(shard)}: record 0"
    if kinds is None:
        raise UserError(f"{where} is no tf.train.Example, which each record has to be.")
    numbers = ("int64",) if label.form in ("class", "indices") else ("int64", "float")
    wrong = {}
    for option, key, allowed in (("image_key", image_key, ("bytes",)), ("label_key", label.key, numbers)):
        kind = kinds.get(key)
        if kind not in allowed:
            found = "it is not there" if kind is None else f"it is {kind}"
            wrong[f"dataset.{option}"] = f"  dataset.{option}={key} should be {' or '.join(allowed)}: {found}"
    if wrong:
        there = [f"  {key}: {kind}" for key, kind in sorted(kinds.items())[:_KEYS_SHOWN]]
        more = len(kinds) - len(there)
        there += [f"  and {more} more"] if more else []
        raise UserError(
            f"{where} has not the features that are expected:\n"
            + "\n".join(wrong.values())
            + "\nIts keys and types are:\n"
            + "\n".join(there or ["  none"])
            + "\nSet "
            + " and ".join(wrong)
            + " to what these records have."
        )
    return kinds[label.key] == "float"


def kinds_of(record: bytes) -> dict[str, str] | None:
    """Returns the kind (`bytes`, `float` or `int64`) of each of an Example's features; None if it is no Example.

    A feature without a value may have no kind; it is left out, like one that is missing.
    """
    example = parse_example(record)
    if example is None:
        return None
    kinds = {key: feature.WhichOneof("kind") for key, feature in example.features.feature.items()}
    return {key: kind.removesuffix("_list") for key, kind in kinds.items() if kind is not None}


def parse_example(record: bytes) -> Any:
    """Returns a record as a `tf.train.Example`, or None if it is none."""
    import tensorflow as tf

    try:
        return tf.train.Example.FromString(record)
    except Exception:  # protobuf's DecodeError; its package has no types and is no dependency of ours.
        return None


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
