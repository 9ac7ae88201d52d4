"""What stands in picture files, found by TensorFlow's ops alone, so that an exported graph needs no Python.

The same answers as `slimexp.pipeline.images.jpeg_header` and Pillow give, but for orientations that a PNG or WebP notes
in XMP or in a text chunk instead of an EXIF chunk: these are not seen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["JpegFacts", "WebpFacts", "integer_at", "jpeg_facts", "orientation_of", "png_orientation", "webp_facts"]

_EXIF = b"Exif\0\0"
_ORIENTATION_TAG = 0x0112
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # Those three are tables and a reserved one.
_APP1, _APP14, _SCAN = 0xE1, 0xEE, 0xDA

# What to do at a marker: end there, or how many bytes to go on; 0 stands for what its length says.
_END = -1


def _steps() -> np.ndarray:
    steps = np.zeros([256], np.int32)
    steps[[0x00, 0x01, *range(0xD0, 0xD8)]] = 2  # These have no length.
    steps[[0xD8, 0xD9, _SCAN]] = _END
    steps[0xFF] = 1  # Any number of these may stand before a marker.
    return steps


_STEPS = _steps()
_IS_FRAME = np.array([marker in _FRAMES for marker in range(256)])


class JpegFacts(NamedTuple):
    """What stands before a JPEG's first scan.

    Attributes:
        orientation: int32 [], by EXIF, 1 to 8; 1 where EXIF does not say.
        num_components: int32 [], the colour components; 4 is CMYK.
        is_adobe: bool [], whether Adobe's marker tells how colours are meant.
        scan_start: int32 [], where the first scan's header begins, or where the segments could not be followed on.
    """

    orientation: tf.Tensor
    num_components: tf.Tensor
    is_adobe: tf.Tensor
    scan_start: tf.Tensor


class WebpFacts(NamedTuple):
    """Where in a WebP of several chunks the first picture is.

    Attributes:
        orientation: int32 [], by EXIF, 1 to 8.
        start: int32 [], where the chunk of the picture begins; the file's size if there is none.
        stop: int32 [], where it ends.
    """

    orientation: tf.Tensor
    start: tf.Tensor
    stop: tf.Tensor


def integer_at(contents: tf.Tensor, at: tf.Tensor | int, num_bytes: int, *, little: bool) -> tf.Tensor:
    """Reads an unsigned whole number out of a file, int64 []; bytes behind its end count 0."""
    there = tf.minimum(tf.cast(at, tf.int32), tf.strings.length(contents))
    digits = tf.io.decode_raw(tf.strings.substr(contents, there, num_bytes), tf.uint8, fixed_length=num_bytes)
    places = range(num_bytes) if little else range(num_bytes - 1, -1, -1)
    return tf.reduce_sum(tf.cast(digits, tf.int64) * [256**place for place in places])


def jpeg_facts(contents: tf.Tensor, *, exif: bool) -> JpegFacts:
    """Goes through a JPEG's segments up to its first scan.

    Args:
        contents: string [], a file that begins as a JPEG does.
        exif: Whether to look for the orientation.
    """
    size = tf.strings.length(contents)

    def going_on(at: tf.Tensor, is_done: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(at + 4 <= size, tf.logical_not(is_done))

    def step(
        at: tf.Tensor, is_done: tf.Tensor, exif_at: tf.Tensor, components: tf.Tensor, is_adobe: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        head = tf.io.decode_raw(tf.strings.substr(contents, at, 10), tf.uint8, fixed_length=10)
        numbers = tf.cast(head, tf.int32)
        marker, length = numbers[1], 256 * numbers[2] + numbers[3]
        known = tf.gather(_STEPS, marker)
        has_length = tf.equal(known, 0)
        # Bytes that belong to no segment are passed over, as libjpeg does.
        is_marker = tf.equal(numbers[0], 0xFF)
        ends = tf.logical_or(tf.equal(known, _END), tf.logical_and(has_length, length < 2))
        ends = tf.logical_and(is_marker, ends)
        is_segment = is_marker & has_length & tf.logical_not(ends)
        is_exif = is_segment & tf.equal(marker, _APP1) & tf.reduce_all(tf.equal(head[4:], list(_EXIF)))
        is_frame = is_segment & tf.gather(_IS_FRAME, marker) & (at + 10 <= size)
        is_app14 = is_segment & tf.equal(marker, _APP14) & tf.reduce_all(tf.equal(head[4:9], list(b"Adobe")))
        step = tf.where(has_length, length + 2, known)
        return (
            tf.where(ends, at, at + tf.where(is_marker, step, 1)),
            ends,
            tf.where(is_exif & (exif_at < 0), at, exif_at),
            tf.where(is_frame, numbers[9], components),
            is_adobe | is_app14,
        )

    no = tf.constant(False)
    at, _, exif_at, components, is_adobe = tf.while_loop(
        going_on, step, (tf.constant(2), no, tf.constant(-1), tf.constant(0), no), parallel_iterations=1
    )

    def orientation() -> tf.Tensor:
        length = tf.cast(integer_at(contents, exif_at + 2, 2, little=False), tf.int32)
        return orientation_of(tf.strings.substr(contents, exif_at + 10, length - 8))

    turned = tf.cond(exif_at >= 0, orientation, lambda: tf.constant(1)) if exif else tf.constant(1)
    return JpegFacts(turned, components, is_adobe, at)


def png_orientation(contents: tf.Tensor) -> tf.Tensor:
    """Finds the orientation in a PNG's EXIF chunk: int32 [], 1 to 8; 1 where there is none."""

    def search() -> tf.Tensor:
        start, stop = _find_chunk(contents, 8, [b"eXIf"], little=False, rest=4)
        return tf.cond(
            start < stop,
            lambda: orientation_of(tf.strings.substr(contents, start + 8, stop - start - 8)),
            lambda: tf.constant(1),
        )

    # A PNG may have a thousand chunks; almost none has this one.
    is_there = tf.strings.regex_full_match(contents, r"\C*eXIf\C*")
    return tf.cond(is_there, search, lambda: tf.constant(1))


