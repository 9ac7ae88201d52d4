from __future__ import annotations

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
    encoded = bytearray(encode(Image.fromarray(photo).quantize(16), "BMP"))
    encoded[30] = 1
    assert "run-length encoded" in (find_fault(write(tmp_path, bytes(encoded))) or "")
