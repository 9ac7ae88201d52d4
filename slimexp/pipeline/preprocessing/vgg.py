"""VGG preprocessing: random scale, random crop, flip, minus the mean colour.

K. Simonyan, A. Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition. arXiv:1409.1556, §3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from slimexp.pipeline.preprocessing import base

__all__ = ["VggPreprocessing"]

# The crop that the resize sides are meant for.
_REFERENCE_SIZE_PX = 224


class VggPreprocessing(base.WindowPreprocessing):
    """Cuts a square out of the picture, resizes it, perhaps mirrors it, and subtracts the mean colour.

    The recipe is: resize so that the shorter side becomes S, then crop 224 x 224. Here the same crop is worked out in
    the original's pixels, a square of `shorter side * 224 / S`, and only that is decoded and then resized. The
    square is rounded to whole pixels of the original, so against resize-then-crop its borders are off by at most one
    original pixel; samples near the rim repeat the rim's pixels instead of blending with those beyond.

    S is given for 224 x 224 images. For another `size_px` it scales in proportion (28 pixels: 32 to 64), so that the
    share of the picture that is seen stays the same.
    """

    def __init__(
        self,
        size_px: int = _REFERENCE_SIZE_PX,
        *,
        is_training: bool,
        resize_side_min: int = 256,
        resize_side_max: int = 512,
        eval_resize_side: int = 256,
        area_min: float = 0.0,
        flip: bool = True,
        means: Sequence[float] = (123.68, 116.78, 103.94),
    ) -> None:
        """Takes the values of the steps; the defaults are TF-Slim's.

        Args:
            size_px: The side of the finished image.
            is_training: Whether to draw scale, place and flip; otherwise the centre at `eval_resize_side`.
            resize_side_min: The least S, in pixels, for 224 x 224 images; at least 224.
            resize_side_max: The greatest S.
            eval_resize_side: S in evaluation.
            area_min: The least share that the crop may keep of the largest square in the picture, 0..1. It bounds the
                greatest S (0.5: 316), but never below `resize_side_min`; 0 does not.
            flip: Whether to mirror half of the training images.
            means: What to subtract from red, green and blue, in 0..255. The default is ImageNet's mean.

        Raises:
            UserError: If a value is out of range.
        """
        super().__init__(size_px, is_training=is_training)
        at_least = f"must be at least {_REFERENCE_SIZE_PX}, the crop that it is given for"
        for name, side in (("resize_side_min", resize_side_min), ("eval_resize_side", eval_resize_side)):
            base.require(side >= _REFERENCE_SIZE_PX, f"preprocessing.{name}", side, at_least)
        base.require(
            resize_side_max >= resize_side_min,
            "preprocessing.resize_side_max",
            resize_side_max,
            f"must not be below preprocessing.resize_side_min={resize_side_min}",
        )
        base.require(0 <= area_min <= 1, "preprocessing.area_min", area_min, "must lie in 0..1")
        base.require(len(means) == 3, "preprocessing.means", list(means), "must be three numbers: red, green, blue")
        self.resize_side_min = resize_side_min
        greatest = int(_REFERENCE_SIZE_PX / area_min**0.5) if area_min else resize_side_max
        self.resize_side_max = max(min(resize_side_max, greatest), resize_side_min)
        self.eval_resize_side = eval_resize_side
        self.flip = flip
        self.num_draws = 3 + flip if is_training else 0
        self.offset = -np.asarray(means, np.float32)

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses the square that a crop after resizing would show; see the base class."""
        shorter = tf.minimum(height, width)
        if not self.is_training:
            return base.centre_window(height, width, self._crop_side(shorter, self.eval_resize_side))
        scale, down, right = (draws[..., n] for n in range(3))
        side = self._crop_side(shorter, base.draw_integer(scale, self.resize_side_min, self.resize_side_max))
        y = base.draw_integer(down, 0, height - side)
        x = base.draw_integer(right, 0, width - side)
        return tf.stack([y, x, side, side], axis=-1)

    def flips(self, draws: tf.Tensor) -> tf.Tensor | None:
        """Mirrors half of the training images; see the base class."""
        return draws[..., 3] < 0.5 if self.is_training and self.flip else None

    @staticmethod
    def _crop_side(shorter: tf.Tensor, resize_side: tf.Tensor | int) -> tf.Tensor:
        """Returns the side, in the original's pixels, of a 224 crop made at a shorter side of `resize_side`."""
        share = _REFERENCE_SIZE_PX / tf.cast(resize_side, tf.float32)
        side = tf.cast(tf.round(tf.cast(shorter, tf.float32) * share), tf.int32)
        return tf.maximum(side, 1)
