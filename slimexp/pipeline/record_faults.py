"""What is wrong with records that a batch could not be made of: which shard, which record, which label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from slimexp.dataset.checks import first_of
from slimexp.dataset.record_file import find_damage
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.tfrecord import kinds_of, parse_example
from slimexp.errors import UserError

__all__ = ["explain_shards", "read_pictures"]

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
        index: str(record) if isinstance(record, UserError) else _picture(split, record)
        for index, record in split.read(indices).items()
    }


def _picture(split: RecordSplit, record: bytes) -> bytes | str:
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


def explain_shards(split: RecordSplit, error: Exception) -> str | None:
    """Looks for the damaged shard when records could not be read.

    Args:
        split: The examples.
        error: What the pipeline raised; TensorFlow names the place in the file, but not the file.

    Returns:
        What is wrong with which shards, as a whole message; None if nothing is found.
    """
    match = _OFFSET.search(str(error))
    near = int(match[1]) if match else None
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="find_damage") as pool:
        found = pool.map(lambda shard: find_damage(shard, near), split.shards)
        damages = [damage for damage in found if damage is not None]
    if not damages:
        return None
    count = "1 shard" if len(damages) == 1 else f"{len(damages)} shards"
    return f"{count} of {split.source} cannot be read:\n{first_of(damages, len(damages))}"
