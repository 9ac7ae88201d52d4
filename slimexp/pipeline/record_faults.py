"""What is wrong with records that a batch could not be made of: which shard, which record, which label."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from slimexp.dataset.checks import first_of
from slimexp.dataset.record_file import RecordDamage, locate_damage
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.tfrecord import kinds_of, parse_example
from slimexp.errors import UserError

__all__ = ["DamagedShard", "explain_shards", "find_damaged_shards", "labels_of", "picture_of", "read_pictures"]

_THREADS = 32
_OFFSET = re.compile(r"record at (\d+)")
_MOST_VALUES = 20


def read_pictures(split: RecordSplit, indices: Sequence[int]) -> dict[int, bytes | str]:
    """Reads the encoded pictures of some examples.

    Returns:
        By example number the picture's bytes; or, in words that follow the record's name and a colon, why the record
        cannot be used.
    """
    return {
        index: str(record) if isinstance(record, UserError) else picture_of(split, record)
        for index, record in split.read(indices).items()
    }


def labels_of(split: RecordSplit, record: bytes) -> np.ndarray:
    """Returns a sound record's labels: int32 [], the class, or int8 [num_classes], 1, -1 or 0 (don't care)."""
    label = split.label
    feature = parse_example(record).features.feature[label.key]
    values = np.array((feature.float_list if label.is_float else feature.int64_list).value, np.float64)
    if label.form == "class":
        return np.int32(values[0] - label.offset)[()]
    if label.form == "indices":
        labels = np.full(label.num_classes, -1, np.int8)
        labels[(values - label.offset).astype(np.int64)] = 1
        return labels
    return (2 * values - 1 if label.form == "binary" else values).astype(np.int8)


@dataclasses.dataclass(frozen=True)
class DamagedShard:
    """A shard that cannot be read to its end.

    Attributes:
        shard: Its number in the split.
        record: The first record that cannot be read; None if the file cannot be opened.
        reason: What is wrong and where, in words, with the file's name.
    """

    shard: int
    record: int | None
    reason: str


def picture_of(split: RecordSplit, record: bytes) -> bytes | str:
    """Returns a record's encoded picture; or, in words, why the record cannot be used."""
    label = split.label
    kinds = kinds_of(record)
    if kinds is None:
        return "it is no tf.train.Example"
    there = f"; its keys and types are {', '.join(f'{key}: {kind}' for key, kind in sorted(kinds.items())) or 'none'}"
    number = "float" if label.is_float else "int64"
    for option, key, expected in (("image_key", split.image_key, "bytes"), ("label_key", label.key, number)):
        kind = kinds.get(key)
        if kind is None and option == "label_key" and label.form == "indices":
            continue  # None of its labels is positive.
        if kind != expected:
            found = "is not there" if kind is None else f"is {kind}, where the first record has {expected}"
            return f"dataset.{option}={key} {found}{there}"
    features = parse_example(record).features.feature
    pictures = features[split.image_key].bytes_list.value
    if len(pictures) != 1:
        return f"dataset.image_key={split.image_key} holds {len(pictures)} byte strings; it must hold one picture"
    values = list(getattr(features[label.key], f"{number}_list").value)
    if not label.fits(values):
        shown = ", ".join(f"{value:g}" for value in values[:_MOST_VALUES]) + (
            ", …" if len(values) > _MOST_VALUES else ""
        )
        option = "dataset.task=single" if label.form == "class" else f"dataset.label_form={label.form}"
        offset = f", and dataset.labels_offset={label.offset}" if label.offset else ""
        return (
            f"the label is [{shown}]; {label.rule} are allowed ({option}, {label.num_classes} classes{offset})"
            if label.form != "class"
            else f"the label is {shown or 'empty'}; {label.rule} is allowed ({label.num_classes} classes{offset})"
        )
    return bytes(pictures[0])


def find_damaged_shards(split: RecordSplit, error: Exception) -> list[DamagedShard]:
    """Looks for the damaged shard when records could not be read.

    Args:
        split: The examples.
        error: What the pipeline raised; TensorFlow names the place in the file, but not the file.
    """
    match = _OFFSET.search(str(error))
    near = int(match[1]) if match else None
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="find_damage") as pool:
        found = list(pool.map(lambda shard: locate_damage(shard, near), split.shards))
    return [
        DamagedShard(number, damage.record if isinstance(damage, RecordDamage) else None, str(damage))
        for number, damage in enumerate(found)
        if damage is not None
    ]


def explain_shards(split: RecordSplit, damaged: Sequence[DamagedShard]) -> str:
    """Returns the message that says what is wrong with which shards."""
    count = "1 shard" if len(damaged) == 1 else f"{len(damaged)} shards"
    reasons = first_of((shard.reason for shard in damaged), len(damaged))
    message = f"{count} of {split.source} cannot be read:\n{reasons}"
    if all(shard.record is not None for shard in damaged):
        message += "\ndataset.on_bad_image=skip leaves out what lies behind the damage, up to a limit."
    return message
