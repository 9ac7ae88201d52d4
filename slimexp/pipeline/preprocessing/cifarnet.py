"""CifarNet preprocessing: pad, random crop, flip, brightness, contrast; each image standardised."""

from __future__ import annotations

import tensorflow as tf

from slimexp.pipeline.preprocessing import base

__all__ = ["CifarnetPreprocessing"]


class CifarnetPreprocessing(base.Preprocessing):
    """Shifts, mirrors and relights small pictures, and brings each to mean 0 and standard deviation 1.

    A training image is a random crop of the picture with `padding` black pixels around it (more where that is still
    smaller than the crop, so that any picture can be used). Evaluation cuts the centre out or pads around it.
    """

    def __init__(
        self,
        size_px: int = 32,
        *,
        is_training: bool,
        padding: int = 4,
        flip: bool = True,
        brightness: float = 63.0,
        contrast_min: float = 0.2,
        contrast_max: float = 1.8,
    ) -> None:
        """Takes the values of the steps; the defaults are TF-Slim's.

        Args:
            size_px: The side of the finished image.
            is_training: Whether to draw place, flip and light.
            padding: Black pixels to add on each side before the crop.
            flip: Whether to mirror half of the training images.
            brightness: The most that is added to or taken from every value, in 0..255.
            contrast_min: The least factor for the distances from the mean colour.
            contrast_max: The greatest.

        Raises:
            UserError: If a value is out of range.
        """
        super().__init__(size_px, is_training=is_training)
        for name, value in (("padding", padding), ("brightness", brightness), ("contrast_min", contrast_min)):
            base.require(value >= 0, f"preprocessing.{name}", value, "must not be below 0")
        base.require(
            contrast_max >= contrast_min,
            "preprocessing.contrast_max",
            contrast_max,
            f"must not be below preprocessing.contrast_min={contrast_min}",
        )
        self.num_draws = 5 if is_training else 0
        self.padding = padding
        self.flip = flip
        self.brightness = brightness
        self.contrast_min, self.contrast_max = contrast_min, contrast_max

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses the whole picture (training) or the centre; see the base class."""
        # How much black a training crop has on which side depends on the picture's size, which `finish` is not told.
        if self.is_training:
            return base.full_window(height, width)
        return base.centre_window(height, width, self.size_px)

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Crops, mirrors and relights (training) or pads, and standardises; see the base class."""
        if not self.is_training:
            return tf.image.per_image_standardization(base.crop_or_pad(image, self.size_px))
        image = self._random_crop(image, draws)
        if self.flip:
            cropped = image
            image = tf.cond(draws[4] < 0.5, lambda: tf.reverse(cropped, [1]), lambda: cropped)
        light, contrast = draws[2], draws[3]
        image = tf.cast(image, tf.float32) + base.draw_between(light, -self.brightness, self.brightness)
        image = tf.image.adjust_contrast(image, base.draw_between(contrast, self.contrast_min, self.contrast_max))
        return tf.image.per_image_standardization(image)

    def _random_crop(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        pads, starts = [], []
        for side, uniform in zip(tf.unstack(tf.shape(image)[:2]), (draws[0], draws[1]), strict=True):
            padded = tf.maximum(side + 2 * self.padding, self.size_px)
            before = (padded - side) // 2
            pads.append(tf.stack([before, padded - side - before]))
            starts.append(base.draw_integer(uniform, 0, padded - self.size_px))
        image = tf.pad(image, tf.stack([*pads, tf.zeros([2], tf.int32)]))
        return tf.slice(image, [*starts, 0], [self.size_px, self.size_px, 3])
