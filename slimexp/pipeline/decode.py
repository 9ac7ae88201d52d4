"""Bytes to pixels: the part of a picture that the preprocessing wants, whatever the format."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

__all__ = ["decode_whole", "decode_window"]

ChooseWindow = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_JPEG_END = b"\xff\xd9"


def decode_window(contents: tf.Tensor, choose_window: ChooseWindow) -> tf.Tensor:
    """Decodes the part of an encoded picture that `choose_window` asks for.

    The format is told by the contents, never by the file's name: JPEG, PNG, GIF (its first frame), BMP or WebP. Of a
    complete JPEG only the window is decoded. At the window's rim this can differ by a few grey levels from a cut out
    of the whole picture, because colour is stored at half resolution and the smoothing that restores it does not look
    past the rim.

    A JPEG that lacks its end marker is decoded whole before the window is cut out. Cut short, it then fails for every
    window, and not only for one that reaches the missing part.

    One limit: a JPEG whose pixel data end early but that has its end marker all the same passes for a complete one.
    What is missing comes out grey, and "Premature end of JPEG data" in the program's output is the only sign of it:
    the decoder takes that for a warning, and TensorFlow has no option to make it an error.

    Args:
        contents: string [], the bytes of an image file.
        choose_window: Called with the picture's height and width, int32 [], and returns the window: int32 [4], y, x,
            height and width in pixels, inside the picture.

    Returns:
        uint8 [window height, window width, 3], RGB.

    Raises:
        tf.errors.InvalidArgumentError: (When run) If the bytes are no complete picture or the window leaves it.
    """

    # Bytes too few to have an end fail here, and they are no picture anyhow.
    has_end = tf.equal(tf.strings.substr(contents, -2, 2), _JPEG_END)
    is_complete_jpeg = tf.logical_and(tf.io.is_jpeg(contents), has_end)
    # Three conditionals on one question, so that `choose_window` is in the graph once: what is in a branch costs time
    # also when the branch is not taken.
    whole = tf.cond(is_complete_jpeg, lambda: tf.zeros([0, 0, 3], tf.uint8), lambda: decode_whole(contents))
    shape = tf.cond(is_complete_jpeg, lambda: tf.image.extract_jpeg_shape(contents), lambda: tf.shape(whole))
    window = tf.ensure_shape(tf.cast(choose_window(shape[0], shape[1]), tf.int32), [4])
    image = tf.cond(
        is_complete_jpeg,
        lambda: tf.image.decode_and_crop_jpeg(contents, window, channels=3),
        lambda: tf.slice(whole, [window[0], window[1], 0], [window[2], window[3], 3]),
    )
    return tf.ensure_shape(image, [None, None, 3])


def decode_whole(contents: tf.Tensor) -> tf.Tensor:
    """Decodes a whole picture, uint8 [height, width, 3]; the formats are those of `decode_window`."""
    image = tf.cond(
        tf.io.is_jpeg(contents),
        lambda: tf.image.decode_jpeg(contents, channels=3),
        lambda: _decode_other(contents),
    )
    return tf.ensure_shape(image, [None, None, 3])


def _starts_with(contents: tf.Tensor, magic: bytes) -> tf.Tensor:
    return tf.equal(tf.strings.substr(contents, 0, len(magic)), magic)


def _decode_other(contents: tf.Tensor) -> tf.Tensor:
    """Decodes anything but a JPEG."""

    def from_general() -> tf.Tensor:
        return tf.ensure_shape(tf.io.decode_image(contents, channels=3, expand_animations=False), [None, None, 3])

    return tf.cond(
        _is_palette_bmp(contents),
        lambda: _decode_palette_bmp(contents),
        lambda: tf.cond(_starts_with(contents, b"RIFF"), lambda: _decode_webp(contents), from_general),
    )


def _decode_webp(contents: tf.Tensor) -> tf.Tensor:
    """Decodes a WebP, or the first frame of an animated one if it has transparency."""
    # The op gives out the channels that there are and no others. Of an animation without transparency it makes a
    # picture whose channels are out of step; asked for three channels it refuses that one, which is what we want.
    flags = tf.io.decode_raw(tf.strings.substr(contents, 20, 1), tf.uint8)[0]
    is_extended = tf.equal(tf.strings.substr(contents, 12, 4), b"VP8X")
    is_opaque_animation = tf.logical_and(is_extended, tf.equal(tf.bitwise.bitwise_and(flags, 0x12), 0x02))
    image = tf.cond(
        is_opaque_animation,
        lambda: tf.io.decode_image(contents, channels=3, expand_animations=False),
        lambda: tf.io.decode_image(contents, channels=0, expand_animations=False),
    )
    return tf.ensure_shape(image, [None, None, None])[:, :, :3]


def _is_palette_bmp(contents: tf.Tensor) -> tf.Tensor:
    """Tells whether this is a BMP of 8 bits a pixel, whose pixels are numbers of colours."""
    return tf.cond(
        _starts_with(contents, b"BM"),
        lambda: tf.equal(tf.strings.substr(contents, 28, 2), b"\x08\x00"),  # The header's count of bits a pixel.
        lambda: tf.constant(False),
    )


def _decode_palette_bmp(contents: tf.Tensor) -> tf.Tensor:
    """Decodes a BMP of 8 bits a pixel; TensorFlow's own decoder takes the colour numbers for grey levels."""
    header_bytes, compression, num_colours = (_little_endian(contents, at) for at in (14, 30, 46))
    with tf.control_dependencies([tf.debugging.assert_equal(compression, 0, "The BMP is run-length encoded.")]):
        num_colours = tf.where(num_colours == 0, 256, num_colours)
    palette = tf.io.decode_raw(tf.strings.substr(contents, 14 + header_bytes, 4 * num_colours), tf.uint8)
    palette = tf.reshape(palette, [-1, 4])[:, 2::-1]  # blue, green, red, 0 -> red, green, blue
    numbers = tf.io.decode_bmp(contents)  # [height, width, 1]
    return tf.gather(palette, tf.cast(numbers[:, :, 0], tf.int32))


def _little_endian(contents: tf.Tensor, at: int) -> tf.Tensor:
    return tf.io.decode_raw(tf.strings.substr(contents, at, 4), tf.int32)[0]
