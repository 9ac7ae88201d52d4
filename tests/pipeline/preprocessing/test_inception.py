from __future__ import annotations

import enum

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.order import uniform_draws
from slimexp.pipeline.preprocessing.inception import InceptionPreprocessing

HEIGHT, WIDTH = 400, 600


def draws(number: int) -> tf.Tensor:
    return uniform_draws(tf.constant([[number, 1]], tf.int64), 10)[0]


def windows(preprocessing: InceptionPreprocessing, height: int, width: int, count: int) -> np.ndarray:
    dataset = tf.data.Dataset.range(count).map(
        lambda number: preprocessing.window(
            tf.constant(height), tf.constant(width), uniform_draws(tf.stack([number, 1])[tf.newaxis], 10)[0]
        )
    )
    return np.array(list(dataset.as_numpy_iterator()))


def test_boxes_are_distributed_like_those_of_the_sampling_op() -> None:
    count = 3000
    y, x, height, width = windows(InceptionPreprocessing(is_training=True), HEIGHT, WIDTH, count).T

    def sample(number: tf.Tensor) -> tf.Tensor:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            [HEIGHT, WIDTH, 3],
            [[[0.0, 0.0, 1.0, 1.0]]],
            tf.stack([number, 1]),
            min_object_covered=0.0,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(0.05, 1.0),
        )
        return tf.concat([begin[:2], size[:2]], 0)

    theirs = np.array(list(tf.data.Dataset.range(count).map(sample).as_numpy_iterator()))
    area, ratio = height * width / (HEIGHT * WIDTH), width / height
    assert 0.049 <= area.min() < 0.08
    assert 0.7 < area.max() <= 1
    assert 0.74 <= ratio.min() < 0.76
    assert 1.32 < ratio.max() <= 1.34
    for ours, other in zip((y, x, height, width), theirs.T, strict=True):
        spread = other.std()
        assert abs(ours.mean() - other.mean()) < 0.08 * spread
        assert abs(ours.std() - spread) < 0.08 * spread
        assert np.abs(np.quantile(ours, [0.1, 0.5, 0.9]) - np.quantile(other, [0.1, 0.5, 0.9])).max() < 0.15 * spread


def test_an_extreme_picture_keeps_the_least_area() -> None:
    # Ratios under 0.05 * 1000 / 40 = 1.25 leave no room for a twentieth of a picture this tall.
    *_, height, width = windows(InceptionPreprocessing(is_training=True), 1000, 40, 50).T
    assert (width / height <= 0.81).all()
    assert (height * width >= 0.049 * 40_000).all()
    assert windows(InceptionPreprocessing(is_training=True), 2000, 20, 2).tolist() == [[0, 0, 2000, 20]] * 2


def test_evaluation_is_the_central_crop_resized(photo: np.ndarray) -> None:
    preprocessing = InceptionPreprocessing(75, is_training=False)
    y, x, height, width = preprocessing.window(tf.constant(427), tf.constant(640), draws(0)).numpy()
    crop = tf.image.central_crop(photo, 0.875)
    assert (photo[y : y + height, x : x + width] == crop.numpy()).all()
    expected = (tf.image.resize(tf.image.convert_image_dtype(crop, tf.float32), [75, 75]) - 0.5) * 2
    found = preprocessing.finish(tf.constant(crop), draws(0))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["none", "fast", "full"])
def test_colours_are_those_of_a_twin(photo: np.ndarray, mode: str) -> None:
    part = photo[100:180, 200:290]
    preprocessing = InceptionPreprocessing(32, is_training=True, color=mode, flip=False)
    orders = {
        "none": [""],
        "fast": ["bs", "sb"],
        "full": ["bshc", "sbch", "chbs", "hscb"],
    }[mode]
    steps = {
        "b": lambda image, u: tf.image.adjust_brightness(image, (2 * u - 1) * 32 / 255),
        "s": lambda image, u: tf.image.adjust_saturation(image, 0.5 + u),
        "h": lambda image, u: tf.image.adjust_hue(image, (2 * u - 1) * 0.2),
        "c": lambda image, u: tf.image.adjust_contrast(image, 0.5 + u),
    }
    seen = set()
    for number in range(16):
        uniforms = [float(u) for u in draws(number)[5:]]
        order = orders[int(uniforms[4] * len(orders))]
        seen.add(order)
        image = tf.image.resize(tf.image.convert_image_dtype(part, tf.float32), [32, 32])
        for step in order:
            image = steps[step](image, uniforms["bshc".index(step)])
        expected = (tf.clip_by_value(image, 0, 1) - 0.5) * 2
        found = preprocessing.finish(tf.constant(part), draws(number)).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert found.min() >= -1
        assert found.max() <= 1
    assert seen == set(orders)


def test_half_are_mirrored(photo: np.ndarray) -> None:
    part = tf.constant(photo[100:132, 200:232])
    plain = InceptionPreprocessing(32, is_training=True, color="none", flip=False).finish(part, draws(0)).numpy()
    preprocessing = InceptionPreprocessing(32, is_training=True, color="none")
    flips = 0
    for number in range(200):
        image = preprocessing.finish(part, draws(number)).numpy()
        is_flipped = not np.allclose(image, plain, atol=1e-5)
        np.testing.assert_allclose(image[:, ::-1] if is_flipped else image, plain, atol=1e-5)
        flips += is_flipped
    assert 75 < flips < 125


class Mode(enum.Enum):
    none = "none"


def test_the_colour_mode_may_be_an_enum() -> None:
    assert InceptionPreprocessing(is_training=True, color=Mode.none).color == "none"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"area_min": 0.0}, r"preprocessing\.area_min=0\.0 is refused: it must be above 0"),
        ({"area_max": 0.01}, r"preprocessing\.area_max=0\.01 .* not below preprocessing\.area_min=0\.05"),
        ({"area_max": 1.5}, r"preprocessing\.area_max=1\.5 is refused"),
        ({"ratio_min": 0.0}, r"preprocessing\.ratio_min=0\.0 is refused: it must be above 0"),
        ({"ratio_max": 0.5}, r"preprocessing\.ratio_max=0\.5 .* not be below preprocessing\.ratio_min=0\.75"),
        ({"color": "loud"}, r"preprocessing\.color=loud is refused: it must be none, fast or full"),
        ({"central_fraction": 1.1}, r"preprocessing\.central_fraction=1\.1 is refused"),
    ],
)
def test_values_out_of_range_are_refused(values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        InceptionPreprocessing(is_training=True, **values)
