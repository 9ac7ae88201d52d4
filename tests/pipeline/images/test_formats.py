from __future__ import annotations

import pytest

from slimexp.pipeline.images.formats import describe, identify


@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"GIF89a", "GIF"),
        (b"BM", "BMP"),
        (b"RIFF\0\0\0\0WEBP", "WebP"),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"II*\0", "TIFF"),
        (b"MM\0+", "TIFF"),
        (b"\0\0\0\x20ftypavif", "AVIF"),
        (b"\0\0\0\x20ftypmif1\0\0\0\0mif1avif", "AVIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", None),
        (b"\xff\x4f\xff\x51", "JPEG 2000"),
        (b"P6\n", "PNM"),
        (b"P6x", None),
        (b"", None),
    ],
)
def test_formats_are_told_by_their_first_bytes(contents: bytes, kind: str | None) -> None:
    assert identify(contents) == kind


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\xef\xbb\xbf  <HTML>", "a web page"),
        (b"<svg xmlns=''>", "an SVG drawing"),
        (b"8BPS", "a Photoshop file"),
        (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer, so the file itself was never fetched"),
        (b"\0\0\0\x18ftypheic", "an ISO media file (heic: HEIC or video)"),
        (b"\0" * 5000, "5000 bytes that begin with zeros alone"),
        (b"hello", "something that begins with b'hello'"),
        (b"\xff", r"something that begins with b'\xff'"),
    ],
)
def test_other_files_are_described(contents: bytes, what: str) -> None:
    assert describe(contents) == what
