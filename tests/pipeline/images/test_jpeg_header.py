from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from slimexp.pipeline.images.formats import BadImage
from slimexp.pipeline.images.jpeg_header import JpegHeader, find_end, read_jpeg_header


def with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def test_what_a_header_says(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo, exif=with_orientation(6))
    header = read_jpeg_header(contents)
    assert header == JpegHeader(6, 427, 640, 3, False, False, contents.find(b"\xff\xda"))
    assert read_jpeg_header(encode(photo, progressive=True)).is_progressive
    cmyk = read_jpeg_header(encode(Image.fromarray(photo).convert("CMYK")))
    assert (cmyk.num_components, cmyk.is_adobe) == (4, True)


def test_odd_segments_are_passed_over(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo, exif=with_orientation(3))
    second_exif = contents[2 : contents.find(b"\xff\xdb")].replace(b"\x01\x12", b"\x01\x13")
    for inserted in (b"\xff\xff\xff", b"stray bytes", b"\xff\x01", b"\xff\xe5\0\x04ab", b"\xff\xe1\0\x06http"):
        header = read_jpeg_header(contents[:2] + inserted + contents[2:])
        assert (header.orientation, header.height, header.scan_start > 0) == (3, 427, True)
    header = read_jpeg_header(contents[:2] + second_exif + contents[2:])
    assert header.orientation == 1  # The first counts.


def test_a_damaged_header_gives_what_comes_before(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo, exif=with_orientation(3))
    start = contents.find(b"\xff\xda")
    for length in range(3, start + 2):
        assert read_jpeg_header(contents[:length]).scan_start == -1
    assert read_jpeg_header(b"\xff\xd8\xff\xe1\0\1" + contents[2:]) == JpegHeader()
    assert read_jpeg_header(b"\xff\xd8" + contents) == JpegHeader()


def test_the_end_is_the_first_after_the_pixels(photo: np.ndarray, encode: Callable) -> None:
    thumbnail = encode(photo[:40, :60])
    exif = Image.Exif()
    exif[0x927C] = thumbnail  # An end marker of its own.
    contents = encode(photo, exif=exif)
    header = read_jpeg_header(contents)
    assert contents.find(b"\xff\xd9") < header.scan_start
    assert find_end(contents, header) == len(contents)
    assert find_end(contents + b"a trailer", header) == len(contents)
    assert find_end(contents + thumbnail + b"a trailer", header) == len(contents)
    with pytest.raises(BadImage, match=rf"cut short or damaged: {len(contents) - 1} bytes, without the end marker"):
        find_end(contents[:-1], header)
    with pytest.raises(BadImage, match="cut short"):
        find_end(contents[:300], read_jpeg_header(contents[:300]))
