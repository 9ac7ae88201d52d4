from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp.pipeline.preprocessing.lenet import LenetPreprocessing

DRAWS = np.zeros(0, np.float32)


def test_a_larger_picture_is_cut_and_scaled() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (40, 33, 3), np.uint8)
    preprocessing = LenetPreprocessing(is_training=True)
    y, x, height, width = preprocessing.window(tf.constant(40), tf.constant(33), DRAWS).numpy()
    assert [y, x, height, width] == [6, 2, 28, 28]
    found = preprocessing.finish(tf.constant(picture[6:34, 2:30]), DRAWS).numpy()
    expected = (tf.image.resize_with_crop_or_pad(picture, 28, 28).numpy().astype(np.float32) - 128) / 128
    assert (found == expected).all()


def test_a_smaller_picture_is_padded_with_black() -> None:
    found = LenetPreprocessing(4, is_training=False).finish(tf.fill([2, 4, 3], tf.constant(255, tf.uint8)), DRAWS)
    assert found.numpy()[:, 0, 0].tolist() == [-1, 127 / 128, 127 / 128, -1]
