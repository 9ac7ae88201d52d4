from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.order import uniform_draws
from slimexp.pipeline.preprocessing.cifarnet import CifarnetPreprocessing


def draws(number: int) -> tf.Tensor:
    return uniform_draws(tf.constant([[number, 1]], tf.int64), 10)[0]


def standardised(image: np.ndarray) -> np.ndarray:
    return (image - image.mean()) / max(image.std(), 1 / np.sqrt(image.size))


def test_training_is_that_of_a_numpy_twin() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    preprocessing = CifarnetPreprocessing(is_training=True)
    assert preprocessing.window(tf.constant(32), tf.constant(32), draws(0)).numpy().tolist() == [0, 0, 32, 32]
    padded = np.pad(picture, [(4, 4), (4, 4), (0, 0)]).astype(float)
    corners = set()
    for number in range(12):
        down, right, light, contrast, flips = (float(u) for u in draws(number)[:5])
        flip = flips < 0.5
        y, x = int(down * 9), int(right * 9)
        corners.add((y, x))
        image = padded[y : y + 32, x : x + 32]
        image = image[:, ::-1] if flip else image
        image = image + (2 * light - 1) * 63
        mean = image.mean(axis=(0, 1))
        image = (image - mean) * (0.2 + contrast * 1.6) + mean
        found = preprocessing.finish(tf.constant(picture), draws(number)).numpy()
        np.testing.assert_allclose(found, standardised(image), atol=2e-4)
    assert len(corners) > 6


def test_every_step_can_be_turned_off() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    preprocessing = CifarnetPreprocessing(
        is_training=True, padding=0, flip=False, brightness=0, contrast_min=1, contrast_max=1
    )
    for number in range(3):
        found = preprocessing.finish(tf.constant(picture), draws(number))
        np.testing.assert_allclose(found, standardised(picture.astype(float)), atol=1e-4)


def test_a_small_picture_is_padded_to_size_and_a_large_one_cropped() -> None:
    preprocessing = CifarnetPreprocessing(16, is_training=True, padding=1, flip=False, brightness=0, contrast_min=1)
    white = tf.fill([4, 40, 3], tf.constant(255, tf.uint8))
    image = preprocessing.finish(white, draws(0)).numpy()
    rows = (image[:, 8, 0] > 0).tolist()
    assert rows == [False] * 6 + [True] * 4 + [False] * 6


def test_evaluation_cuts_or_pads_and_standardises() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (40, 20, 3), np.uint8)
    preprocessing = CifarnetPreprocessing(is_training=False)
    y, x, height, width = preprocessing.window(tf.constant(40), tf.constant(20), draws(0)).numpy()
    found = preprocessing.finish(tf.constant(picture[y : y + height, x : x + width]), draws(0))
    expected = standardised(tf.image.resize_with_crop_or_pad(picture, 32, 32).numpy().astype(float))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"padding": -1}, r"preprocessing\.padding=-1 is refused: it must not be below 0"),
        ({"brightness": -2.0}, r"preprocessing\.brightness=-2\.0 is refused"),
        ({"contrast_min": -0.1}, r"preprocessing\.contrast_min=-0\.1 is refused"),
        ({"contrast_max": 0.1}, r"contrast_max=0\.1 .* must not be below preprocessing\.contrast_min=0\.2"),
    ],
)
def test_values_out_of_range_are_refused(values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        CifarnetPreprocessing(is_training=True, **values)
