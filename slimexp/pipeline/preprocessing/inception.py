"""Inception preprocessing: a random box squeezed to the image, flip, colour; scaled to -1..1.

C. Szegedy et al.: Going Deeper with Convolutions. arXiv:1409.4842, §6; the colour distortions are those of
A. G. Howard: Some Improvements on Deep Convolutional Neural Network Based Image Classification. arXiv:1312.5402, §2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import tensorflow as tf

from slimexp.pipeline.preprocessing import base

__all__ = ["InceptionPreprocessing"]

# TF-Slim's colour distortions.
_BRIGHTNESS = 32 / 255
_SATURATION = (0.5, 1.5)
_HUE = 0.2
_CONTRAST = (0.5, 1.5)

# The orders in which they are applied; one is drawn for each image.
_FAST_ORDERS = (("brightness", "saturation"), ("saturation", "brightness"))
_FULL_ORDERS = (
    ("brightness", "saturation", "hue", "contrast"),
    ("saturation", "brightness", "contrast", "hue"),
    ("contrast", "hue", "brightness", "saturation"),
    ("hue", "saturation", "contrast", "brightness"),
)

_WINDOW_DRAW, _FLIP_DRAW, _COLOR_DRAW = 1, 2, 3

Distortion = Callable[[tf.Tensor], tf.Tensor]


class InceptionPreprocessing(base.Preprocessing):
    """Cuts a random box, resizes it to a square, perhaps mirrors it, distorts its colours and scales to -1..1.

    The box is drawn as `tf.image.sample_distorted_bounding_box` draws it, in closed form: the ratio of width to
    height uniformly from those that leave room for the least area, then the height uniformly between what the least
    area asks for and what area and picture allow, then its place. A picture so long that no ratio leaves room is
    taken whole. Rounding to whole pixels can take the area of a small box a little under the least.

    TF-Slim also asks that the box cover a tenth of the labelled object, which is the whole picture where there are no
    object boxes; `area_min=0.1` has that effect.
    """

    def __init__(
        self,
        size_px: int = 299,
        *,
        is_training: bool,
        area_min: float = 0.05,
        area_max: float = 1.0,
        ratio_min: float = 0.75,
        ratio_max: float = 1.33,
        flip: bool = True,
        color: str | enum.Enum = "fast",
        central_fraction: float = 0.875,
    ) -> None:
        """Takes the values of the steps; the defaults are TF-Slim's.

        Args:
            size_px: The side of the finished image.
            is_training: Whether to draw box, flip and colours; otherwise the centre by `central_fraction`.
            area_min: The least share of the picture's area that the box covers, above 0.
            area_max: The greatest, at most 1.
            ratio_min: The least ratio of the box's width to its height.
            ratio_max: The greatest.
            flip: Whether to mirror half of the training images.
            color: `none`; `fast`: brightness by up to 32/255 and saturation by a factor of 0.5 to 1.5, in either
                order; `full`: also hue by up to 0.2 and contrast by a factor of 0.5 to 1.5, in one of four orders.
            central_fraction: The share of either side that evaluation looks at, above 0 and at most 1.

        Raises:
            UserError: If a value is out of range.
        """
        super().__init__(size_px, is_training=is_training)
        base.require(0 < area_min <= 1, "preprocessing.area_min", area_min, "must be above 0 and at most 1")
        base.require(
            area_min <= area_max <= 1,
            "preprocessing.area_max",
            area_max,
            f"must be at most 1 and not below preprocessing.area_min={area_min}",
        )
        base.require(ratio_min > 0, "preprocessing.ratio_min", ratio_min, "must be above 0")
        base.require(
            ratio_max >= ratio_min,
            "preprocessing.ratio_max",
            ratio_max,
            f"must not be below preprocessing.ratio_min={ratio_min}",
        )
        mode = color.value if isinstance(color, enum.Enum) else color
        base.require(mode in ("none", "fast", "full"), "preprocessing.color", mode, "must be none, fast or full")
        base.require(
            0 < central_fraction <= 1,
            "preprocessing.central_fraction",
            central_fraction,
            "must be above 0 and at most 1",
        )
        self.area_min, self.area_max = area_min, area_max
        self.ratio_min, self.ratio_max = ratio_min, ratio_max
        self.flip = flip
        self.color = mode
        self.central_fraction = central_fraction

    def window(self, height: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws the box, or takes the centre; see the base class."""
        if not self.is_training:
            return self._centre(height, width)
        return self._draw_box(height, width, seed)

    def finish(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Mirrors (training), resizes, distorts the colours (training) and scales; see the base class."""
        if self.is_training and self.flip:
            image = base.maybe_flip(image, base.draw_uniforms(seed, _FLIP_DRAW, 1)[0])
        image = base.resize_bilinear(image, self.size_px)
        if not self.is_training or self.color == "none":
            return image * (2 / 255) - 1.0
        image = self._distort_color(image * (1 / 255), base.draw_uniforms(seed, _COLOR_DRAW, 5))
        return tf.clip_by_value(image, 0.0, 1.0) * 2.0 - 1.0

    def _centre(self, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
        starts = []
        for side in (height, width):
            # float64, as 0.875 of a large side may fall on a whole pixel.
            margin = tf.cast(side, tf.float64) * ((1 - self.central_fraction) / 2)
            starts.append(tf.cast(margin, tf.int32))
        y, x = starts
        return tf.stack([y, x, height - 2 * y, width - 2 * x])

    def _draw_box(self, height: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        draws = base.draw_uniforms(seed, _WINDOW_DRAW, 4)
        full_height, full_width = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
        area = full_height * full_width
        least = self.area_min * area
        # A box of ratio r has at most the area min(height**2 * r, width**2 / r).
        ratio_low = tf.maximum(self.ratio_min, least / (full_height * full_height))
        ratio_high = tf.minimum(self.ratio_max, full_width * full_width / least)
        ratio = ratio_low + draws[0] * (ratio_high - ratio_low)
        highest = tf.minimum(tf.minimum(full_height, full_width / ratio), tf.sqrt(self.area_max * area / ratio))
        lowest = tf.minimum(tf.sqrt(least / ratio), highest)
        box_height = lowest + draws[1] * (highest - lowest)
        rows = tf.clip_by_value(tf.cast(tf.round(box_height), tf.int32), 1, height)
        columns = tf.clip_by_value(tf.cast(tf.round(box_height * ratio), tf.int32), 1, width)
        y = base.draw_integer(draws[2], 0, height - rows)
        x = base.draw_integer(draws[3], 0, width - columns)
        return tf.where(ratio_low <= ratio_high, tf.stack([y, x, rows, columns]), base.full_window(height, width))

    def _distort_color(self, image: tf.Tensor, draws: list[tf.Tensor]) -> tf.Tensor:
        """Distorts the colours of an image, float32 in 0..1; the result may leave that range."""
        steps: dict[str, Distortion] = {
            "brightness": lambda x: x + base.draw_between(draws[0], -_BRIGHTNESS, _BRIGHTNESS),
            "saturation": lambda x: tf.image.adjust_saturation(x, base.draw_between(draws[1], *_SATURATION)),
            "hue": lambda x: tf.image.adjust_hue(x, base.draw_between(draws[2], -_HUE, _HUE)),
            "contrast": lambda x: tf.image.adjust_contrast(x, base.draw_between(draws[3], *_CONTRAST)),
        }
        orders = _FAST_ORDERS if self.color == "fast" else _FULL_ORDERS

        def applied(order: tuple[str, ...]) -> Callable[[], tf.Tensor]:
            def branch() -> tf.Tensor:
                distorted = image
                for name in order:
                    distorted = steps[name](distorted)
                return distorted

            return branch

        return tf.switch_case(base.draw_integer(draws[4], 0, len(orders) - 1), [applied(order) for order in orders])
