"""Bytes to pixels: the part of a picture that the preprocessing wants, whatever the format.

An ordinary JPEG, which is upright and complete, goes by TensorFlow's ops alone, and only the window is decoded. All
else is behind calls that cost next to nothing unless they are made: a JPEG to be turned (the window goes over into the
coordinates of the stored picture, and what was decoded is turned), a large or a CMYK one, an ordinary PNG, and what
`decode_in_python` reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.pipeline.images.jpeg_data import require_pixel_data, require_scans
from slimexp.pipeline.images.jpeg_header import END, find_end, read_jpeg_header
from slimexp.pipeline.images.orientation import displayed_size, to_stored, turn
from slimexp.pipeline.images.pillow_decode import LARGE_PIXELS, decode_in_python, large_one, needs_pillow

__all__ = ["decode_window"]

ChooseWindow = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_JPEG = b"\xff\xd8\xff"
# What comes of coefficients that are all zero: the middle of the range in each colour.
_MISSING = 128

# How a JPEG is decoded: by TensorFlow, one at a time, or by Pillow.
_BY_OP, _IN_TURN, _BY_PILLOW = range(3)

# When to look for missing pixel data: where the window ends grey, for whole scans anyhow, or anyhow.
_IF_GREY, _SCANS, _ALWAYS = range(3)

# How many times smaller a JPEG is decoded, by how many times the window's shorter side holds the size asked for.
_RATIOS = (1, 2, 4, 8)
_RATIO_INDEX = (0, 0, 1, 1, 2, 2, 2, 2, 3)

# The longest head that is compared.
_HEAD_BYTES = 160

# How most JPEGs without EXIF begin: JFIF's usual header, a quantisation table for brightness and one for colour, the
# header of a baseline frame. What is to be there, by place.
_TABLE = b"\xff\xdb\0\x43"
_PLAIN_BYTES = {0: b"\xff\xd8\xff\xe0\0\x10JFIF\0", 20: _TABLE, 89: _TABLE, 158: b"\xff\xc0"}

# JPEGs up to this height, width and number of channels are grey or YCbCr, and not large.
_USUAL_SHAPE = (math.isqrt(LARGE_PIXELS), math.isqrt(LARGE_PIXELS), 3)

# Where the header of a JPEG ends that has EXIF with a thumbnail and a colour profile; few are longer.
_HEADER_BYTES = 2**17

# A directory of fewer than 256 entries behind such a head ends before this.
_DIRECTORY_BYTES = 3200

# An entry that says the picture is to be turned: the tag, SHORT or LONG, one value, 2 to 8; by byte order. Found by
# chance elsewhere, it leads to a closer look, and no further.
_TURNED = (
    r"\C*(\x12\x01[\x03\x04]\x00\x01\x00\x00\x00[\x02-\x08]\x00"
    r"|\x01\x12\x00[\x03\x04]\x00\x00\x00\x01(\x00\x00)?\x00[\x02-\x08])\C*"
)


def _mask_and_value(head: Mapping[int, bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Turns bytes at their places in a head into which bits to compare and with what, int32 [40] each."""
    mask, value = np.zeros([2, _HEAD_BYTES], np.uint8)
    for at, part in head.items():
        mask[at : at + len(part)] = 0xFF
        value[at : at + len(part)] = list(part)
    return mask.view(np.int32), value.view(np.int32)


_PLAIN_MASK, _PLAIN_HEAD = _mask_and_value(_PLAIN_BYTES)


