"""Inception preprocessing: a random box squeezed to the image, flip, colour; scaled to -1..1.

C. Szegedy et al.: Going Deeper with Convolutions. arXiv:1409.4842, §6; the colour distortions are those of
A. G. Howard: Some Improvements on Deep Convolutional Neural Network Based Image Classification. arXiv:1312.5402, §2.
"""

from __future__ import annotations

import enum

import numpy as np
import tensorflow as tf

from slimexp.pipeline.preprocessing import base

__all__ = ["InceptionPreprocessing"]

# TF-Slim's colour distortions: brightness, saturation, hue, contrast.
_COLOR_LOW = np.array([-32 / 255, 0.5, -0.2, 0.5], np.float32)
_COLOR_HIGH = np.array([32 / 255, 1.5, 0.2, 1.5], np.float32)

# The orders in which they are applied; one is drawn for each image.
_ORDERS = {"none": (), "fast": ("bs", "sb"), "full": ("bshc", "sbch", "chbs", "hscb")}


class InceptionPreprocessing(base.WindowPreprocessing):
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
        self.color_orders = _ORDERS[mode]
        self.num_draws = 10 if is_training else 0
        self.scale = 2 / 255
        self.offset = np.full(3, -1, np.float32)

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Draws the box, or takes the centre; see the base class."""
        if not self.is_training:
            return self._centre(height, width)
        return self._draw_box(height, width, draws)

    def flips(self, draws: tf.Tensor) -> tf.Tensor | None:
        """Mirrors half of the training images; see the base class."""
        return draws[..., 4] < 0.5 if self.is_training and self.flip else None

    def colors(self, draws: tf.Tensor) -> tf.Tensor | None:
        """Draws an order, brightness, saturation, hue and contrast; see the base class."""
        if not self.is_training or not self.color_orders:
            return None
        order = base.draw_integer(draws[..., 9], 0, len(self.color_orders) - 1)
        values = draws[..., 5:9] * (_COLOR_HIGH - _COLOR_LOW) + _COLOR_LOW
        return tf.concat([tf.cast(order, tf.float32)[..., tf.newaxis], values], axis=-1)

    def _centre(self, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
        starts = []
        for side in (height, width):
            # float64, as 0.875 of a large side may fall on a whole pixel.
            margin = tf.cast(side, tf.float64) * ((1 - self.central_fraction) / 2)
            starts.append(tf.cast(margin, tf.int32))
        y, x = starts
        return tf.stack([y, x, height - 2 * y, width - 2 * x], axis=-1)

    def _draw_box(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        # Few ops: each costs a thousandth of the image.
        for_ratio, for_height, down, right = tf.unstack(draws[..., :4], axis=-1)
        sides = tf.stack([height, width], axis=-1)
        picture = tf.cast(sides, tf.float32)
        full_height, full_width = tf.unstack(picture, axis=-1)
        # A box of ratio r has at most the area min(height**2 * r, width**2 / r).
        shape = full_width / full_height
        ratio_low = tf.maximum(self.ratio_min, shape * self.area_min)
        ratio_high = tf.minimum(self.ratio_max, shape / self.area_min)
        ratio = ratio_low + for_ratio * (ratio_high - ratio_low)
        of_full_area = tf.sqrt(full_height * full_width / ratio)  # The height of a box of the whole picture's area.
        highest = tf.minimum(full_height, full_width / ratio)
        if self.area_max < 1:
            highest = tf.minimum(highest, of_full_area * self.area_max**0.5)
        lowest = tf.minimum(of_full_area * self.area_min**0.5, highest)
        box_height = lowest + for_height * (highest - lowest)
        box = tf.stack([box_height, box_height * ratio], axis=-1)
        box = tf.where((ratio_low <= ratio_high)[..., tf.newaxis], box, picture)
        box = tf.clip_by_value(tf.cast(tf.round(box), tf.int32), 1, sides)
        corner = base.draw_integer(tf.stack([down, right], axis=-1), 0, sides - box)
        return tf.concat([corner, box], axis=-1)
