"""BMP files, decoded by TensorFlow's ops alone. TensorFlow's own decoder takes palettes for shades of grey."""

from __future__ import annotations

import tensorflow as tf

from slimexp.export.picture_files import integer_at

__all__ = ["decode_bitmap"]

_PLAIN, _BITFIELDS = 0, 3
# Blue, green, red, and what may be alpha, a byte each: the masks of red, green and blue that say so.
_USUAL_MASKS = (0xFF0000, 0xFF00, 0xFF)


def decode_bitmap(contents: tf.Tensor) -> tf.Tensor:
    """Decodes a BMP with a palette of up to 256 colours, or with 24 or 32 bits a pixel, uncompressed.

    Args:
        contents: string [], the bytes of the file.

    Returns:
        uint8 [height, width, 3], RGB.

    Raises:
        tf.errors.InvalidArgumentError: (When run) If it is of another kind, or cut short.
    """

    def number(at: int, num_bytes: int) -> tf.Tensor:
        return integer_at(contents, at, num_bytes, little=True)

    def signed(at: int) -> tf.Tensor:
        value = number(at, 4)
        return tf.where(value >= 2**31, value - 2**32, value)

    header, width, height, bits, coding = number(14, 4), signed(18), signed(22), number(28, 2), number(30, 4)
    is_usual = tf.equal(coding, _PLAIN)
    has_usual_masks = tf.reduce_all([tf.equal(number(54 + 4 * n, 4), mask) for n, mask in enumerate(_USUAL_MASKS)])
    is_usual |= tf.equal(coding, _BITFIELDS) & tf.equal(bits, 32) & has_usual_masks
    is_usual &= tf.reduce_any(tf.equal(bits, [1, 4, 8, 24, 32]))
    is_known = (header >= 40) & is_usual & (width > 0) & tf.not_equal(height, 0)
    kind = ["This kind of BMP is not decoded; save it as PNG. Header, bits a pixel, coding:", header, bits, coding]
    rows = tf.abs(height)
    row_bytes = (width * bits + 31) // 32 * 4
    start = number(10, 4)
    size = tf.cast(tf.strings.length(contents), tf.int64)
    is_whole = start + rows * row_bytes <= size
    with tf.control_dependencies([tf.debugging.Assert(is_known, kind)]):
        bits = tf.identity(bits)  # What follows cannot do with any others.
        short = ["The BMP is cut short: its bytes, and those that it needs:", size, start + rows * row_bytes]
        with tf.control_dependencies([tf.debugging.Assert(is_whole, short)]):
            data = tf.io.decode_raw(tf.strings.substr(contents, start, rows * row_bytes), tf.uint8)
    data = tf.reshape(data, tf.stack([rows, row_bytes]))

    def by_palette() -> tf.Tensor:
        used = number(46, 4)
        num_colors = tf.where((used > 0) & (used <= 256), used, 2 ** tf.minimum(bits, 8))
        palette = tf.io.decode_raw(tf.strings.substr(contents, tf.minimum(14 + header, size), 4 * num_colors), tf.uint8)
        palette = tf.reshape(palette, [-1, 4])[:, 2::-1]
        # The leftmost pixel is in the highest bits of a byte.
        shifts = tf.cast(tf.range(8 - bits, -1, -bits), tf.int32)
        values = tf.bitwise.right_shift(tf.cast(data, tf.int32)[:, :, tf.newaxis], shifts)
        values = tf.bitwise.bitwise_and(values, tf.cast(2**bits - 1, tf.int32))
        return tf.gather(palette, tf.reshape(values, tf.stack([rows, -1]))[:, :width])

    def by_bytes(num_bytes: int) -> tf.Tensor:
        return tf.reshape(data[:, : num_bytes * width], tf.stack([rows, width, num_bytes]))[:, :, 2::-1]

    image = tf.case(
        [(tf.equal(bits, 24), lambda: by_bytes(3)), (tf.equal(bits, 32), lambda: by_bytes(4))], default=by_palette
    )
    # Rows run from the bottom up, unless the height is negative.
    return tf.ensure_shape(tf.cond(height > 0, lambda: tf.reverse(image, [0]), lambda: image), [None, None, 3])