def decode_window(
    contents: tf.Tensor,
    choose_window: ChooseWindow,
    *,
    exif: bool = True,
    size_px: int | None = None,
    scaled: bool = True,
) -> tf.Tensor:
    """Decodes the part of an encoded picture that `choose_window` asks for.

    The format is told by the contents, never by the file's name; `decode_in_python` says which there are and what
    becomes of frames, transparency and deep colours. Of a JPEG only the window is decoded. At the window's rim this can
    differ by a few grey levels from a cut out of the whole picture, because colour is stored at half resolution and
    the smoothing that restores it does not look past the rim.

    A JPEG without an end marker behind its pixels is refused, whatever the window. One whose pixel data end early but
    that has its end marker all the same is refused where the window reaches what is missing, which would come out grey;
    to look at all of a file, whatever the window, is for `slimexp.pipeline.diagnose.find_fault`.

    Args:
        contents: string [], the bytes of an image file.
        choose_window: Called with the picture's height and width as displayed, int32 [], and returns the window: int32
            [4], y, x, height and width in pixels, inside the picture.
        exif: Whether to turn the picture as its EXIF orientation says.
        size_px: The side of the square that the window will be resized to; None if its pixels count one by one.
        scaled: Whether a JPEG's window whose sides are at least 2, 4 or 8 times `size_px` may come out that many times
            smaller, which saves most of the decoding. Its rim is then rounded to the next of the larger pixels.

    Returns:
        uint8 [height, width, 3], RGB: of the window's size, or smaller if `scaled`.

    Raises:
        tf.errors.OpError: (When run) If the bytes are no complete picture or the window leaves it.
    """
    shrink_px = size_px if scaled else None

    @_call_when_needed
    def any_picture(contents: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            _starts_with(contents, _JPEG),
            lambda: tf.cond(
                tf.cond(_is_upright_and_whole(contents, exif), lambda: _is_sequential(contents), lambda: False),
                lambda: upright(contents),
                lambda: any_jpeg(contents),
            ),
            lambda: other_picture(contents),
        )

    @_call_when_needed
    def any_jpeg(contents: tf.Tensor) -> tf.Tensor:
        return _any_jpeg(contents, choose_window, exif, shrink_px)

    @_call_when_needed
    def other_picture(contents: tf.Tensor) -> tf.Tensor:
        return _other_picture(contents, choose_window, exif)

    @_call_when_needed
    def smaller_window(contents: tf.Tensor, shape: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
        return _jpeg_window(contents, tf.constant(_BY_OP), shape, window, shrink_px, check=tf.constant(_IF_GREY))

    @_call_when_needed
    def unusual_window(contents: tf.Tensor, shape: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
        route, _, _, check = tf.unstack(_examine(contents))
        return _jpeg_window(contents, route, shape, window, shrink_px, check=check)

    @_call_when_needed
    def checked(contents: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
        return _checked(contents, image, tf.constant(_IF_GREY))

    def upright(contents: tf.Tensor) -> tf.Tensor:
        shape = tf.image.extract_jpeg_shape(contents)
        height, width, _ = tf.unstack(shape)
        window = tf.ensure_shape(tf.cast(choose_window(height, width), tf.int32), [4])

        def usual() -> tf.Tensor:
            if shrink_px is None:
                return with_data(_decode_and_crop(contents, window, ratio=1))
            return tf.cond(
                tf.reduce_any(tf.less(window, [0, 0, 2 * shrink_px, 2 * shrink_px])),
                lambda: with_data(_decode_and_crop(contents, window, ratio=1)),
                lambda: smaller_window(contents, shape, window),
            )

        def with_data(image: tf.Tensor) -> tf.Tensor:
            return tf.cond(_ends_grey(image), lambda: checked(contents, image), lambda: image)

        return tf.cond(
            tf.reduce_all(tf.less_equal(shape, _USUAL_SHAPE)), usual, lambda: unusual_window(contents, shape, window)
        )

    # Few ops in what most pictures go through: each costs a thousandth of a small picture.
    head = tf.io.decode_raw(contents, tf.int32, fixed_length=_HEAD_BYTES)
    is_plain = tf.reduce_all(tf.equal(tf.bitwise.bitwise_and(head, _PLAIN_MASK), _PLAIN_HEAD))
    has_end = tf.equal(tf.strings.substr(contents, -2, 2), END)  # Fails on bytes too few, which are no picture anyhow.
    image = tf.cond(tf.logical_and(is_plain, has_end), lambda: upright(contents), lambda: any_picture(contents))
    return tf.ensure_shape(image, [None, None, 3])


def _call_when_needed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function one op of the graph. Written out in a branch, its ops would cost time in every picture."""
    # Where Python's `if` is not to be rewritten it is not in here either: looking for it takes seconds.
    as_it_is = tf.__internal__.autograph.control_status_ctx().status.name == "DISABLED"
    return tf.function(function, autograph=not as_it_is, experimental_attributes={"_noinline": True})


def _start(contents: tf.Tensor, num_bytes: int) -> tf.Tensor:
    return tf.strings.substr(contents, 0, num_bytes)


def _starts_with(contents: tf.Tensor, magic: bytes) -> tf.Tensor:
    return tf.equal(_start(contents, len(magic)), magic)


def _is_upright_and_whole(contents: tf.Tensor, exif: bool) -> tf.Tensor:
    """Tells whether this is a JPEG with its end in place that is not to be turned."""
    # Bytes too few to have an end fail here, and they are no picture anyhow.
    has_end = tf.equal(tf.strings.substr(contents, -2, 2), END)
    if not exif:
        return tf.logical_and(_starts_with(contents, _JPEG), has_end)
    head = tf.io.decode_raw(contents, tf.int32, fixed_length=_HEAD_BYTES)
    masks, values, num_plain = _ordinary_heads()
    matches = tf.reduce_all(tf.equal(tf.bitwise.bitwise_and(head, masks), values), axis=1)
    is_plain = tf.logical_and(tf.reduce_any(matches[:num_plain]), has_end)

    def is_upright() -> tf.Tensor:
        return tf.cond(
            tf.reduce_any(matches[num_plain:]),
            lambda: tf.logical_not(tf.strings.regex_full_match(_start(contents, _DIRECTORY_BYTES), _TURNED)),
            lambda: _is_upright(contents),
        )

    return tf.cond(tf.equal(is_plain, has_end), lambda: is_plain, is_upright)


def _ordinary_heads() -> tuple[np.ndarray, np.ndarray, int]:
    """Lists how JPEGs begin whose orientation is quickly known.

    Returns:
        Which bits of the head to compare and with what, int32 [n, 40] each; and how many of them, the first ones, have
        no EXIF. The others have it at once, with less than 256 entries in its first directory, at its usual place.
    """
    jfif = b"\xff\xe0\0\x10"  # Its usual 16 bytes, without a thumbnail.
    # Quantisation or Huffman tables, a frame header, a restart interval: EXIF would have come before.
    tables = [b"\xff" + bytes([marker]) for marker in (0xDB, 0xC0, 0xC1, 0xC2, 0xC4, 0xDD)]
    heads = [{0: b"\xff\xd8" + table} for table in tables]
    heads += [{0: b"\xff\xd8" + jfif, 20: table} for table in tables]
    num_plain = len(heads)
    for tiff, count_high in ((b"II*\0\x08\0\0\0", 9), (b"MM\0*\0\0\0\x08", 8)):
        exif = {0: b"\xff\xe1", 4: b"Exif\0\0" + tiff, 10 + count_high: b"\0"}
        heads.append({0: b"\xff\xd8", **{2 + at: part for at, part in exif.items()}})
        heads.append({0: b"\xff\xd8" + jfif, **{20 + at: part for at, part in exif.items()}})
    masks, values = zip(*(_mask_and_value(head) for head in heads), strict=True)
    return np.array(masks), np.array(values), num_plain


def _is_upright(contents: tf.Tensor) -> tf.Tensor:
    """Tells by all of its header whether this is a JPEG that is not to be turned."""

    def is_upright(start: bytes) -> np.ndarray:
        header = read_jpeg_header(start)
        return np.array(start.startswith(_JPEG) and header.scan_start >= 0 and header.orientation == 1)

    # A header that is longer, which is rare, is looked at once more, and then wholly.
    return tf.ensure_shape(_python(is_upright, [_start(contents, 2**14)], tf.bool), [])


def _is_sequential(contents: tf.Tensor) -> tf.Tensor:
    """Tells whether a JPEG is surely not progressive, by the start of its header."""

    def is_sequential(start: bytes) -> np.ndarray:
        header = read_jpeg_header(start)
        return np.array(header.scan_start >= 0 and not header.is_progressive)

    # One with a longer header goes the way of the progressive ones, where all of it is read.
    return tf.ensure_shape(_python(is_sequential, [_start(contents, 2**12)], tf.bool), [])


def _any_jpeg(contents: tf.Tensor, choose_window: ChooseWindow, exif: bool, shrink_px: int | None) -> tf.Tensor:
    """Decodes the window of any JPEG, which may be turned, or have bytes behind its end."""
    route, orientation, end, check = tf.unstack(_examine(contents))
    if not exif:
        orientation = tf.constant(1)
    shape = tf.image.extract_jpeg_shape(contents)
    window = choose_window(*displayed_size(shape[0], shape[1], orientation))
    window = to_stored(tf.ensure_shape(tf.cast(window, tf.int32), [4]), shape[0], shape[1], orientation)
    picture = tf.cond(
        tf.equal(end, tf.strings.length(contents)), lambda: contents, lambda: tf.strings.substr(contents, 0, end)
    )
    return turn(_jpeg_window(picture, route, shape, window, shrink_px, check=check), orientation)


def _examine(contents: tf.Tensor) -> tf.Tensor:
    """Looks at a JPEG's header: int32 [4], how to decode it, its orientation, where it ends, what to check."""

    def examine(contents: bytes) -> np.ndarray:
        header = read_jpeg_header(contents)
        route = _BY_OP
        if needs_pillow(header):
            route = _BY_PILLOW
        elif header.is_progressive and header.height * header.width > LARGE_PIXELS:
            route = _IN_TURN
        # What is missing of CMYK does not come out grey, nor what the later scans of a progressive picture hold.
        check = _ALWAYS if header.num_components == 4 else _SCANS if header.is_progressive else _IF_GREY
        return np.array([route, header.orientation, find_end(contents, header), check], np.int32)

    def examine_start(start: bytes, length: np.ndarray) -> np.ndarray:
        if read_jpeg_header(start).scan_start < 0:
            return np.array([_BY_OP, 1, -1, _IF_GREY], np.int32)  # Not all of the header.
        found = examine(start + END)
        found[2] = length
        return found

    # Python gets a copy, and of large files that is much. Bytes too few for an end fail here.
    length = tf.strings.length(contents)
    has_end = tf.equal(tf.strings.substr(contents, -2, 2), END)
    found = tf.cond(
        has_end,
        lambda: _python(examine_start, [_start(contents, _HEADER_BYTES), length], tf.int32),
        lambda: tf.constant([_BY_OP, 1, -1, _IF_GREY]),
    )
    found = tf.ensure_shape(found, [4])
    found = tf.cond(found[2] < 0, lambda: _python(examine, [contents], tf.int32), lambda: found)
    return tf.ensure_shape(found, [4])


def _jpeg_window(
    contents: tf.Tensor,
    route: tf.Tensor,
    shape: tf.Tensor,
    window: tf.Tensor,
    shrink_px: int | None,
    *,
    check: tf.Tensor,
) -> tf.Tensor:
    """Decodes a window of a stored JPEG, at the smallest scale that still covers the size."""
    # The op would notice, but not once the window is in the coordinates of a smaller picture.
    is_inside = tf.reduce_all(tf.logical_and(window[:2] >= 0, window[:2] + window[2:] <= shape[:2]))
    with tf.control_dependencies([tf.debugging.Assert(is_inside, ["The window leaves the picture.", window, shape])]):
        window = tf.identity(window)
    if shrink_px is None:
        index = tf.constant(0)
    else:
        shrink = tf.minimum(window[2], window[3]) // shrink_px
        index = tf.gather(_RATIO_INDEX, tf.minimum(shrink, len(_RATIO_INDEX) - 1))
    ratio = tf.gather(_RATIOS, index)
    # Corners go to the nearest of the larger pixels, of which there are as many as begin within the picture.
    sides = (shape[:2] + ratio - 1) // ratio
    low = tf.minimum((2 * window[:2] + ratio) // (2 * ratio), sides - 1)
    high = tf.clip_by_value((2 * (window[:2] + window[2:]) + ratio) // (2 * ratio), low + 1, sides)
    scaled = tf.concat([low, high - low], 0)

    def by_op(ratio: int) -> Callable[[], tf.Tensor]:
        return lambda: _decode_and_crop(contents, scaled, ratio=ratio)

    def decode_in_turn(contents: bytes, window: np.ndarray, ratio: np.ndarray) -> np.ndarray:
        # All coefficients of a progressive JPEG are in memory at once, 2 bytes for each value.
        with large_one(), tf.device("/CPU:0"):
            return _decode_and_crop(contents, window, ratio=int(ratio)).numpy()

    image = tf.switch_case(
        tf.where(tf.equal(route, _BY_OP), index, len(_RATIOS) - 1 + route),
        [
            *(by_op(ratio) for ratio in _RATIOS),
            lambda: _python(decode_in_turn, [contents, scaled, ratio], tf.uint8),
            lambda: _cut(_decoded_in_python(contents, exif=False), window),
        ],
    )
    image = tf.ensure_shape(image, [None, None, 3])
    is_suspect = tf.logical_or(_ends_grey(image), check > _IF_GREY)
    return tf.cond(is_suspect, lambda: _checked(contents, image, check), lambda: image)


def _ends_grey(image: tf.Tensor) -> tf.Tensor:
    """Tells whether a window's last pixel is of the grey that libjpeg puts in the place of missing data.

    Data are missing from some place on, row by row. So where a window lacks any it lacks those of its last pixel.
    """
    # One colour tells enough for most; `_checked` looks at the others. Each op here costs every picture some time.
    return tf.equal(image[-1, -1, 1], _MISSING)


def _checked(contents: tf.Tensor, image: tf.Tensor, check: tf.Tensor) -> tf.Tensor:
    """Returns a window of a JPEG, or fails if the file lacks pixel data."""

    def require(contents: bytes, check: np.ndarray) -> np.ndarray:
        (require_scans if check == _SCANS else require_pixel_data)(contents)
        return np.array(True)

    check = tf.where(tf.reduce_all(tf.equal(image[-1, -1], _MISSING)), _ALWAYS, check)
    checked = tf.cond(check > _IF_GREY, lambda: _python(require, [contents, check], tf.bool), lambda: True)
    with tf.control_dependencies([checked]):
        return tf.identity(image)


def _decode_and_crop(contents: tf.Tensor, window: tf.Tensor, *, ratio: int) -> tf.Tensor:
    # By default the op takes the fast transform, which is off by up to 16 grey levels and, measured, not faster.
    return tf.image.decode_and_crop_jpeg(contents, window, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")


def _other_picture(contents: tf.Tensor, choose_window: ChooseWindow, exif: bool) -> tf.Tensor:
    """Decodes the window of a picture that is no JPEG, by decoding all of it."""
    image = tf.cond(
        _is_ordinary_png(contents, exif),
        lambda: tf.image.decode_png(contents, channels=3),
        lambda: _decoded_in_python(contents, exif=exif),
    )
    shape = tf.shape(image)
    return _cut(image, tf.ensure_shape(tf.cast(choose_window(shape[0], shape[1]), tf.int32), [4]))


def _is_ordinary_png(contents: tf.Tensor, exif: bool) -> tf.Tensor:
    """Tells whether this is a PNG that TensorFlow gets right: of at most 8 bits a channel, not large, without EXIF."""
    header = tf.io.decode_raw(contents, tf.uint8, fixed_length=25)
    width, height = (tf.io.decode_raw(tf.strings.substr(contents, at, 4), tf.int32, False)[0] for at in (16, 20))
    is_small = tf.reduce_all(tf.less_equal([width, height], _USUAL_SHAPE[0]))
    is_ordinary = tf.logical_and(is_small, tf.less_equal(header[24], 8))
    is_ordinary = tf.logical_and(_starts_with(contents, b"\x89PNG\r\n\x1a\n"), is_ordinary)
    if not exif:
        return is_ordinary
    # Whoever writes EXIF writes it before the pixels, where at most a colour profile comes before it.
    has_exif = tf.strings.regex_full_match(_start(contents, 2**16), r"\C*eXIf\C*")
    return tf.logical_and(is_ordinary, tf.logical_not(has_exif))


def _cut(image: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    return tf.slice(image, [window[0], window[1], 0], [window[2], window[3], 3])


def _decoded_in_python(contents: tf.Tensor, *, exif: bool) -> tf.Tensor:
    pixels = _python(lambda contents: decode_in_python(contents, exif=exif), [contents], tf.uint8)
    return tf.ensure_shape(pixels, [None, None, 3])


def _python(function: Callable[..., Any], inputs: list[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Calls a Python function of bytes and arrays."""

    # Converted by AutoGraph, as is the default, it would take several times as long.
    @tf.autograph.experimental.do_not_convert
    def call(*values: Any) -> Any:
        # Strings come as bytes from a graph, and as arrays of them from an eager call.
        return function(*(value.item() if getattr(value, "dtype", None) == np.object_ else value for value in values))

    # Said to be stateful, as is the default too, it would keep deterministic mode from calling the graph in parallel.
    return tf.numpy_function(call, inputs, dtype, stateful=False)
