from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.pipeline.diagnose import find_fault


def write(folder: Path, contents: bytes) -> bytes:
    path = folder / "file.jpg"
    path.write_bytes(contents)
    return str(path).encode()


def test_a_sound_file_has_no_fault(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP"):
        assert find_fault(write(tmp_path, encode(photo, kind))) is None


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    assert find_fault(str(tmp_path / "none.jpg").encode()) == "there is no such file"
    assert find_fault(str(tmp_path).encode()) == "the file cannot be opened: Is a directory"
    assert find_fault(bytes(tmp_path) + b"/\xff\xfe.jpg") == "there is no such file"


@pytest.mark.parametrize(
    ("contents", "fault"),
    [
        (b"", "the file is empty (0 bytes)"),
        (b"<!DOCTYPE html><html>", "it is a web page, not a JPEG, PNG, GIF, BMP or WebP image"),
        (b"\xef\xbb\xbf  <HTML>", "it is a web page, not"),
        (b"<svg xmlns=''>", "it is an SVG drawing, not"),
        (b"II*\0....", "it is a TIFF image, not"),
        (b"version https://git-lfs.github.com/spec/v1", "it is a Git LFS pointer"),
        (b"\0\0\0\x18ftypheic", "it is an ISO media file (heic: HEIC, AVIF or video), not"),
        (b"\0" * 5000, "it is 5000 bytes that begin with zeros alone, not"),
        (b"hello", "it is something that begins with b'hello', not"),
        (b"\xff", r"it is something that begins with b'\xff', not"),
    ],
)
def test_what_is_no_image(tmp_path: Path, contents: bytes, fault: str) -> None:
    assert (find_fault(write(tmp_path, contents)) or "").startswith(fault)


def test_damage_is_described(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    jpeg, png = encode(photo), encode(photo, "PNG")
    half = find_fault(write(tmp_path, jpeg[: len(jpeg) // 2]))
    assert half == f"the JPEG is cut short or damaged: {len(jpeg) // 2} bytes, without the end marker"
    header = find_fault(write(tmp_path, b"\xff\xd8\xff" + jpeg[500:]))
    assert header is not None
    assert header.startswith("the JPEG is damaged or of a kind that cannot be read (")
    assert "function_node" not in header
    assert "[Op:" not in header
    assert (find_fault(write(tmp_path, png[:-3000])) or "").startswith("the PNG is damaged")
    bmp = encode(photo, "BMP")
    assert (find_fault(write(tmp_path, bmp[:-500])) or "").startswith("the BMP is damaged or of a kind that cannot be")
    assert (find_fault(write(tmp_path, b"BM")) or "").startswith("the BMP is damaged")
    webp = encode(photo, "WEBP")
    assert (find_fault(write(tmp_path, webp[:-3000])) or "").startswith("the WebP is damaged")


def test_a_kind_that_cannot_be_read_has_a_way_out(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    image = Image.fromarray(photo)
    animated = encode(image, "WEBP", save_all=True, append_images=[image.rotate(180)], kmin=1, kmax=2)
    assert find_fault(write(tmp_path, animated)) == (
        "it is an animated WebP without transparency, which cannot be read; save its first frame as a still picture"
    )
    assert find_fault(write(tmp_path, encode(image.convert("1"), "BMP"))) == (
        "it is a BMP of 1 bit a pixel, and only 8, 24 and 32 can be read; save it as a PNG"
    )
    bmp = encode(photo, "BMP")
    for bits in (4, 16):
        fault = find_fault(write(tmp_path, bmp[:28] + bits.to_bytes(2, "little") + bmp[30:]))
        assert (fault or "").startswith(f"it is a BMP of {bits} bits a pixel, and only 8, 24 and 32 can be read;")
    run_length = bytearray(encode(image.quantize(16), "BMP"))
    run_length[30] = 1  # The header's compression.
    assert find_fault(write(tmp_path, bytes(run_length))) == (
        "it is a run-length encoded BMP, which cannot be read; save it as a PNG"
    )
    pixels = photo[::-1, :, ::-1].tobytes()  # Rows of 1920 bytes, from the bottom up, blue first.
    os2 = b"BM" + struct.pack("<IHHIIHHHH", 26 + len(pixels), 0, 0, 26, 12, 640, 427, 1, 24) + pixels
    assert Image.open(io.BytesIO(os2)).size == (640, 427)
    assert find_fault(write(tmp_path, os2)) == (
        "it is a BMP with the old OS/2 header, which cannot be read; save it as a PNG"
    )
