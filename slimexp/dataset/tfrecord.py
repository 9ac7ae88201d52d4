"""Loads datasets from TFRecord files whose records are `tf.train.Example`s, by default with TF-Slim's features."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from slimexp.cache_dir import default_cache_dir
from slimexp.dataset.checks import counted, first_of, require_file, require_folder
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.record_file import count_records, read_record
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
        _split(split, shards, pattern, image_key, label, cache_dir)
        for split, (pattern, shards) in (("train", train), ("eval", found_eval))
        if shards
    ]
    for split in splits:
        _log.info("%s: %s in %s", split.source, counted(len(split), "record"), counted(len(split.shards), "shard"))
    return Dataset(name, task, names, splits[0], splits[1] if len(splits) == 2 else None)


def _find_shards(
    folder: str, file_pattern: str, eval_pattern: str | None
) -> tuple[tuple[str, list[bytes]], tuple[str, list[bytes]]]:
    """Returns pattern and shards of both splits; without any for evaluation, if none are asked for or found."""
    train_pattern = os.path.join(folder, os.path.expanduser(file_pattern.replace("%s", "train")))
    train = _matching(train_pattern)
    if not train:
        raise UserError(
            f"dataset.file_pattern={file_pattern}: no file matches {train_pattern}{_what_is_there(folder)}."
        )
    pattern, found = "", []
    if eval_pattern is not None:
        pattern = os.path.join(folder, os.path.expanduser(eval_pattern))
        found = _matching(pattern)
        if not found:
            raise UserError(f"dataset.eval_pattern={eval_pattern}: no file matches {pattern}{_what_is_there(folder)}.")
    elif "%s" in file_pattern:
        for split in _EVAL_NAMES:
            pattern = os.path.join(folder, os.path.expanduser(file_pattern.replace("%s", split)))
            found = _matching(pattern)
            if found:
                break
    shared = sorted(set(train) & set(found))
    if shared:
        raise UserError(
            f"{_text(shared[0])} is in {train_pattern} and in {pattern}, so the network would be judged by what it "
            "learns from; narrow dataset.file_pattern or dataset.eval_pattern."
        )
    return (train_pattern, train), (pattern, found)


def _matching(pattern: str) -> list[bytes]:
    return sorted(os.fsencode(path) for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))


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
    names = load_class_names(class_names, labels_offset=labels_offset)
    if num_classes is not None and num_classes != len(names):
        raise UserError(
            f"dataset.num_classes={num_classes}, but {source} has {len(names)} names; make them agree, or leave "
            "dataset.num_classes out."
        )
    return names


def _split(
    name: str, shards: list[bytes], pattern: str, image_key: str, label: LabelFormat, cache_dir: str | None
) -> RecordSplit:
    for shard in shards:
        require_file(os.fsdecode(shard), "dataset.file_pattern" if name == "train" else "dataset.eval_pattern")
    counts = np.array(_count(shards, pattern, cache_dir), np.int64)
    if not counts.any():
        raise UserError(f"{pattern}: {counted(len(shards), 'shard')} without a record; write them again.")
    first = int(np.flatnonzero(counts)[0])
    is_float = _peek(shards[first], image_key, label)
    label = LabelFormat(label.key, label.form, label.num_classes, label.offset, is_float)
    return RecordSplit(name, tuple(shards), counts, pattern, image_key, label)


def _count(shards: list[bytes], pattern: str, cache_dir: str | None) -> list[int]:
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
        faults = [result for result in results if isinstance(result, str)]
        if faults:
            raise UserError(
                f"{len(faults)} of the {counted(len(shards), 'shard')} of {pattern} cannot be read:\n"
                + first_of(faults, len(faults))
            )
        counts.update((key, int(result)) for (key, _), result in zip(missing, results, strict=True))
        _log.info("%s: records counted in %.1f s", pattern, time.perf_counter() - started)
        _remember(file, {key: counts[key] for key in keys})
    return [counts[key] for key in keys]


def _counted_or_fault(shard: bytes) -> int | str:
    try:
        return count_records(shard)
    except UserError as error:
        return str(error)


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
