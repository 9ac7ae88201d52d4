"""Whether the pixel data of a JPEG are all there.

An end marker does not say so: some programs write one behind half a picture.
libjpeg then fills what is missing with grey and merely warns, which neither TensorFlow nor Pillow passes on. So the
file is decoded a second time with further bytes put before its end marker: a decoder that has all it needs does not
look at them, and one that lacks something takes them for pixels.
"""

from __future__ import annotations

import contextlib
import io
import re

import numpy as np
from PIL.JpegImagePlugin import JpegImageFile

from slimexp.pipeline.images.formats import BadImage
from slimexp.pipeline.images.jpeg_header import END, JpegHeader, read_jpeg_header
from slimexp.pipeline.images.pillow_decode import LARGE_PIXELS, large_one

__all__ = ["check_pixel_data", "require_pixel_data", "require_scans"]

# Noise without a 0xff, which would begin a marker. It begins with short codes of any table, so that some values come.
_FURTHER = np.random.RandomState(0).randint(0, 255, 512).astype(np.uint8).tobytes()
# Within coded pixels a 0xff is followed by 0 or belongs to a restart marker; anything else begins a segment.
_SEGMENT = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])")
_RESTART = re.compile(rb"\xff([\xd0-\xd7])")
_SCAN, _RESTART_INTERVAL, _FIRST_RESTART, _COEFFICIENTS = 0xDA, 0xDD, 0xD0, 64


def require_pixel_data(contents: bytes) -> None:
    """Raises `BadImage` if a JPEG that decodes lacks a part of its pixel data; see `check_pixel_data`."""
    reason = check_pixel_data(contents, read_jpeg_header(contents))
    if reason is not None:
        raise BadImage(reason)


def require_scans(contents: bytes) -> None:
    """Raises `BadImage` if whole scans of a JPEG are missing, as in a progressive one that was cut; decodes nothing.

    Of a progressive one that ends within its last scan, which holds the last bit of the detail, this takes no notice.
    """
    header = read_jpeg_header(contents)
    end = contents.find(END, header.scan_start) if header.scan_start >= 0 else -1
    reason = _missing_scans(contents[:end], header) if end >= 0 else None
    if reason is not None:
        raise BadImage(reason)


def check_pixel_data(contents: bytes, header: JpegHeader) -> str | None:
    """Looks for pixel data that end before the picture does, with an end marker behind them all the same.

    It decodes the picture twice, at an eighth of its size unless it is progressive, and finds what lacks more than the
    detail of the very last block of 8 x 8 pixels.

    Args:
        contents: A JPEG that can be decoded, with an end marker.
        header: Its header.

    Returns:
        What is wrong, in words that follow the file's name and a colon; None if nothing is, or the picture is of a
        kind that Pillow cannot decode.
    """
    end = contents.find(END, header.scan_start) if header.scan_start >= 0 else -1
    if end < 0:
        return None  # Another's to tell.
    missing = _missing_scans(contents[:end], header)
    if missing is not None:
        return missing
    picture = contents[: end + len(END)]
    longer = contents[:end] + _further(contents[:end], header) + END
    is_large = header.is_progressive and header.width * header.height > LARGE_PIXELS
    with large_one() if is_large else contextlib.nullcontext():
        try:
            is_whole = _decoded(picture, header) == _decoded(longer, header)
        except Exception:  # Pillow's parsers raise many kinds; what cannot be decoded at all is told elsewhere.
            return None
    if is_whole:
        return None
    return (
        f"the JPEG is cut short: its pixel data end at byte {end}, before the picture does, and an end marker stands "
        "there all the same"
    )


def _decoded(contents: bytes, header: JpegHeader) -> bytes:
    # Not `Image.open`: it refuses pictures beyond a limit that is meant for decoding them in full.
    picture = JpegImageFile(io.BytesIO(contents))
    if not header.is_progressive:  # Of one that is, the last scans do not show in a smaller picture.
        picture.draft(None, (max(picture.width // 8, 1), max(picture.height // 8, 1)))
    picture.load()
    return picture.tobytes()


def _further(contents: bytes, header: JpegHeader) -> bytes:
    """Returns bytes that a decoder would take for pixels, also where it waits for the next restart marker."""
    if b"\xff\xdd" not in contents[: header.scan_start]:  # No restart interval is set.
        return _FURTHER
    restarts = _RESTART.findall(contents, header.scan_start)
    number = (restarts[-1][0] - _FIRST_RESTART + 1) % 8 if restarts else 0
    return _FURTHER + bytes([0xFF, _FIRST_RESTART + number]) + _FURTHER


def _missing_scans(contents: bytes, header: JpegHeader) -> str | None:
    """Says if a colour component, or of a progressive picture its finer detail, was never sent."""
    # By component the number of low bits that are still to come of each coefficient; at first all of them.
    left: dict[int, np.ndarray] = {}
    at = header.scan_start
    while at >= 0:
        start, length = at + 4, int.from_bytes(contents[at + 2 : at + 4], "big")
        count = contents[start] if contents[at + 1] == _SCAN and start < len(contents) else 0
        if count and start + 4 + 2 * count <= len(contents):
            first, last, bits = contents[start + 1 + 2 * count : start + 4 + 2 * count]
            for name in contents[start + 1 : start + 1 + 2 * count : 2]:
                component = left.setdefault(name, np.full(_COEFFICIENTS, 16))
                component[first : min(last, _COEFFICIENTS - 1) + 1] = bits & 15 if header.is_progressive else 0
        found = _SEGMENT.search(contents, at + 2 + length)
        at = -1 if found is None else found.start(1) - 1
    if len(left) < header.num_components:
        return f"the JPEG is cut short: it has pixel data of {len(left)} of its {header.num_components} colours"
    if header.is_progressive and any(component.any() for component in left.values()):
        return "the JPEG is cut short: it is progressive, and the scans with its finest detail are missing"
    return None
