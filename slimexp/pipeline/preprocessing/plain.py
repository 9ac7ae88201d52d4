"""No augmentation: the whole picture, resized and scaled."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp.pipeline.preprocessing import base

__all__ = ["PlainPreprocessing"]


class PlainPreprocessing(base.WindowPreprocessing):
    """Resizes the whole picture to a square, whatever its proportions, and scales it: (x - mean) / scale."""

    def __init__(self, size_px: int, *, is_training: bool = False, mean: float = 127.5, scale: float = 127.5) -> None:
        """Takes the values of the steps.

        Args:
            size_px: The side of the finished image.
            is_training: For the uniform interface; training and evaluation see the same.
            mean: What to subtract, in 0..255.
            scale: What to divide by then. The defaults give -1..1.

        Raises:
            UserError: If `scale` is 0.
        """
        super().__init__(size_px, is_training=is_training)
        base.require(scale != 0, "preprocessing.scale", scale, "must not be 0, as pixels are divided by it")
        self.scale = 1 / scale
        self.offset = np.full(3, -mean / scale, np.float32)

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses the whole picture; see the base class."""
        return base.full_window(height, width)
