"""Steps of one's own for `preprocessing.steps`, each way of writing one: the same operation four times.

It fades an image: each pixel moves by a share towards its grey value, an augmentation where colour should matter less.

    ./scripts/build_op scripts/examples/fade_op.cc -o fade.so
    ./scripts/run 'preprocessing.steps=[{_target_: scripts.examples.steps.fade, most: 0.5, num_draws: 1}]'
    ./scripts/run 'preprocessing.steps=[{numpy: scripts.examples.steps.fade_numpy, most: 0.5, num_draws: 1}]'
    ./scripts/run 'preprocessing.steps=[{library: fade.so, op: fade, most: 0.5, num_draws: 1}]'

`scripts/measure_steps.py` compares their speed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ["fade", "fade_numpy", "fade_numpy_loop"]

# Rec. ITU-R BT.601: the weights of red, green and blue in a grey value.
_GREY = np.array([0.299, 0.587, 0.114], np.float32)


def fade(image: tf.Tensor, most: float, draws: tf.Tensor) -> tf.Tensor:
    """Fades an image, in TensorFlow.

    Args:
        image: float32 [size, size, 3].
        most: The greatest share, 0..1; how much it is follows from the draw.
        draws: float32 [1].

    Returns:
        float32 [size, size, 3].
    """
    grey = tf.reduce_sum(image * _GREY, axis=-1, keepdims=True)
    return image + (most * draws[0]) * (grey - image)


def fade_numpy(image: np.ndarray, most: float, draws: np.ndarray) -> np.ndarray:
    """Fades an image, in NumPy: whole arrays at a time, without a loop over pixels."""
    grey = (image @ _GREY)[..., np.newaxis]
    return image + np.float32(most * draws[0]) * (grey - image)


def fade_numpy_loop(image: np.ndarray, most: float, draws: np.ndarray) -> np.ndarray:
    """Fades an image pixel by pixel, as one had better not: see the measurement."""
    share = np.float32(most * draws[0])
    faded = np.empty_like(image)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            pixel = image[y, x]
            grey = pixel[0] * _GREY[0] + pixel[1] * _GREY[1] + pixel[2] * _GREY[2]
            for channel in range(3):
                faded[y, x, channel] = pixel[channel] + share * (grey - pixel[channel])
    return faded
