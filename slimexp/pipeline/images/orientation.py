"""How a camera was held: from the orientation that EXIF notes to upright pictures.

The eight orientations say what has to be done to the stored pixels (EXIF 2.32, section 4.6.4, tag 0x0112): 1 nothing,
2 mirror left to right, 3 turn by 180 degrees, 4 mirror top to bottom, 5 mirror along the falling diagonal, 6 turn by 90
degrees clockwise, 7 mirror along the rising diagonal, 8 turn by 90 degrees counterclockwise.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ["displayed_size", "parse_orientation", "to_stored", "turn", "turn_array"]

_ORIENTATION_TAG = 0x0112
_NUMBER_BYTES = {3: 2, 4: 4}  # The bytes of a number of the types SHORT and LONG.

# By orientation (0 is never used): whether stored rows run from the bottom up as displayed, whether stored columns run
# from right to left, and whether rows are displayed as columns.
_FLIPS_ROWS = (False, False, False, True, True, False, True, True, False)
_FLIPS_COLUMNS = (False, False, True, True, False, False, False, True, True)
_SWAPS_AXES = (False, False, False, False, False, True, True, True, True)


def parse_orientation(exif: bytes) -> int:
    """Finds the orientation in an EXIF block.

    Args:
        exif: The block from its TIFF header on.

    Returns:
        The orientation, 1 to 8; 1 also where there is none and where the block is damaged.
    """
    order = {b"II*\0": "little", b"MM\0*": "big"}.get(exif[:4])
    if order is None:
        return 1

    def number(at: int, count: int) -> int:
        return int.from_bytes(exif[at : at + count], order)  # type: ignore[arg-type]  # It is little or big.

    start = number(4, 4)
    for entry in range(start + 2, min(start + 2 + 12 * number(start, 2), len(exif) - 11), 12):
        if number(entry, 2) == _ORIENTATION_TAG:
            value = number(entry + 8, _NUMBER_BYTES.get(number(entry + 2, 2), 0))
            return value if number(entry + 4, 4) == 1 and 1 <= value <= 8 else 1
    return 1


def displayed_size(height: tf.Tensor, width: tf.Tensor, orientation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the height and width that a picture has on show; all int32, of one shape."""
    swaps = tf.gather(_SWAPS_AXES, orientation)
    return tf.where(swaps, width, height), tf.where(swaps, height, width)


def to_stored(window: tf.Tensor, height: tf.Tensor, width: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Finds the part of the stored picture that a window of the displayed one shows.

    Args:
        window: int32 [..., 4], y, x, height and width in the displayed picture.
        height: int32 [...], the stored picture's height.
        width: Its width.
        orientation: int32 [...], 1 to 8.

    Returns:
        int32 [..., 4], y, x, height and width in the stored picture.
    """
    y, x, rows, columns = tf.unstack(window, axis=-1)
    swaps = tf.gather(_SWAPS_AXES, orientation)
    y, x = tf.where(swaps, x, y), tf.where(swaps, y, x)
    rows, columns = tf.where(swaps, columns, rows), tf.where(swaps, rows, columns)
    y = tf.where(tf.gather(_FLIPS_ROWS, orientation), height - y - rows, y)
    x = tf.where(tf.gather(_FLIPS_COLUMNS, orientation), width - x - columns, x)
    return tf.stack([y, x, rows, columns], axis=-1)


def turn(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turns stored pixels as they are to be displayed.

    Args:
        image: uint8 [height, width, 3], the stored picture or a part of it.
        orientation: int32 [], 1 to 8.

    Returns:
        uint8 [height, width, 3], or [width, height, 3] for the orientations 5 to 8.
    """
    # Without conditionals, which would cost more than turning a small picture.
    image = tf.raw_ops.Reverse(
        tensor=image,
        dims=tf.stack([tf.gather(_FLIPS_ROWS, orientation), tf.gather(_FLIPS_COLUMNS, orientation), False]),
    )
    swapped = tf.cast(tf.gather(_SWAPS_AXES, orientation), tf.int32)
    return tf.transpose(image, tf.stack([swapped, 1 - swapped, 2]))


def turn_array(image: np.ndarray, orientation: int) -> np.ndarray:
    """Does for a NumPy array what `turn` does for a tensor."""
    if _FLIPS_ROWS[orientation]:
        image = image[::-1]
    if _FLIPS_COLUMNS[orientation]:
        image = image[:, ::-1]
    return image.swapaxes(0, 1) if _SWAPS_AXES[orientation] else image