def webp_facts(contents: tf.Tensor, *, exif: bool) -> WebpFacts:
    """Finds the first picture among the chunks of an extended WebP, and its orientation.

    Args:
        contents: string [], a WebP file.
        exif: Whether to look for the orientation.
    """
    start, stop = _find_chunk(contents, 12, [b"VP8 ", b"VP8L", b"ANMF"], little=True)

    def in_frame() -> tuple[tf.Tensor, tf.Tensor]:
        # Behind the frame's own place, size and duration. Its transparency may come first, in a chunk of its own.
        return _find_chunk(contents, start + 8 + 16, [b"VP8 ", b"VP8L"], little=True)

    is_frame = tf.equal(tf.strings.substr(contents, tf.minimum(start, tf.strings.length(contents)), 4), b"ANMF")
    start, stop = tf.cond(is_frame, in_frame, lambda: (start, stop))
    if not exif:
        return WebpFacts(tf.constant(1), start, stop)
    exif_start, exif_stop = _find_chunk(contents, 12, [b"EXIF"], little=True)
    orientation = tf.cond(
        exif_start < exif_stop,
        lambda: orientation_of(tf.strings.substr(contents, exif_start + 8, exif_stop - exif_start - 8)),
        lambda: tf.constant(1),
    )
    return WebpFacts(orientation, start, stop)


def orientation_of(exif: tf.Tensor) -> tf.Tensor:
    """Finds the orientation in an EXIF block.

    Args:
        exif: string [], the block from its TIFF header on, or with `Exif` and two zeros before that.

    Returns:
        int32 [], 1 to 8; 1 also where there is none and where the block is damaged.
    """
    is_named = tf.equal(tf.strings.substr(exif, 0, len(_EXIF)), _EXIF)
    exif = tf.cond(is_named, lambda: tf.strings.substr(exif, len(_EXIF), tf.strings.length(exif)), lambda: exif)
    is_little = tf.equal(tf.strings.substr(exif, 0, 4), b"II*\0")
    is_big = tf.equal(tf.strings.substr(exif, 0, 4), b"MM\0*")

    def search(little: bool) -> tf.Tensor:
        size = tf.cast(tf.strings.length(exif), tf.int64)
        start = tf.minimum(integer_at(exif, 4, 4, little=little), size)
        count = integer_at(exif, start, 2, little=little)
        first = tf.minimum(start + 2, size)
        count = tf.minimum(count, (size - first) // 12)
        entries = tf.io.decode_raw(tf.strings.substr(exif, first, 12 * count), tf.uint8)
        entries = tf.cast(tf.reshape(entries, [-1, 12]), tf.int64)

        def number(at: int, num_bytes: int) -> tf.Tensor:
            places = range(num_bytes) if little else range(num_bytes - 1, -1, -1)
            return tf.reduce_sum(entries[:, at : at + num_bytes] * [256**place for place in places], axis=1)

        kind = number(2, 2)
        # The types SHORT and LONG.
        value = tf.where(kind == 3, number(8, 2), tf.where(kind == 4, number(8, 4), 0))
        is_good = (number(4, 4) == 1) & (value >= 1) & (value <= 8)
        values = tf.boolean_mask(tf.where(is_good, value, 1), number(0, 2) == _ORIENTATION_TAG)
        return tf.cast(tf.concat([values, [1]], 0)[0], tf.int32)

    return tf.case([(is_little, lambda: search(True)), (is_big, lambda: search(False))], default=lambda: tf.constant(1))


def _find_chunk(
    contents: tf.Tensor, first: tf.Tensor | int, kinds: Sequence[bytes], *, little: bool, rest: int = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the first chunk of one of these kinds.

    In a WebP (`little`) the kind stands before the size, and chunks begin at even places. In a PNG it stands behind the
    size, and a checksum of `rest` bytes ends each chunk.

    Returns:
        Where it begins and where its data end, int32 [] each; twice the file's size if there is none.
    """
    size = tf.strings.length(contents)

    def read(at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        kind = tf.strings.substr(contents, at if little else at + 4, 4)
        length = integer_at(contents, at + 4 if little else at, 4, little=little)
        # What is longer than the file ends with it, and stays within int32.
        return kind, tf.cast(tf.minimum(length, tf.cast(size, tf.int64)), tf.int32)

    def going_on(at: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(at + 8 <= size, stop < 0)

    def step(at: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        kind, length = read(at)
        is_wanted = tf.reduce_any(tf.equal(kind, list(kinds)))
        padded = length + (length % 2 if little else 0)
        return tf.where(is_wanted, at, at + 8 + padded + rest), tf.where(
            is_wanted, tf.minimum(at + 8 + length, size), stop
        )

    at, stop = tf.while_loop(going_on, step, (tf.convert_to_tensor(first), tf.constant(-1)), parallel_iterations=1)
    return tf.where(stop < 0, size, at), tf.where(stop < 0, size, stop)
