"""What a preprocessing is, and the steps that several of them share."""

from __future__ import annotations

import abc
from typing import Protocol

import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.order import fold_in

__all__ = [
    "Preprocessing",
    "PreprocessingLike",
    "centre_window",
    "crop_or_pad",
    "draw_between",
    "draw_integer",
    "draw_uniforms",
    "full_window",
    "maybe_flip",
    "require",
    "resize_bilinear",
]


class PreprocessingLike(Protocol):
    """The two methods that the pipeline calls. A class of the user's own needs no base class."""

    def window(self, height: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Chooses the part of a picture to decode."""

    def finish(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Turns that part into what the network takes."""


class Preprocessing(abc.ABC):
    """Turns a picture into a network's input in two halves, one before it is decoded and one after.

    The reader calls `window` with the size that the file's header gives and decodes only that part; a preprocessing
    thread calls `finish` with its pixels. Both are TensorFlow code, traced into a graph or called eagerly. Both are
    given the example's seed: each random draw takes `fold_in(seed, n)` with an n of its own, so that it comes out
    the same for any number of threads.

    Attributes:
        size_px: The side of the finished, square image.
        is_training: Whether to augment.
    """

    def __init__(self, size_px: int, *, is_training: bool) -> None:
        """Takes the values that every preprocessing has.

        Args:
            size_px: The side of the finished image, in pixels.
            is_training: Whether to augment. Evaluation ignores the seed.

        Raises:
            UserError: If `size_px` is below 1.
        """
        require(size_px >= 1, "model.image_size", size_px, "must be at least 1 pixel")
        self.size_px = size_px
        self.is_training = is_training

    @abc.abstractmethod
    def window(self, height: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Chooses the part of a picture to decode.

        Args:
            height: The picture's height in pixels, int32 [].
            width: Its width.
            seed: The example's seed in this epoch, int64 [2].

        Returns:
            int32 [4]: y and x of the part's upper left corner, its height and its width, in pixels.
        """

    @abc.abstractmethod
    def finish(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Turns the decoded part into what the network takes.

        Args:
            image: uint8 [height, width, 3], RGB, of the height and width that `window` asked for.
            seed: The same seed that `window` was given.

        Returns:
            float32 [size_px, size_px, 3].
        """


def require(ok: bool, key: str, value: object, rule: str) -> None:
    """Refuses a value that a configuration gave.

    Args:
        ok: Whether the value is right.
        key: The configuration key, for the message.
        value: What it was set to.
        rule: What is asked of it, to follow the words "is refused: it".

    Raises:
        UserError: If not `ok`.
    """
    if not ok:
        raise UserError(f"{key}={value} is refused: it {rule}.")


def draw_uniforms(seed: tf.Tensor, draw: int, count: int) -> list[tf.Tensor]:
    """Draws numbers uniformly from [0, 1): `count` of float32 [], for the example's draw number `draw`."""
    # What tf.random.stateless_uniform gives (Philox), as one op instead of nine, which for so few numbers matters.
    uniforms = tf.raw_ops.StatelessRandomUniform(shape=[count], seed=fold_in(seed, draw), dtype=tf.float32)
    return tf.unstack(uniforms)


def draw_between(uniform: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Stretches a number drawn from [0, 1) to [low, high)."""
    return low + uniform * (high - low)


def draw_integer(uniform: tf.Tensor, low: tf.Tensor | int, high: tf.Tensor | int) -> tf.Tensor:
    """Turns a number drawn from [0, 1) into one of low, low + 1, ..., high: int32 []."""
    span = tf.cast(high - low + 1, tf.float32)
    # In float32 the product could round up to the span itself.
    return tf.minimum(low + tf.cast(uniform * span, tf.int32), high)


def full_window(height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns the window that is the whole picture, int32 [4]."""
    return tf.stack([0, 0, height, width])


def centre_window(height: tf.Tensor, width: tf.Tensor, size_px: tf.Tensor | int) -> tf.Tensor:
    """Returns the centre window of `size_px` by `size_px`, int32 [4], or less where the picture ends before."""
    window_height, window_width = tf.minimum(height, size_px), tf.minimum(width, size_px)
    return tf.stack([(height - window_height) // 2, (width - window_width) // 2, window_height, window_width])


def maybe_flip(image: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Mirrors an image left to right if `uniform`, drawn from [0, 1), is below a half."""
    return tf.cond(uniform < 0.5, lambda: tf.reverse(image, [1]), lambda: image)


def resize_bilinear(image: tf.Tensor, size_px: int) -> tf.Tensor:
    """Resizes bilinearly to a square, with pixel centres at halves and without antialiasing.

    TensorFlow 1 put pixel centres at whole numbers, which shifts the picture by up to half a pixel of the original.
    Halves keep it in place, so that mirroring before or after comes to the same.

    Args:
        image: uint8 or float32 [height, width, 3].
        size_px: The side of the result.

    Returns:
        float32 [size_px, size_px, 3], in the image's own range.
    """
    # The raw op takes uint8 as it is; tf.image.resize is the same op after a dozen more for shapes.
    resized = tf.raw_ops.ResizeBilinear(images=image[tf.newaxis], size=[size_px, size_px], half_pixel_centers=True)
    return resized[0]


def crop_or_pad(image: tf.Tensor, size_px: int) -> tf.Tensor:
    """Cuts the centre out, or pads with black around it, to [size_px, size_px, 3]; the type is kept."""
    shape = tf.shape(image)
    y, x, height, width = tf.unstack(centre_window(shape[0], shape[1], size_px))
    top, left = (size_px - height) // 2, (size_px - width) // 2
    image = tf.slice(image, [y, x, 0], [height, width, 3])
    image = tf.pad(image, [[top, size_px - height - top], [left, size_px - width - left], [0, 0]])
    return tf.ensure_shape(image, [size_px, size_px, 3])
