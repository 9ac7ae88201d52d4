"""Bytes to pixels for an exported graph: what `slimexp.pipeline.images.decode` does, by TensorFlow's ops alone.

JPEG, PNG, WebP, GIF and BMP come out as in evaluation with `pipeline.decoder=tensorflow`: the same window, at the same
scale, by the same ops. What needs Python there is done in other ways here: the orientation is parsed by ops, CMYK
without Adobe's marker gets that marker, an animated WebP is cut to its first picture. TIFF, JPEG 2000, AVIF and PNM
have no decoder among TensorFlow's ops; they are refused.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from slimexp.export.bitmaps import decode_bitmap
from slimexp.export.picture_files import jpeg_facts, png_orientation, webp_facts
from slimexp.pipeline.images.jpeg_header import END
from slimexp.pipeline.images.orientation import displayed_size, to_stored, turn

__all__ = ["FORMATS", "decode_window_by_ops"]

# The formats that `slimexp.pipeline.images.formats.identify` tells, of those that are decoded here.
FORMATS = ("JPEG", "PNG", "WebP", "GIF", "BMP")

ChooseWindow = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_JPEG, _PNG, _GIF, _BMP = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM"
# Adobe's marker that says: four components are CMYK as they are, which by that marker means inverted.
_ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
# How many times smaller a JPEG is decoded, by how many times the window's shorter side holds the size asked for.
_RATIOS = (1, 2, 4, 8)
_RATIO_INDEX = (0, 0, 1, 1, 2, 2, 2, 2, 3)


def decode_window_by_ops(
    contents: tf.Tensor,
    choose_window: ChooseWindow,
    *,
    exif: bool = True,
    size_px: int | None = None,
    scaled: bool = True,
) -> tf.Tensor:
    """Decodes the part of an encoded picture that `choose_window` asks for; see `pipeline.images.decode.decode_window`.

    Args:
        contents: string [], the bytes of a JPEG, PNG, WebP, GIF or BMP file.
        choose_window: From the picture's height and width as displayed to the window, int32 [4].
        exif: Whether to turn the picture as its EXIF orientation says.
        size_px: The side of the square that the window will be resized to; None if its pixels count one by one.
        scaled: Whether a JPEG's window may come out 2, 4 or 8 times smaller where it is so much larger than `size_px`.

    Returns:
        uint8 [height, width, 3], RGB.

    Raises:
        tf.errors.InvalidArgumentError: (When run) If the bytes are no picture, or a damaged one.
    """

    def starts_with(magic: bytes, at: int = 0) -> tf.Tensor:
        return tf.equal(tf.strings.substr(contents, at, len(magic)), magic)

    def jpeg() -> tf.Tensor:
        return _jpeg_window(contents, choose_window, exif, size_px if scaled else None)

    def other() -> tf.Tensor:
        # `substr` refuses to begin behind the end.
        is_webp = tf.cond(
            starts_with(b"RIFF") & (tf.strings.length(contents) >= 16),
            lambda: starts_with(b"WEBP", 8),
            lambda: tf.constant(False),
        )

        def unknown() -> tf.Tensor:
            # As numbers: TensorFlow cannot hand Python a message that is not UTF-8.
            first = tf.io.decode_raw(tf.strings.substr(contents, 0, 8), tf.uint8)
            what = ["The bytes are no JPEG, PNG, WebP, GIF or BMP image; they begin with", first]
            with tf.control_dependencies([tf.debugging.Assert(_size(contents) < 0, what)]):
                return tf.zeros([1, 1, 3], tf.uint8)

        image = tf.case(
            [
                (starts_with(_PNG), lambda: _png(contents, exif)),
                (is_webp, lambda: _webp(contents, exif)),
                (starts_with(_GIF), lambda: _first_frame(contents, 3)),
                (starts_with(_BMP), lambda: decode_bitmap(contents)),
            ],
            default=unknown,
        )
        shape = tf.shape(image)
        window = tf.ensure_shape(tf.cast(choose_window(shape[0], shape[1]), tf.int32), [4])
        return tf.slice(image, [window[0], window[1], 0], [window[2], window[3], 3])

    return tf.ensure_shape(tf.cond(starts_with(_JPEG), jpeg, other), [None, None, 3])


def _jpeg_window(contents: tf.Tensor, choose_window: ChooseWindow, exif: bool, shrink_px: int | None) -> tf.Tensor:
    facts = jpeg_facts(contents, exif=exif)
    whole = tf.debugging.Assert(
        _has_end(contents, facts.scan_start),
        ["The JPEG is cut short or damaged: there is no end marker in its bytes, of which there are", _size(contents)],
    )
    with tf.control_dependencies([whole]):
        contents = tf.identity(contents)
    contents = tf.cond(
        tf.equal(facts.num_components, 4) & tf.logical_not(facts.is_adobe),
        lambda: tf.strings.join([_JPEG[:2], _ADOBE, tf.strings.substr(contents, 2, _size(contents))]),
        lambda: contents,
    )
    shape = tf.image.extract_jpeg_shape(contents)
    window = choose_window(*displayed_size(shape[0], shape[1], facts.orientation))
    window = to_stored(tf.ensure_shape(tf.cast(window, tf.int32), [4]), shape[0], shape[1], facts.orientation)
    if shrink_px is None:
        image = _decode_and_crop(contents, window, 1)
    else:
        shrink = tf.minimum(window[2], window[3]) // shrink_px
        index = tf.gather(_RATIO_INDEX, tf.minimum(shrink, len(_RATIO_INDEX) - 1))
        ratio = tf.gather(_RATIOS, index)
        # As in evaluation: corners go to the nearest of the larger pixels, of which there are as many as begin within
        # the picture.
        sides = (shape[:2] + ratio - 1) // ratio
        low = tf.minimum((2 * window[:2] + ratio) // (2 * ratio), sides - 1)
        high = tf.clip_by_value((2 * (window[:2] + window[2:]) + ratio) // (2 * ratio), low + 1, sides)
        part = tf.concat([low, high - low], 0)
        image = tf.switch_case(index, [lambda r=r: _decode_and_crop(contents, part, r) for r in _RATIOS])
    return turn(tf.ensure_shape(image, [None, None, 3]), facts.orientation)


def _decode_and_crop(contents: tf.Tensor, window: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.image.decode_and_crop_jpeg(contents, window, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")


def _size(contents: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(contents)


def _has_end(contents: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """Tells whether a JPEG has its end marker behind its first scan's start; cameras append notes of their own."""

    def anywhere() -> tf.Tensor:
        rest = tf.io.decode_raw(tf.strings.substr(contents, start, _size(contents)), tf.uint8)
        return tf.reduce_any((rest[:-1] == END[0]) & (rest[1:] == END[1]))

    return tf.cond(tf.equal(tf.strings.substr(contents, -2, 2), END), lambda: tf.constant(True), anywhere)


