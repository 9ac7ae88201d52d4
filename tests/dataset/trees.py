"""Writes small sources of the published forms: PASCAL VOC's tree, IDX files, CIFAR-10's batches."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["VOC", "write_cifar10", "write_idx", "write_mnist", "write_voc"]

# By set and class the values of its images.
VOC: dict[str, dict[str, list[int]]] = {
    "train": {"cat": [1, -1, 0, 1], "dog": [-1, 1, 0, 1], "emu": [-1, -1, 1, 0]},
    "val": {"cat": [1, -1], "dog": [-1, 1], "emu": [0, 1]},
}


def write_voc(root: Path, sets: Mapping[str, Mapping[str, Sequence[int]]] = VOC) -> Path:
    """Writes a tree with the images 2008_<set's number><image's number> and returns it."""
    (root / "JPEGImages").mkdir(parents=True)
    (root / "ImageSets" / "Main").mkdir(parents=True)
    random = np.random.RandomState(0)
    for number, (name, classes) in enumerate(sets.items()):
        count = len(next(iter(classes.values())))
        ids = [f"2008_{number}{image:03d}" for image in range(count)]
        for image_id in ids:
            pixels = random.randint(0, 256, [6, 8, 3]).astype(np.uint8)
            Image.fromarray(pixels).resize((40, 32)).save(root / "JPEGImages" / f"{image_id}.jpg")
        (root / "ImageSets" / "Main" / f"{name}.txt").write_text("".join(f"{image_id}\n" for image_id in ids))
        for class_name, values in classes.items():
            lines = [f"{image_id} {value:2d}\n" for image_id, value in zip(ids, values, strict=True)]
            (root / "ImageSets" / "Main" / f"{class_name}_{name}.txt").write_text("".join(lines))
    return root


def write_idx(path: Path, values: np.ndarray, *, kind: int = 8) -> Path:
    """Writes an IDX file, compressed if it is named .gz."""
    content = bytes([0, 0, kind, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_mnist(root: Path, *, num_train: int = 20, num_eval: int = 6, side_px: int = 28) -> dict[str, np.ndarray]:
    """Writes the four files, some of them compressed or with a dot; label = number modulo 10. Returns the arrays."""
    random = np.random.RandomState(1)
    arrays = {}
    for prefix, mark, suffix, count in (("train", "-", "", num_train), ("t10k", ".", ".gz", num_eval)):
        arrays[f"{prefix}-images"] = random.randint(0, 256, [count, side_px, side_px]).astype(np.uint8)
        arrays[f"{prefix}-labels"] = (np.arange(count) % 10).astype(np.uint8)
        write_idx(root / f"{prefix}-images{mark}idx3-ubyte{suffix}", arrays[f"{prefix}-images"])
        write_idx(root / f"{prefix}-labels{mark}idx1-ubyte{suffix}", arrays[f"{prefix}-labels"])
    return arrays


def write_cifar10(root: Path, *, each: int = 4) -> np.ndarray:
    """Writes six batches and the names; label = number modulo 10. Returns all pixels, uint8 [n, 32, 32, 3]."""
    root.mkdir(parents=True, exist_ok=True)
    pixels = np.random.RandomState(2).randint(0, 256, [6 * each, 32, 32, 3]).astype(np.uint8)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for place, name in enumerate(names):
        rows = [
            bytes([number % 10]) + pixels[number].transpose(2, 0, 1).tobytes()
            for number in range(place * each, (place + 1) * each)
        ]
        (root / name).write_bytes(b"".join(rows))
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (root / "batches.meta.txt").write_text("\n".join(classes) + "\n\n")
    return pixels
