"""LeNet preprocessing: the centre, cut or padded to size; (x - 128) / 128."""

from __future__ import annotations

import tensorflow as tf

from slimexp.pipeline.preprocessing import base

__all__ = ["LenetPreprocessing"]

# TF-Slim's lenet_preprocessing.
_MEAN = 128.0
_SCALE = 128.0


class LenetPreprocessing(base.Preprocessing):
    """Cuts the centre out of a larger picture or pads a smaller one with black, and scales to -1..1.

    There is no augmentation, so training and evaluation see the same.
    """

    def __init__(self, size_px: int = 28, *, is_training: bool) -> None:
        """Takes the side of the finished image; see the base class."""
        super().__init__(size_px, is_training=is_training)

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses the centre; see the base class."""
        return base.centre_window(height, width, self.size_px)

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Pads where needed, and scales; see the base class."""
        return (tf.cast(base.crop_or_pad(image, self.size_px), tf.float32) - _MEAN) / _SCALE
