"""Real photos of several sizes and formats, and what the pipeline's tests do with them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from slimexp.dataset.split import Split


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    """uint8 [427, 640, 3], a photo."""
    return np.asarray(load_sample_images().images[0])


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """Encodes an array or a Pillow image."""

    def encode(picture: Any, kind: str = "JPEG", **options: Any) -> bytes:
        image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        return buffer.getvalue()

    return encode


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """21 JPEGs of several sizes, one of them grey and one progressive, with single labels."""
    folder = tmp_path_factory.mktemp("photos")
    photos = load_sample_images().images
    sizes = [(96, 80), (60, 100), (33, 47), (150, 150), (20, 24), (200, 64)]  # width, height
    paths = []
    for number in range(21):
        image = Image.fromarray(photos[number % 2]).resize(sizes[number % len(sizes)])
        image = image.rotate(9 * number)  # So that no two are equal.
        image = image.convert("L") if number == 5 else image
        path = folder / f"{number}.jpg"
        image.save(path, quality=90, progressive=number == 7)
        paths.append(str(path).encode())
    return Split("train", paths, np.arange(21, dtype=np.int32) % 5, "train.txt", np.arange(1, 22))


@pytest.fixture
def damaged(split: Split, tmp_path: Path) -> Callable[[dict[int, bytes | None]], Split]:
    """Returns the split with some files' contents replaced; None: the file is missing."""

    def damaged(contents: dict[int, bytes | None]) -> Split:
        paths = list(split.paths)
        for number, data in contents.items():
            path = tmp_path / f"bad {number}.jpg"
            if data is not None:
                path.write_bytes(data)
            paths[number] = str(path).encode()
        return Split(split.name, paths, split.labels, split.source, split.lines)

    return damaged
