"""How a large JPEG becomes a smaller one.

The photo is decoded at the smallest scale of the DCT that covers the new size (1/2, 1/4 or 1/8: most of the pixels are
then never made), resized with antialiasing, and encoded again. The pixels stay turned as they were stored, and the
EXIF orientation is written into the new file, so that whoever reads it turns or ignores it as for the original. All
else that the header held (thumbnail, colour profile, comment) is left out.

Quality and chroma sampling were chosen on 24 photos of about 1600 x 1200 and 672 KB, short side 512, four windows of
0.08 to 1 of the area of each. "Encoding" is the PSNR of windows resized to 224 x 224 with antialiasing, of the small
photo against the original; "finished" that of the images that TensorFlow's ops make of the small photo against the same
reference (of the original in full they make 35.3 dB: they do not smooth when they make smaller); ms are CPU time for a
finished image. `scripts/measure_shrunk.py` measures the recipe as it is.

| quality | 4:2:0: KB | encoding | finished | ms | 4:4:4: KB | encoding | finished | ms |
|---|---|---|---|---|---|---|---|---|
| 80 | 67 | 38.2 dB | 35.3 dB | 1.44 | 88 | 42.9 dB | 37.2 dB | 1.86 |
| 85 | 79 | 39.2 dB | 35.8 dB | 1.54 | 105 | 44.0 dB | 37.6 dB | 1.93 |
| 90 | 101 | 40.5 dB | 36.4 dB | 1.67 | 134 | 45.2 dB | 38.0 dB | 2.06 |

So 4:2:0 at 90 is what most photos of this size are like, is nearer to the ideal image than what is made of the
original, and is 14 % faster than the 4:4:4 that takes as much of the disk. To decode the original in full before it is
resized would gain nothing and take 1.8 times as long; optimised Huffman tables save 2 % of the bytes and a progressive
file 7 %, and they take 2 and 6 times as long to encode.
"""

from __future__ import annotations

import contextlib
import io
import struct

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from slimexp.pipeline.images.jpeg_data import require_pixel_data
from slimexp.pipeline.images.jpeg_header import JpegHeader, find_end
from slimexp.pipeline.images.pillow_decode import LARGE_PIXELS, large_one

__all__ = ["QUALITY", "RECIPE_VERSION", "shrink"]

# To be raised with any change of what `shrink` makes, so that files made before aren't taken for its own.
RECIPE_VERSION = 1
QUALITY = 90
_SUBSAMPLING = "4:2:0"

_ORIENTATION_TAG = 0x0112
_SHORT_TYPE = 3
# Frames in a Huffman code, baseline, extended or progressive. TensorFlow reads no others, Pillow does.
_FRAMES = (0xC0, 0xC1, 0xC2)
_TABLES = (0xC4, 0xC8, 0xCC)
_APP1, _APP14, _APP15, _COMMENT = 0xE1, 0xEE, 0xEF, 0xFE


def shrink(contents: bytes, header: JpegHeader, *, short_side: int, quality: int = QUALITY) -> bytes | None:
    """Makes a smaller JPEG of a JPEG.

    The same bytes come out for the same bytes, given the same version of Pillow.

    Args:
        contents: The whole file.
        header: What `read_jpeg_header` found in it: a whole one, of one or three colour components.
        short_side: The new short side in pixels, below the old one. The aspect ratio is kept.
        quality: libjpeg's quality, 1..100.

    Returns:
        The new file, or None if the old one is damaged or cut short.
    """
    factor = short_side / min(header.width, header.height)
    size = (max(1, round(header.width * factor)), max(1, round(header.height * factor)))
    is_large = header.is_progressive and header.width * header.height > LARGE_PIXELS
    try:
        # Not `Image.open`: it refuses pictures beyond a limit that is meant for decoding them in full.
        photo = JpegImageFile(io.BytesIO(_without_notes(contents[: find_end(contents, header)], header.scan_start)))
        # The rows and columns at full size may be no multiple of the scale: the box says which part of the last ones
        # belongs to the photo. Without it all is shifted, by up to half a pixel.
        draft = photo.draft(None, size)
        with large_one() if is_large else contextlib.nullcontext():
            photo.load()
        # Grey where pixel data may be missing; a copy would hide that.
        if set(photo.crop((photo.width - 1, photo.height - 1, photo.width, photo.height)).tobytes()) == {128}:
            require_pixel_data(contents)
        small = photo.resize(size, Image.Resampling.BICUBIC, box=None if draft is None else draft[1])
        new = io.BytesIO()
        exif = _exif(header.orientation)
        small.save(new, "JPEG", quality=quality, subsampling=_SUBSAMPLING, exif=exif, comment=b"")
    except Exception:
        # Pillow's parsers raise many kinds on damaged files. Which file it is and what ails it is said where the
        # original is decoded.
        return None
    return new.getvalue()


def _without_notes(contents: bytes, scan_start: int) -> bytes:
    """Leaves out the segments that have nothing to do with the pixels.

    EXIF can be damaged, and Pillow then warns or fails; and it takes some phones' photos for a format of their own.

    Raises:
        ValueError: If the pixels are coded in a way that TensorFlow does not read.
    """
    parts = [contents[:2]]
    at = 2
    while at < scan_start:
        marker = contents[at + 1]
        if marker == 0xFF:  # A byte to fill up.
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _FRAMES + _TABLES:
            raise ValueError(f"frame {marker:#x}")
        end = at + 2
        if marker >= 0xC0 and not 0xD0 <= marker <= 0xD7:  # Those have no length.
            end += int.from_bytes(contents[at + 2 : at + 4], "big")
        if marker != _COMMENT and (marker == _APP14 or not _APP1 <= marker <= _APP15):
            parts.append(contents[at:end])
        at = end
    parts.append(contents[at:])
    return b"".join(parts)


def _exif(orientation: int) -> bytes:
    """Returns EXIF that holds the orientation alone, or nothing if that is the usual one."""
    if orientation == 1:
        return b""
    entry = struct.pack("<HHIHH", _ORIENTATION_TAG, _SHORT_TYPE, 1, orientation, 0)
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)
