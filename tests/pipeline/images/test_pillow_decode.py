from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from slimexp.pipeline.images import pillow_decode
from slimexp.pipeline.images.formats import BadImage
from slimexp.pipeline.images.jpeg_header import read_jpeg_header
from slimexp.pipeline.images.pillow_decode import cause_of, decode_in_python, needs_pillow


def png_of_16_bits(values: np.ndarray) -> bytes:
    """Encodes uint16 [height, width, 1 to 4]."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, (0, 4, 2, 6)[channels - 1], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    magic = b"\x89PNG\r\n\x1a\n"
    return magic + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_deep_pngs_are_brought_to_8_bits_by_value(channels: int) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (20, 30, channels)).astype(np.uint16)
    values[0, :3] = [[0], [65535], [255]]  # The last is nearer to 1 than to its high byte, 0.
    colours = values[:, :, [0, 0, 0] if channels < 3 else [0, 1, 2]]
    assert (decode_in_python(png_of_16_bits(values)) == np.rint(colours / 257)).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG2000", "PPM"])
def test_deep_grey_of_any_format(photo: np.ndarray, encode: Callable, kind: str) -> None:
    values = photo[:50, :60, 0].astype(np.uint16) * 257 + 100
    found = decode_in_python(encode(Image.fromarray(values), kind))
    assert (found == np.rint(values / 257)[:, :, np.newaxis]).all()
    assert found.shape == (50, 60, 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_orientations(photo: np.ndarray, encode: Callable, kind: str) -> None:
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        contents = encode(photo[:40, :60], kind, exif=exif)
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
        assert (decode_in_python(contents) == np.asarray(upright)).all()
        as_stored = decode_in_python(contents, exif=False)
        assert as_stored.shape == ((40, 60, 3) if kind != "TIFF" else (*upright.size[::-1], 3))


def test_damaged_exif_is_left_out(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo[:40, :60], "PNG", exif=b"Exif\0\0II*\0\xff\xff")
    assert (decode_in_python(contents) == photo[:40, :60]).all()


def test_colours_of_unknown_range_are_refused(photo: np.ndarray, encode: Callable) -> None:
    grey = photo[:9, :9, 0]
    with pytest.raises(BadImage, match="the TIFF has floating-point pixels, of unknown range; save it with 8 or 16"):
        decode_in_python(encode(grey.astype(np.float32), "TIFF"))
    with pytest.raises(BadImage, match="the TIFF has 32-bit integers as pixels, of unknown range"):
        decode_in_python(encode(grey.astype(np.int32), "TIFF"))


def test_cmyk_without_adobes_marker_is_inverted_like_one_with_it(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(Image.fromarray(photo).convert("CMYK"), quality=95)
    at = contents.find(b"\xff\xee")
    bare = contents[:at] + contents[at + 2 + int.from_bytes(contents[at + 2 : at + 4], "big") :]
    assert not needs_pillow(read_jpeg_header(contents))
    assert needs_pillow(read_jpeg_header(bare))
    assert np.abs(decode_in_python(bare).astype(int) - photo).mean() < 2


def test_a_picture_of_any_size_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch, encode: Callable) -> None:
    bomb = bytearray(encode(np.zeros([1, 1, 3], np.uint8), "BMP"))
    bomb[18:26] = struct.pack("<ii", 60_000, 60_000)  # Pillow refuses this one.
    with pytest.raises(BadImage, match="the BMP has more than the 178956970 pixels that are decoded"):
        decode_in_python(bytes(bomb))
    bomb[18:26] = struct.pack("<ii", 15_000, 15_000)
    with pytest.raises(BadImage, match="the BMP has more than the 178956970 pixels"):  # A warning made an error.
        decode_in_python(bytes(bomb))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(BadImage, match="the BMP has 15000 x 15000 pixels, more than the 178956970 that are decoded;"):
        decode_in_python(bytes(bomb))
    monkeypatch.setattr(pillow_decode, "LARGE_PIXELS", 99)
    assert decode_in_python(encode(np.full([10, 10, 3], 7, np.uint8), "BMP")).mean() == 7
    assert not pillow_decode._turn.locked()


def test_what_is_no_picture(monkeypatch: pytest.MonkeyPatch, photo: np.ndarray, encode: Callable) -> None:
    with pytest.raises(BadImage, match=r"the file is empty \(0 bytes\)"):
        decode_in_python(b"")
    with pytest.raises(
        BadImage, match="it is a web page, not a JPEG, PNG, GIF, BMP, WebP, TIFF, JPEG 2000, AVIF or PNM"
    ):
        decode_in_python(b"<html>")
    for kind in ("PNG", "GIF", "BMP", "WEBP", "TIFF", "JPEG2000", "AVIF", "PPM"):
        contents = encode(photo[:90, :90], kind)
        for length in (13, len(contents) // 2):
            with pytest.raises(BadImage, match=r"the [\w ]+ is damaged or of a kind that cannot be read \("):
                decode_in_python(contents[:length])
    monkeypatch.delitem(Image.OPEN, "AVIF")
    monkeypatch.setattr(Image, "init", lambda: None)
    with pytest.raises(BadImage, match="it is AVIF, which the installed Pillow cannot read; update Pillow or convert"):
        decode_in_python(encode(photo[:9, :9], "AVIF"))


def test_causes_leave_out_the_graph() -> None:
    error = tf.errors.InvalidArgumentError(None, None, "{{function_node __wrapped__X}} It is bad. [Op:X] name: ")
    assert cause_of(error) == "It is bad."
    assert cause_of(KeyError()) == "KeyError"