def _png(contents: tf.Tensor, exif: bool) -> tf.Tensor:
    depth = tf.io.decode_raw(tf.strings.substr(contents, 0, 25), tf.uint8, fixed_length=25)[24]

    def deep() -> tf.Tensor:
        values = tf.cast(tf.image.decode_png(contents, channels=3, dtype=tf.uint16), tf.int32)
        return tf.cast((values * 255 + 32767) // 65535, tf.uint8)

    image = tf.cond(tf.equal(depth, 16), deep, lambda: tf.image.decode_png(contents, channels=3))
    return turn(tf.ensure_shape(image, [None, None, 3]), png_orientation(contents)) if exif else image


def _webp(contents: tf.Tensor, exif: bool) -> tf.Tensor:
    """Decodes a WebP's first picture, without its transparency.

    TensorFlow's decoder (2.21) refuses transparency and animation where three channels are asked for, and corrupts
    memory where the file is to decide (`channels=0` and an animation). So it gets a file of one opaque picture, or a
    lossless one, whose header says whether it has a fourth channel.
    """

    def extended() -> tuple[tf.Tensor, tf.Tensor]:
        facts = webp_facts(contents, exif=exif)
        chunk = tf.strings.substr(contents, facts.start, facts.stop - facts.start)
        size = tf.strings.length(chunk) + 4
        digits = [tf.cast(tf.bitwise.right_shift(size, 8 * n) % 256, tf.int32) for n in range(4)]
        return tf.strings.join([b"RIFF", *(tf.gather(_BYTES, n) for n in digits), b"WEBP", chunk]), facts.orientation

    is_extended = tf.equal(tf.strings.substr(contents, 12, 4), b"VP8X")
    plain, orientation = tf.cond(is_extended, extended, lambda: (contents, tf.constant(1)))
    head = tf.io.decode_raw(tf.strings.substr(plain, 0, 25), tf.uint8, fixed_length=25)
    is_lossless = tf.equal(tf.strings.substr(plain, 12, 4), b"VP8L")
    # Behind the signature there are 14 bits each of width and height, less 1, then the bit of the fourth channel.
    has_alpha = is_lossless & (tf.bitwise.bitwise_and(head[24], 1 << 4) > 0)
    image = tf.cond(has_alpha, lambda: _first_frame(plain, 4)[:, :, :3], lambda: _first_frame(plain, 3))
    return turn(tf.ensure_shape(image, [None, None, 3]), orientation)


_BYTES = [bytes([n]) for n in range(256)]


def _first_frame(contents: tf.Tensor, channels: int) -> tf.Tensor:
    image = tf.io.decode_image(contents, channels=channels, expand_animations=False)
    return tf.ensure_shape(image, [None, None, channels])
