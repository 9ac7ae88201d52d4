"""Writes TFRecord files with real pictures, for the tests of all that reads them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_sample_images

__all__ = ["damage", "example", "write_shards"]

SIZES = [(48, 40), (30, 50), (33, 47), (64, 64), (20, 24)]  # width, height


def example(**features: Any) -> bytes:
    """Returns a serialized Example; double underscores in keys stand for slashes."""
    kinds: dict[type, Callable[[list[Any]], Any]] = {
        bytes: lambda values: tf.train.Feature(bytes_list=tf.train.BytesList(value=values)),
        int: lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values)),
        float: lambda values: tf.train.Feature(float_list=tf.train.FloatList(value=values)),
    }
    made = {}
    for key, value in features.items():
        values = value if isinstance(value, list) else [value]
        made[key.replace("__", "/")] = kinds[type(values[0]) if values else int](values)
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def picture(number: int) -> bytes:
    """Returns a small JPEG; no two are equal."""
    buffer = io.BytesIO()
    photo = Image.fromarray(load_sample_images().images[number % 2])
    photo.resize(SIZES[number % len(SIZES)]).rotate(9 * number).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def write_shards(
    folder: Path,
    counts: Sequence[int],
    *,
    name: str = "train",
    label: Callable[[int], Any] = lambda number: number % 5,
    label_key: str = "image__class__label",
    replace: dict[int, bytes] | None = None,
) -> list[Path]:
    """Writes shards with so many records each and returns their paths; whole records can be replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    number = 0
    for shard, count in enumerate(counts):
        paths.append(folder / f"{name}-{shard:05d}-of-{len(counts):05d}")
        with tf.io.TFRecordWriter(str(paths[-1])) as writer:
            for _ in range(count):
                made = example(image__encoded=picture(number), image__format=b"jpeg", **{label_key: label(number)})
                writer.write((replace or {}).get(number, made))
                number += 1
    return paths


def damage(path: Path, place: int) -> None:
    """Turns over the bits of one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 255
    path.write_bytes(content)
