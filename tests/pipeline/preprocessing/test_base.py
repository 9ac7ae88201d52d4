from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline import preprocessing as package
from slimexp.pipeline.preprocessing import base

DRAWS = np.random.default_rng(1).random(10, np.float32)

ALL = {
    "vgg": lambda training: package.VggPreprocessing(24, is_training=training),
    "inception": lambda training: package.InceptionPreprocessing(24, is_training=training, color="full"),
    "lenet": lambda training: package.LenetPreprocessing(24, is_training=training),
    "cifarnet": lambda training: package.CifarnetPreprocessing(24, is_training=training),
    "plain": lambda training: package.PlainPreprocessing(24, is_training=training),
}


def run(preprocessing: package.Preprocessing, picture: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    shape = tf.shape(picture)
    window = preprocessing.window(shape[0], shape[1], draws)
    part = tf.slice(picture, [window[0], window[1], 0], [window[2], window[3], 3])
    return window, preprocessing.finish(part, draws)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", list(ALL))
def test_any_picture_size_eagerly_and_inside_a_dataset(name: str, training: bool) -> None:
    preprocessing = ALL[name](training)
    shapes = [(1, 1), (1, 50), (50, 1), (2, 3), (23, 25), (24, 24), (30, 20), (90, 60), (7, 300)]
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes]

    def generate():  # type: ignore[no-untyped-def]
        yield from pictures

    dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([None, None, 3], tf.uint8)).map(
        lambda picture: run(preprocessing, picture, DRAWS)
    )
    assert dataset.element_spec[1] == tf.TensorSpec([24, 24, 3], tf.float32)
    for picture, (window, image) in zip(pictures, dataset, strict=True):
        y, x, height, width = window.numpy()
        assert min(y, x) >= 0
        assert min(height, width) >= 1
        assert y + height <= picture.shape[0]
        assert x + width <= picture.shape[1]
        eager_window, eager_image = run(preprocessing, tf.constant(picture), DRAWS)
        assert (eager_window.numpy() == window.numpy()).all()
        np.testing.assert_allclose(eager_image, image, atol=2e-5 * max(1, np.abs(image).max()))
        assert np.isfinite(image).all()


@pytest.mark.parametrize("name", ["vgg", "inception", "cifarnet"])
def test_training_depends_on_the_seed_alone_and_evaluation_not_even_on_it(name: str) -> None:
    picture = tf.constant(np.random.default_rng(0).integers(0, 256, (60, 50, 3), np.uint8))
    other = np.random.default_rng(2).random(10, np.float32)
    training, evaluation = ALL[name](True), ALL[name](False)
    first, again, differs = (run(training, picture, seed)[1].numpy() for seed in (DRAWS, DRAWS, other))
    assert (first == again).all()
    assert (first != differs).any()
    assert (run(evaluation, picture, DRAWS)[1].numpy() == run(evaluation, picture, other)[1].numpy()).all()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["vgg", "inception", "plain"])
def test_many_pictures_at_once_are_as_one_by_one(name: str, training: bool) -> None:
    preprocessing = ALL[name](training)
    assert isinstance(preprocessing, package.WindowPreprocessing)
    sizes = np.array([(1, 1), (1, 50), (50, 1), (23, 25), (90, 60), (7, 300), (2000, 20), (1200, 1600)], np.int32)
    draws = np.random.default_rng(0).random((len(sizes), max(preprocessing.num_draws, 1)), np.float32)
    height, width = tf.constant(sizes[:, 0]), tf.constant(sizes[:, 1])
    one_by_one = [preprocessing.window(*size, row) for *size, row in zip(height, width, draws, strict=True)]
    assert preprocessing.window(height, width, draws).numpy().tolist() == np.array(one_by_one).tolist()
    for method in (preprocessing.flips, preprocessing.colors):
        together = method(tf.constant(draws))
        assert (together is None) == (method(tf.constant(draws[0])) is None)
        if together is not None:
            assert (together.numpy() == np.array([method(tf.constant(row)) for row in draws])).all()


def test_integers_cover_their_range_evenly() -> None:
    uniforms = (np.arange(400, dtype=np.float32) + 0.5) / 400
    drawn = base.draw_integer(tf.constant(uniforms), 3, 6).numpy()
    assert np.bincount(drawn).tolist() == [0, 0, 0, 100, 100, 100, 100]
    just_below_one = tf.constant(np.nextafter(np.float32(1), np.float32(0)))
    for high in (0, 3, 8190, 2**24 - 1, 2**30):
        assert high - 64 <= int(base.draw_integer(just_below_one, 0, high)) <= high


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(10, 7, [3, 1, 4, 4]), (3, 9, [0, 2, 3, 4]), (2, 2, [0, 0, 2, 2])]
)
def test_centre_window(height: int, width: int, expected: list[int]) -> None:
    window = base.centre_window(tf.constant(height), tf.constant(width), 4)
    assert window.numpy().tolist() == expected


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (6, 6), (5, 5), (3, 7), (1, 1)])
def test_crop_or_pad_is_that_of_tensorflow(shape: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(1, 256, (*shape, 3), np.uint8)
    expected = tf.image.resize_with_crop_or_pad(picture, 6, 6).numpy()
    assert (base.crop_or_pad(tf.constant(picture), 6).numpy() == expected).all()


def test_bilinear_is_that_of_a_numpy_twin() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (7, 11, 3), np.uint8)

    def weights(length: int, size: int) -> np.ndarray:
        centres = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        return np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(length)))

    expected = np.einsum("ai,bj,ijc->abc", weights(7, 5), weights(11, 5), picture)
    found = base.resize_bilinear(tf.constant(picture), 5).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-3)
    np.testing.assert_allclose(found, tf.image.resize(picture, [5, 5]), atol=1e-3)
    # Mirroring before or after comes to the same.
    np.testing.assert_allclose(base.resize_bilinear(tf.constant(picture[:, ::-1]), 5), expected[:, ::-1], atol=1e-3)


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.image_size=0 is refused: it must be at least 1 pixel"):
        package.PlainPreprocessing(0)
