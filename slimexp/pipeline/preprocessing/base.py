"""What a preprocessing is, and the steps that several of them share."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from slimexp.errors import UserError

__all__ = [
    "Preprocessing",
    "PreprocessingLike",
    "WindowPreprocessing",
    "centre_window",
    "crop_or_pad",
    "distort_colors",
    "draw_between",
    "draw_integer",
    "full_window",
    "require",
    "resize_bilinear",
]


class PreprocessingLike(Protocol):
    """What the pipeline calls. A class of the user's own needs no base class, and `num_draws` only if it draws."""

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses the part of a picture to decode."""

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Turns that part into what the network takes."""


class Preprocessing(abc.ABC):
    """Turns a picture into a network's input in two halves, one before it is decoded and one after.

    `window` is told the size that the file's header gives, and only that part is decoded; `finish` gets its pixels.
    Both are TensorFlow code, traced into a graph or called eagerly. All that is random in them follows from `draws`,
    which are a function of (run seed, epoch, example), so that it comes out the same for any number of threads.

    Attributes:
        size_px: The side of the finished, square image.
        is_training: Whether to augment.
        num_draws: How many random numbers `window` and `finish` want between them.
    """

    num_draws = 0

    def __init__(self, size_px: int, *, is_training: bool) -> None:
        """Takes the values that every preprocessing has.

        Args:
            size_px: The side of the finished image, in pixels.
            is_training: Whether to augment. Evaluation draws nothing.

        Raises:
            UserError: If `size_px` is below 1.
        """
        require(size_px >= 1, "model.image_size", size_px, "must be at least 1 pixel")
        self.size_px = size_px
        self.is_training = is_training

    @abc.abstractmethod
    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses the part of a picture to decode.

        Args:
            height: The picture's height in pixels, int32 [].
            width: Its width.
            draws: float32 [num_draws], each uniform in [0, 1): the example's in this epoch.

        Returns:
            int32 [4]: y and x of the part's upper left corner, its height and its width, in pixels.
        """

    @abc.abstractmethod
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Turns the decoded part into what the network takes.

        Args:
            image: uint8 [height, width, 3], RGB: the window, or the same part at a reduced size (see
                `slimexp.pipeline.images.decode`).
            draws: The same numbers that `window` was given.

        Returns:
            float32 [size_px, size_px, 3].
        """


class WindowPreprocessing(Preprocessing):
    """A preprocessing that resizes a window, perhaps mirrors it and distorts its colours, and scales the values.

    It says what it does in numbers, for one picture or for many at once, and so can also be carried out by the native
    op (`slimexp.pipeline.native`), which does all of it in one go. Subclasses give `window`, which must take pictures
    of any leading shape [...] (`height`, `width`: int32 [...]; `draws`: float32 [..., num_draws]; result: [..., 4]),
    and override what they need of the rest.

    A finished value is `value * scale + offset`, of a colour value in 0..255.

    Attributes:
        scale: The factor.
        offset: What is added to red, green and blue, float32 [3].
        color_orders: The orders in which colours may be distorted: strings of the letters b (brightness), s
            (saturation), h (hue) and c (contrast), one for each step. Empty: they are left alone.
    """

    scale = 1.0
    offset: np.ndarray = np.zeros(3, np.float32)
    color_orders: tuple[str, ...] = ()

    def flips(self, draws: tf.Tensor) -> tf.Tensor | None:
        """Says which pictures to mirror left to right: bool [...]; None: none ever."""
        return None  # Not left out: AutoGraph cannot take a function without a body.

    def colors(self, draws: tf.Tensor) -> tf.Tensor | None:
        """Says how to distort the colours; None: not at all.

        Returns:
            float32 [..., 5]: an index into `color_orders`, what to add (brightness), the factor of the saturation, the
            turn of the hue, and the factor of the contrast, as `tf.image.adjust_*` take them for values in 0..1. The
            result is clipped to 0..1.
        """
        return None

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Mirrors, resizes, distorts the colours and scales; see the base class."""
        flip = self.flips(draws)
        if flip is not None:
            # Before resizing there are mostly fewer bytes to turn round: uint8 against float32.
            image = tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)
        image = resize_bilinear(image, self.size_px)
        scale = self.scale
        colors = self.colors(draws)
        if colors is not None:
            image = distort_colors(image * (1 / 255), colors, self.color_orders)
            scale = scale * 255
        if scale != 1:
            image = image * scale
        if self.offset.any():
            # A constant of the image's own shape is added faster than three numbers are spread over it.
            image = image + np.tile(self.offset, (self.size_px, self.size_px, 1))
        return image


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


def draw_between(uniform: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Stretches a number drawn from [0, 1) to [low, high)."""
    return low + uniform * (high - low)


