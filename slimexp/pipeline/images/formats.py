"""What a file is, told by its first bytes and never by its name."""

from __future__ import annotations

__all__ = ["READABLE_FORMATS", "BadImage", "describe", "identify"]

READABLE_FORMATS = "JPEG, PNG, GIF, BMP, WebP, TIFF, JPEG 2000, AVIF or PNM"

# What files begin with, in the order in which they are tried.
_READABLE = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",  # BigTIFF, as the next.
    b"MM\0+": "TIFF",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",  # A bare code stream.
    **{b"P%d%c" % (number, blank): "PNM" for number in range(1, 7) for blank in b" \t\r\n"},
}
_OTHERS = {
    b"8BPS": "a Photoshop file",
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"version https://git-lfs": "a Git LFS pointer, so the file itself was never fetched",
    b"<?xml": "XML",
    b"<svg": "an SVG drawing",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
}


class BadImage(ValueError):
    """A file's contents are no picture that can be read.

    Its message tells what is wrong with the file, in words that follow the file's name and a colon.
    """


def identify(contents: bytes) -> str | None:
    """Returns the format's name if it is one of `READABLE_FORMATS`, else None."""
    if contents[:4] == b"RIFF" and contents[8:12] == b"WEBP":
        return "WebP"
    # The first entry of an AVIF names its brand, or is the one of HEIF files in general with the brand further on.
    if contents[4:8] == b"ftyp" and any(brand in contents[8:64] for brand in (b"avif", b"avis")):
        return "AVIF"
    return next((kind for magic, kind in _READABLE.items() if contents.startswith(magic)), None)


def describe(contents: bytes) -> str:
    """Says in words what a file that `identify` does not know is instead."""
    start = contents[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for magic, what in _OTHERS.items():
        if contents.startswith(magic) or start.startswith(magic.lower()):
            return what
    if contents[4:8] == b"ftyp":
        return f"an ISO media file ({contents[8:12].decode('ascii', 'replace')}: HEIC or video)"
    if not any(contents[:4096]):
        return f"{len(contents)} bytes that begin with zeros alone"
    return f"something that begins with {contents[:12]!r}"
