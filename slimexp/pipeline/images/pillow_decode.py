"""Pictures that TensorFlow does not decode, or not rightly, decoded in Python by Pillow."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import re
import threading
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from PIL import Image, UnidentifiedImageError

from slimexp.pipeline.images.formats import READABLE_FORMATS, BadImage, describe, identify
from slimexp.pipeline.images.jpeg_header import JpegHeader, read_jpeg_header
from slimexp.pipeline.images.orientation import turn_array

__all__ = [
    "LARGE_PIXELS",
    "cause_of",
    "decode_in_python",
    "large_one",
    "needs_pillow",
    "open_image",
    "orientation_of",
]

_PLUGINS = {"BMP": "BMP", "WebP": "WEBP", "JPEG 2000": "JPEG2000", "PNM": "PPM"}  # Where Pillow's name differs.
_ORIENTATION_TAG = 0x0112

# TensorFlow decodes no more than this many bytes of pixels of a picture either; a small file can claim any size.
_MAX_PIXELS = 2**29 // 3
# Pillow warns above its own limit, a sixth of ours, and refuses above twice that.
Image.MAX_IMAGE_PIXELS = _MAX_PIXELS

# Pictures with more pixels than this are decoded one at a time, so that the memory they take does not grow with the
# threads.
LARGE_PIXELS = 2**24
_turn = threading.Lock()

# Of glibc's mallopt: the size from which on a block is mapped by itself.
_M_MMAP_THRESHOLD = -3
_MAPPED_BYTES = 2**22


@contextlib.contextmanager
def large_one() -> Iterator[None]:
    """Lets one large picture be decoded at a time."""
    with _turn:
        _give_back_large_blocks()
        yield


@functools.cache
def _give_back_large_blocks() -> None:
    """Has the C library give large blocks of memory back to the system as they are freed, from now on.

    Left to itself, glibc comes to keep freed blocks of up to 32 MiB, each thread its own. With the bytes of large
    files, which go from thread to thread, that was 200 MiB with 8 threads. Where pictures are small it saves time.
    """
    with contextlib.suppress(AttributeError, OSError):  # Another C library.
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def needs_pillow(header: JpegHeader) -> bool:
    """Tells whether TensorFlow gets a JPEG's colours wrong.

    It does so for CMYK without Adobe's marker. Such a file holds inverted values like one with the marker: that is
    what Pillow and web browsers assume.
    """
    return header.num_components == 4 and not header.is_adobe


def decode_in_python(contents: bytes, *, exif: bool = True) -> np.ndarray:
    """Decodes a picture of any format in `READABLE_FORMATS`.

    Of several frames or pages the first is taken. Transparency is left out, so that the colours stored beneath it
    show, as TensorFlow and torchvision have it too. 16 bits a channel are brought to 8 by value (65535 is 255),
    rounded. CMYK becomes RGB without regard to colour profiles. A TIFF's orientation is a part of its format and
    counts also without `exif`.

    Args:
        contents: The bytes of an image file.
        exif: Whether to turn the picture as EXIF (or XMP, which Pillow falls back on) says.

    Returns:
        uint8 [height, width, 3], RGB, as displayed.

    Raises:
        BadImage: If the contents are no complete picture, or one that cannot be read.
    """
    kind = identify(contents)
    if kind is None:
        if not contents:
            raise BadImage("the file is empty (0 bytes)")
        raise BadImage(f"it is {describe(contents)}, not a {READABLE_FORMATS} image")
    try:
        return _decode(contents, kind, exif)
    except (BadImage, MemoryError):
        raise
    except Exception as error:
        # Pillow's decoders raise whatever comes of damaged data: OSError, SyntaxError, ValueError, struct.error, ...
        raise BadImage(f"the {kind} is damaged or of a kind that cannot be read ({cause_of(error)})") from error


def cause_of(error: BaseException) -> str:
    """Returns an error's message without TensorFlow's notes on the graph."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    text = re.sub(r"\{\{[^}]*\}\}\s*|\s*\[\[.*?\]\]|\s*\[Op:[^\]]*\]( name: *)?", "", text)
    return text.strip() or type(error).__name__


def _decode(contents: bytes, kind: str, exif: bool) -> np.ndarray:
    with open_image(contents, kind) as image:
        width, height = image.size
        if width * height > _MAX_PIXELS:
            raise BadImage(
                f"the {kind} has {width} x {height} pixels, more than the {_MAX_PIXELS} that are decoded; "
                "store it smaller"
            )
        if width * height > LARGE_PIXELS:
            with large_one():
                return _pixels(contents, kind, image, exif)
        return _pixels(contents, kind, image, exif)


def open_image(contents: bytes, kind: str) -> Image.Image:
    """Reads a picture's header.

    Args:
        contents: The bytes of an image file.
        kind: Its format, from `identify`.

    Raises:
        BadImage: If Pillow cannot read such a file, or it has more pixels than are decoded.
    """
    plugin = _PLUGINS.get(kind, kind)
    if plugin not in Image.OPEN:
        Image.init()
    if plugin not in Image.OPEN:
        raise BadImage(f"it is {kind}, which the installed Pillow cannot read; update Pillow or convert the file")
    try:
        return Image.open(io.BytesIO(contents), formats=[plugin])
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(f"the {kind} has more than the {_MAX_PIXELS} pixels that are decoded ({error})") from None
    except UnidentifiedImageError:
        raise BadImage(f"the {kind} is damaged or of a kind that cannot be read (in its header)") from None


def _pixels(contents: bytes, kind: str, image: Image.Image, exif: bool) -> np.ndarray:
    if kind == "PNG" and contents[24] == 16:
        # Pillow cuts colours of 16 bits to their high byte.
        with tf.device("/CPU:0"):
            pixels = _scale(tf.io.decode_png(contents, channels=3, dtype=tf.uint16).numpy())
    elif kind == "WebP" and contents[12:16] == b"VP8 ":
        # Of this plainest kind TensorFlow's decoder is right, and faster.
        with tf.device("/CPU:0"):
            pixels = tf.io.decode_image(contents, channels=3, expand_animations=False).numpy()
    else:
        image.load()
        pixels = _to_rgb(kind, image)
    # A JPEG's is read by our own parser, so that it does not depend on the decoder. Asked for after loading: a PNG may
    # have its EXIF behind the pixels, and Pillow turns a TIFF by itself as it loads it.
    orientation = 1
    if exif:
        orientation = read_jpeg_header(contents).orientation if kind == "JPEG" else orientation_of(image)
    return np.ascontiguousarray(turn_array(pixels, orientation))


def _to_rgb(kind: str, image: Image.Image) -> np.ndarray:
    """Converts a loaded picture to uint8 [height, width, 3]."""
    if image.mode.startswith("I"):  # Integers of 16 or 32 bits.
        values = np.asarray(image)
        if image.mode == "I" and kind == "TIFF":
            raise BadImage("the TIFF has 32-bit integers as pixels, of unknown range; save it with 8 or 16 bits")
        grey = _scale(values)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    if image.mode == "F":
        raise BadImage(f"the {kind} has floating-point pixels, of unknown range; save it with 8 or 16 bits")
    # Else a palette's transparency is looked at, with a warning, only to be left out.
    image.info.pop("transparency", None)
    return np.asarray(image.convert("RGB"))


def _scale(values: np.ndarray) -> np.ndarray:
    """Brings 0..65535 to 0..255, rounded."""
    return ((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def orientation_of(image: Image.Image) -> int:
    """Returns the orientation that EXIF (or XMP) names, 1 to 8; 1 where there is none or it is damaged."""
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # Damaged EXIF raises many things, and a picture need not have any.
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1