def draw_integer(uniform: tf.Tensor, low: tf.Tensor | int, high: tf.Tensor | int) -> tf.Tensor:
    """Turns a number drawn from [0, 1) into one of low, low + 1, ..., high: int32, of the same shape."""
    span = tf.cast(high - low + 1, tf.float32)
    number = tf.cast(uniform * span, tf.int32)
    # In float32 the product could round up to the span itself.
    return tf.minimum(number + low if isinstance(low, tf.Tensor) or low else number, high)


def full_window(height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns the window that is the whole picture, int32 [..., 4]."""
    height, width = tf.convert_to_tensor(height), tf.convert_to_tensor(width)
    return tf.stack([tf.zeros_like(height), tf.zeros_like(width), height, width], axis=-1)


def centre_window(height: tf.Tensor, width: tf.Tensor, size_px: tf.Tensor | int) -> tf.Tensor:
    """Returns the centre window of `size_px` by `size_px`, int32 [..., 4], or less where the picture ends before."""
    window_height, window_width = tf.minimum(height, size_px), tf.minimum(width, size_px)
    corner = [(height - window_height) // 2, (width - window_width) // 2]
    return tf.stack([*corner, window_height, window_width], axis=-1)


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
    image = tf.expand_dims(image, 0)
    resized = tf.raw_ops.ResizeBilinear(images=image, size=[size_px, size_px], half_pixel_centers=True)
    return tf.squeeze(resized, 0)


def distort_colors(image: tf.Tensor, colors: tf.Tensor, orders: Sequence[str]) -> tf.Tensor:
    """Distorts the colours of an image.

    Args:
        image: float32 [height, width, 3], in 0..1.
        colors: float32 [5]; see `WindowPreprocessing.colors`.
        orders: The orders that `colors[0]` chooses from.

    Returns:
        float32 [height, width, 3], clipped to 0..1.
    """
    steps: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
        "b": lambda x: x + colors[1],
        "s": lambda x: tf.image.adjust_saturation(x, colors[2]),
        "h": lambda x: tf.image.adjust_hue(x, colors[3]),
        "c": lambda x: tf.image.adjust_contrast(x, colors[4]),
    }

    def applied(order: str) -> Callable[[], tf.Tensor]:
        def branch() -> tf.Tensor:
            distorted = image
            for step in order:
                distorted = steps[step](distorted)
            return distorted

        return branch

    distorted = tf.switch_case(tf.cast(colors[0], tf.int32), [applied(order) for order in orders])
    return tf.clip_by_value(distorted, 0.0, 1.0)


def crop_or_pad(image: tf.Tensor, size_px: int) -> tf.Tensor:
    """Cuts the centre out, or pads with black around it, to [size_px, size_px, 3]; the type is kept."""
    shape = tf.shape(image)
    y, x, height, width = tf.unstack(centre_window(shape[0], shape[1], size_px))
    top, left = (size_px - height) // 2, (size_px - width) // 2
    image = tf.slice(image, [y, x, 0], [height, width, 3])
    image = tf.pad(image, [[top, size_px - height - top], [left, size_px - width - left], [0, 0]])
    return tf.ensure_shape(image, [size_px, size_px, 3])
