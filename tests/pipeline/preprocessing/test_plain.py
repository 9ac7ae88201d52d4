from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.preprocessing.plain import PlainPreprocessing

DRAWS = np.zeros(0, np.float32)


def test_the_whole_picture_is_resized_and_scaled() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (9, 13, 3), np.uint8)
    preprocessing = PlainPreprocessing(6, mean=100.0, scale=50.0)
    assert preprocessing.window(tf.constant(9), tf.constant(13), DRAWS).numpy().tolist() == [0, 0, 9, 13]
    expected = (tf.image.resize(picture, [6, 6]) - 100) / 50
    np.testing.assert_allclose(preprocessing.finish(tf.constant(picture), DRAWS), expected, atol=1e-5)


def test_the_defaults_give_minus_one_to_one() -> None:
    ends = tf.constant([[[0, 0, 0], [255, 255, 255]]], tf.uint8)
    image = PlainPreprocessing(2).finish(ends, DRAWS).numpy()
    assert image[0, :, 0].tolist() == [-1, 1]


def test_a_scale_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match=r"preprocessing\.scale=0 is refused: it must not be 0"):
        PlainPreprocessing(6, scale=0)
