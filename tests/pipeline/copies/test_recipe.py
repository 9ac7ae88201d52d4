"""Tests of slimexp.pipeline.copies.recipe."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageOps

from slimexp.pipeline.copies.recipe import shrink
from slimexp.pipeline.images.jpeg_header import read_jpeg_header

Encode = Callable[..., bytes]


def small_of(contents: bytes, short_side: int = 100) -> Image.Image:
    new = shrink(contents, read_jpeg_header(contents), short_side=short_side)
    assert new is not None
    return Image.open(io.BytesIO(new))


def psnr(image: Image.Image, reference: Image.Image) -> float:
    error = np.asarray(image, np.float64) - np.asarray(reference, np.float64)
    return 10 * np.log10(255**2 / np.mean(error**2))


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        ((640, 427), 100, (150, 100)),  # 640 * 100 / 427 = 149.9
        ((427, 640), 100, (100, 150)),
        ((640, 427), 426, (639, 426)),
        ((101, 2000), 10, (10, 198)),
        ((2000, 2), 1, (1000, 1)),
    ],
)
def test_short_side_is_as_asked_for(
    photo: np.ndarray, encode: Encode, size: tuple[int, int], short_side: int, expected: tuple[int, int]
) -> None:
    contents = encode(Image.fromarray(photo).resize(size))
    assert small_of(contents, short_side).size == expected


# 427 and 640 are multiples of neither 4 nor 8: the scaled picture's last row is part of a pixel.
@pytest.mark.parametrize("short_side", [400, 213, 200, 107, 60])
def test_small_photo_lies_where_the_original_does(photo: np.ndarray, encode: Encode, short_side: int) -> None:
    contents = encode(photo, quality=95)
    small = small_of(contents, short_side)
    original = Image.open(io.BytesIO(contents))
    aligned = psnr(small, original.resize(small.size, Image.Resampling.BICUBIC))
    # A quarter of a small photo's pixel, which is what half a pixel at 1/2 scale would be.
    shift = 0.25 * original.width / small.width
    box = (shift, 0, original.width, original.height)
    assert aligned > psnr(small, original.resize(small.size, Image.Resampling.BICUBIC, box=box))
    assert aligned > 30


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_kept(photo: np.ndarray, encode: Encode, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "x" * 5000
    contents = encode(photo, exif=exif)
    small = small_of(contents)
    assert small.getexif().get(0x0112, 1) == orientation
    assert 0x010E not in small.getexif()
    original = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
    turned = ImageOps.exif_transpose(small)
    assert psnr(turned, original.resize(turned.size, Image.Resampling.BICUBIC)) > 30


def test_same_bytes_each_time(photo: np.ndarray, encode: Encode) -> None:
    contents = encode(photo)
    header = read_jpeg_header(contents)
    assert shrink(contents, header, short_side=100) == shrink(contents, header, short_side=100)


@pytest.mark.parametrize("kind", ["grey", "progressive", "4:4:4", "rgb", "restart", "notes"])
def test_kinds_of_jpeg(photo: np.ndarray, encode: Encode, kind: str) -> None:
    image = Image.fromarray(photo)
    options = {
        "grey": {},
        "progressive": {"progressive": True},
        "4:4:4": {"subsampling": "4:4:4"},
        "rgb": {"keep_rgb": True},
        "restart": {"restart_marker_rows": 1},
        "notes": {"comment": b"by hand", "icc_profile": b"p" * 70_000, "xmp": b"<x/>"},
    }[kind]
    contents = encode(image.convert("L") if kind == "grey" else image, **options)
    small = small_of(contents, 200)
    assert small.mode == ("L" if kind == "grey" else "RGB")
    assert psnr(small, Image.open(io.BytesIO(contents)).resize(small.size, Image.Resampling.BICUBIC)) > 30
    assert "comment" not in small.info
    assert "icc_profile" not in small.info


def test_what_stands_before_and_behind_the_picture_does_not_matter(photo: np.ndarray, encode: Encode) -> None:
    plain = encode(photo)
    header = read_jpeg_header(plain)
    # Damaged EXIF, a phone's list of further pictures, bytes to fill up, and a film behind the picture.
    notes = b"\xff\xe1\x00\x10Exif\0\0MM\0*\0\0\0\xff" + b"\xff\xff\xff\xe2\x00\x08MPF\0ab"
    contents = plain[:2] + notes + plain[2:] + b"\0\0\0\x18ftypmp42" + bytes(100)
    expected = shrink(plain, header, short_side=100)
    assert shrink(contents, read_jpeg_header(contents), short_side=100) == expected


def test_damaged_files_are_refused(photo: np.ndarray, encode: Encode) -> None:
    contents = encode(photo)
    header = read_jpeg_header(contents)
    assert shrink(contents[: len(contents) // 2], header, short_side=100) is None
    assert shrink(contents[:-2], header, short_side=100) is None
    no_tables = contents[:2] + contents[header.scan_start :]
    assert shrink(no_tables, header, short_side=100) is None
    arithmetic = contents.replace(b"\xff\xc0", b"\xff\xc9", 1)
    assert shrink(arithmetic, header, short_side=100) is None


def test_huge_photo_is_neither_refused_nor_warned_of(encode: Encode) -> None:
    contents = encode(Image.new("L", (20_000, 9_500), 77), quality=30)  # Pillow's limits are 89 and 179 megapixels.
    small = small_of(contents, 95)
    assert small.size == (200, 95)
    assert np.ptp(np.asarray(small)) <= 2
