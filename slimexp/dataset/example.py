"""Makes records: `tf.train.Example`s with TF-Slim's features, and small pictures as PNG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

__all__ = ["SIGNED_LABELS", "encode_png", "make_example"]

# How the labels of multi-label data are written: a number a label, so that `don't care` is not lost.
SIGNED_LABELS = "signed"


def make_example(
    contents: bytes,
    *,
    image_format: str,
    label: int | Sequence[int],
    text: Sequence[str],
    height: int,
    width: int,
    filename: bytes,
) -> bytes:
    """Makes a record with TF-Slim's features and the picture's name.

    Args:
        contents: The encoded picture: `image/encoded`.
        image_format: `jpeg`, `png`, …: `image/format`.
        label: The class, or for multi-label data 1, -1 or 0 (don't care) a label: `image/class/label`.
        text: The class's name, or the names of the positive labels: `image/class/text`.
        height: In pixels, as stored: `image/height`.
        width: Likewise: `image/width`.
        filename: What the picture is called: `image/filename`.

    Returns:
        A serialized `tf.train.Example`; equal arguments give equal bytes.
    """
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    feature["image/encoded"].bytes_list.value.append(contents)
    feature["image/format"].bytes_list.value.append(image_format.encode())
    feature["image/class/label"].int64_list.value.extend([label] if isinstance(label, int) else label)
    feature["image/class/text"].bytes_list.value.extend(name.encode() for name in text)
    feature["image/height"].int64_list.value.append(height)
    feature["image/width"].int64_list.value.append(width)
    feature["image/filename"].bytes_list.value.append(filename)
    return example.SerializeToString(deterministic=True)


def encode_png(pixels: np.ndarray) -> bytes:
    """Encodes a small picture as PNG, without row filters: four times as fast as Pillow does, and here smaller.

    Args:
        pixels: uint8 [height, width], grey, or [height, width, 3], RGB.
    """
    height, width = pixels.shape[:2]
    rows = np.zeros([height, 1 + pixels[0].size], np.uint8)  # Each row begins with its filter: 0, none.
    rows[:, 1:] = pixels.reshape(height, -1)
    colour_type = 0 if pixels.ndim == 2 else 2
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
