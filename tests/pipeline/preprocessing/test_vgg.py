from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.order import uniform_draws
from slimexp.pipeline.preprocessing.vgg import VggPreprocessing

MEANS = (123.68, 116.78, 103.94)


def draws(number: int) -> tf.Tensor:
    return uniform_draws(tf.constant([[number, 1]], tf.int64), 10)[0]


def windows(preprocessing: VggPreprocessing, height: int, width: int, count: int) -> np.ndarray:
    size = tf.constant(height), tf.constant(width)
    return np.array([preprocessing.window(*size, draws(number)) for number in range(count)])


def test_evaluation_is_close_to_resize_then_crop(photo: np.ndarray) -> None:
    preprocessing = VggPreprocessing(is_training=False)
    y, x, height, width = preprocessing.window(tf.constant(427), tf.constant(640), draws(0)).numpy()
    # 427 * 224 / 256 = 373.6; the centre.
    assert [y, x, height, width] == [26, 133, 374, 374]
    image = preprocessing.finish(tf.constant(photo[y : y + height, x : x + width]), draws(0)).numpy()
    resized = tf.image.resize(photo, [256, 384]).numpy()  # 640 * 256 / 427 = 383.7
    expected = resized[16:240, 80:304] - MEANS
    # Off by less than one pixel of the original: no more than the photo's own difference over one pixel.
    one_pixel = np.abs(np.diff(photo.astype(float), axis=1)).mean()
    assert np.abs(image - expected).mean() < one_pixel
    # With a border that falls on whole pixels there is only the rounding of float32.
    square = photo[:256, :256]
    exact = tf.image.resize(square, [256, 256]).numpy()[16:240, 16:240] - MEANS
    y, x, height, width = preprocessing.window(tf.constant(256), tf.constant(256), draws(0)).numpy()
    found = preprocessing.finish(tf.constant(square[y : y + height, x : x + width]), draws(0))
    np.testing.assert_allclose(found, exact, atol=1e-3)


def test_training_draws_scale_and_place(photo: np.ndarray) -> None:
    drawn = windows(VggPreprocessing(is_training=True), 400, 600, 400)
    y, x, height, width = drawn.T
    assert (height == width).all()
    # 400 * 224 / 512 = 175 up to 400 * 224 / 256 = 350.
    assert 175 <= height.min() <= 178
    assert 345 <= height.max() <= 350
    sides = 400 * 224 / height
    assert abs(sides.mean() - 384) < 12
    assert 0 == y.min() < 20 < y.max()
    share = x / (600 - width)
    assert share.min() < 0.02
    assert share.max() > 0.98
    assert abs(share.mean() - 0.5) < 0.05


def test_other_sizes_see_the_same_share() -> None:
    small = windows(VggPreprocessing(28, is_training=True), 400, 600, 20)
    assert (small == windows(VggPreprocessing(224, is_training=True), 400, 600, 20)).all()
    assert windows(VggPreprocessing(28, is_training=False), 28, 28, 1).tolist() == [[2, 2, 24, 24]]


def test_finish_is_resize_flip_and_mean(photo: np.ndarray) -> None:
    part = photo[100:150, 200:250]
    plain = tf.image.resize(part, [28, 28]).numpy() - MEANS
    flipped = plain[:, ::-1]
    preprocessing = VggPreprocessing(28, is_training=True)
    seen = set()
    for number in range(20):
        image = preprocessing.finish(tf.constant(part), draws(number)).numpy()
        is_flipped = bool(np.abs(image - flipped).max() < np.abs(image - plain).max())
        np.testing.assert_allclose(image, flipped if is_flipped else plain, atol=1e-3)
        seen.add(is_flipped)
    assert seen == {True, False}
    upright = VggPreprocessing(28, is_training=True, flip=False)
    for number in range(20):
        np.testing.assert_allclose(upright.finish(tf.constant(part), draws(number)), plain, atol=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"resize_side_min": 223}, r"preprocessing\.resize_side_min=223 is refused: it must be at least 224"),
        ({"eval_resize_side": 100}, r"preprocessing\.eval_resize_side=100 is refused"),
        ({"resize_side_max": 255}, r"resize_side_max=255 .* must not be below preprocessing\.resize_side_min=256"),
        ({"means": (1.0, 2.0)}, r"preprocessing\.means=\[1\.0, 2\.0\] is refused: it must be three numbers"),
    ],
)
def test_values_out_of_range_are_refused(values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        VggPreprocessing(is_training=True, **values)


def test_the_means_and_sides_are_values() -> None:
    preprocessing = VggPreprocessing(
        8, is_training=True, resize_side_min=300, resize_side_max=300, means=[1, 2, 3], flip=False
    )
    assert set(windows(preprocessing, 300, 300, 10)[:, 2]) == {224}
    image = preprocessing.finish(tf.fill([5, 5, 3], tf.constant(9, tf.uint8)), draws(0)).numpy()
    assert image[0, 0].tolist() == [8, 7, 6]


def test_a_least_area_bounds_the_scale() -> None:
    assert VggPreprocessing(is_training=True, area_min=0.5).resize_side_max == 316
    assert VggPreprocessing(is_training=True, area_min=0.05).resize_side_max == 512
    assert VggPreprocessing(is_training=True, area_min=0.9).resize_side_max == 256  # Never below the least side.
    with pytest.raises(UserError, match=r"preprocessing\.area_min=1\.5"):
        VggPreprocessing(is_training=True, area_min=1.5)
