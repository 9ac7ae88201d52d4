"""What a JPEG says about itself before its pixels."""

from __future__ import annotations

import dataclasses

from slimexp.pipeline.images.formats import BadImage
from slimexp.pipeline.images.orientation import parse_orientation

__all__ = ["END", "JpegHeader", "find_end", "read_jpeg_header"]

END = b"\xff\xd9"
_APP1, _APP14, _SCAN = 0xE1, 0xEE, 0xDA
_LEAST_ADOBE_BYTES = 12  # A shorter segment is none, to libjpeg either.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # Those three are tables and a reserved one.
_TABLES = frozenset({0xC4, 0xCC, 0xDB, 0xDD})
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xD8)})
_NONE_FOLLOWS = frozenset({0xD8, 0xD9})  # A second beginning, or the end.


@dataclasses.dataclass
class JpegHeader:
    """What stands before the first scan of a JPEG.

    Attributes:
        orientation: By EXIF, 1 to 8; 1 where EXIF does not say, or stands behind tables or the frame header, where the
            standard (EXIF 2.3, section 4.5.4) has none.
        height: In pixels as stored; 0 if there is no frame header.
        width: Likewise.
        num_components: The colour components: 1 grey, 3 colour, 4 CMYK.
        is_progressive: Whether the whole picture's coefficients must be held to decode any of it.
        is_adobe: Whether Adobe's marker tells how the colours are meant.
        scan_start: Where the first scan's header begins; -1 if there is none.
    """

    orientation: int = 1
    height: int = 0
    width: int = 0
    num_components: int = 0
    is_progressive: bool = False
    is_adobe: bool = False
    scan_start: int = -1


def read_jpeg_header(contents: bytes) -> JpegHeader:
    """Reads a JPEG's segments up to its first scan, or up to the first that is damaged; only their heads are looked at.

    Args:
        contents: A file that begins as a JPEG does.

    Returns:
        What was found.
    """
    header = JpegHeader()
    is_exif_past = False
    at = 2
    while True:
        # Bytes that belong to no segment, and any number of 0xff before a marker, are passed over, as libjpeg does.
        at = contents.find(b"\xff", at)
        if at < 0 or at + 4 > len(contents):
            break
        marker = contents[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        if marker in _NONE_FOLLOWS:
            break
        if marker == _SCAN:
            header.scan_start = at
            break
        length = int.from_bytes(contents[at + 2 : at + 4], "big")
        start, stop = at + 4, at + 2 + length
        if length < 2:
            break
        is_exif_past = is_exif_past or marker in _TABLES or marker in _FRAMES
        if marker == _APP1 and not is_exif_past and contents.startswith(b"Exif\0\0", start):
            is_exif_past = True
            header.orientation = parse_orientation(contents[start + 6 : stop])
        elif marker == _APP14 and contents.startswith(b"Adobe", start):
            header.is_adobe = header.is_adobe or stop - start >= _LEAST_ADOBE_BYTES
        elif marker in _FRAMES and len(contents) >= start + 6:
            header.height = int.from_bytes(contents[start + 1 : start + 3], "big")
            header.width = int.from_bytes(contents[start + 3 : start + 5], "big")
            header.num_components = contents[start + 5]
            header.is_progressive = marker in _PROGRESSIVE
        at = stop
    return header


def find_end(contents: bytes, header: JpegHeader) -> int:
    """Finds where the picture ends, behind its end marker; cameras append further pictures and notes of their own.

    Args:
        contents: The file.
        header: Its header.

    Returns:
        The number of bytes up to there.

    Raises:
        BadImage: If there is no end marker behind the first scan's start.
    """
    if contents.endswith(END):
        return len(contents)
    # The marker cannot occur within coded pixels, but it does so in thumbnails, which stand before the first scan.
    found = contents.find(END, header.scan_start) if header.scan_start >= 0 else -1
    if found < 0:
        raise BadImage(f"the JPEG is cut short or damaged: {len(contents)} bytes, without the end marker")
    return found + len(END)
