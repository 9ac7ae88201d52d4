"""Steps of one's own: each kind by itself and in both engines, and what a wrong one gets told."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from scripts.examples import steps as examples
from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import Feed, PipelineSettings, build_dataset
from slimexp.pipeline.engines import NativeEngine, TensorFlowEngine, choose_engine
from slimexp.pipeline.native import build
from slimexp.pipeline.native.build_op import build_op, main
from slimexp.pipeline.preprocessing import CifarnetPreprocessing, PlainPreprocessing, VggPreprocessing
from slimexp.pipeline.steps import Step, StepError, SteppedPreprocessing, load_op

KEY = "preprocessing.steps[0]"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The example's C++ op, built."""
    if not build.compiler():
        pytest.skip("there is no C++ compiler to build the example's op with")
    target = tmp_path_factory.mktemp("ops") / "fade.so"
    return build_op([repository / "scripts" / "examples" / "fade_op.cc"], target)


def numpy_step(function: object, **options: object) -> Step:
    return Step(KEY, function, is_numpy=True, **options)


def stepped(*steps: Step, size_px: int = 8) -> SteppedPreprocessing:
    return SteppedPreprocessing(PlainPreprocessing(size_px), steps)


def settings(**values: object) -> PipelineSettings:
    return PipelineSettings(**{"batch_size": 4, "readers": 2, "threads": 2, **values})


def digests(split: Split, preprocessing: object, count: int = 8, start: int = 0, **values: object) -> list[str]:
    dataset = build_dataset(
        split,
        preprocessing=preprocessing,
        settings=settings(**values),
        seed=3,
        is_training=True,
        start_position=start,
    )
    return [hashlib.sha256(batch["image"].numpy().tobytes()).hexdigest() for batch in dataset.take(count)]


def test_the_four_examples_do_the_same(library: Path) -> None:
    image = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.5]]], np.float32)
    draws = np.array([0.5], np.float32)
    # The grey value of red is 0.299; half of 0.8 of the way there.
    expected = [[[1 - 0.4 * 0.701, 0.4 * 0.299, 0.4 * 0.299], [0.5, 0.5, 0.5]]]
    for step in (
        Step(KEY, examples.fade, {"most": 0.8}, num_draws=1),
        numpy_step(examples.fade_numpy, keys={"most": 0.8}, num_draws=1),
        numpy_step(examples.fade_numpy_loop, keys={"most": 0.8}, num_draws=1),
        Step(KEY, load_op(KEY, str(library), "fade"), {"most": 0.8}, num_draws=1),
        Step(KEY, load_op(KEY, str(library), "Fade"), {"most": 0.8}, num_draws=1),
    ):
        np.testing.assert_allclose(step(tf.constant(image), tf.constant(draws)), expected, atol=1e-6)
        traced = tf.function(step)(tf.constant(image), tf.constant(draws))
        np.testing.assert_allclose(traced, expected, atol=1e-6)


@pytest.mark.parametrize("decoder", ["tensorflow", "native"])
def test_the_stream_is_the_same_for_any_thread_counts_and_goes_on_anywhere(split: Split, decoder: str) -> None:
    if decoder == "native" and build.ensure()[0] is None:
        pytest.skip(build.ensure()[1])
    preprocessing = stepped(
        Step(KEY, examples.fade, {"most": 1.0}, num_draws=1),
        numpy_step(examples.fade_numpy, keys={"most": 0.5}, num_draws=1),
    )
    assert preprocessing.num_draws == 2
    whole = digests(split, preprocessing, readers=1, threads=1, decoder=decoder)
    assert len(set(whole)) == 8
    assert digests(split, preprocessing, 3, start=20, readers=8, threads=8, decoder=decoder) == whole[5:]


def test_both_engines_give_steps_the_same_image_and_draws(split: Split) -> None:
    if build.ensure()[0] is None:
        pytest.skip(build.ensure()[1])
    inner = VggPreprocessing(24, is_training=True)
    images = []
    for preprocessing, decoder, kind in (
        (SteppedPreprocessing(inner, [ADD_DRAW]), "tensorflow", TensorFlowEngine),
        (SteppedPreprocessing(inner, [ADD_DRAW]), "auto", NativeEngine),
        (inner, "auto", NativeEngine),
    ):
        chosen = settings(decoder=decoder)
        engine = choose_engine(preprocessing, chosen)
        assert isinstance(engine, kind)
        (batch,) = build_dataset(
            split, preprocessing=preprocessing, settings=chosen, seed=3, is_training=True, engine=engine
        ).take(1)
        images.append(batch["image"].numpy())
    by_tensorflow, native, bare = images
    added = native - bare
    # One number an image, each another, and in the other engine the same.
    assert np.ptp(added, axis=(1, 2, 3)).max() < 1e-3
    assert len(set(added[:, 0, 0, 0].round(3))) == 4
    assert np.median(np.abs(native - by_tensorflow)) < 1


def add_draw(image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    return image + 100 * draws[1]


ADD_DRAW = Step(KEY, add_draw, num_draws=2)


def test_evaluation_fills_its_last_batch_behind_the_native_op(split: Split) -> None:
    dataset = build_dataset(
        split, preprocessing=stepped(DOUBLE), settings=settings(batch_size=10), seed=0, is_training=False
    )
    batches = list(dataset)
    assert [batch["valid"].numpy().sum() for batch in batches] == [10, 10, 1]
    plain = build_dataset(
        split, preprocessing=PlainPreprocessing(8), settings=settings(batch_size=10), seed=0, is_training=False
    )
    for batch, other in zip(batches, plain, strict=True):
        np.testing.assert_array_equal(batch["image"], 2 * other["image"])


def test_the_monitor_sees_steps_behind_the_native_op(split: Split) -> None:
    with Feed(split, preprocessing=stepped(SLOW), settings=settings(), seed=0, is_training=True) as feed:
        for _ in range(12):
            next(feed)
        stats = feed.monitor.total()
    assert stats.stage("preprocess").busy_frac > 0.6  # It sleeps, and all the pipeline with it.


def double(image: tf.Tensor) -> tf.Tensor:
    return 2 * image


def slow(image: np.ndarray) -> np.ndarray:
    import time

    time.sleep(0.03)
    return image


DOUBLE, SLOW = Step(KEY, double), Step(KEY, slow, is_numpy=True)


def test_a_step_before_the_preprocessing_sees_the_decoded_picture(split: Split) -> None:
    def crop(image: np.ndarray, border: int) -> np.ndarray:
        assert image.dtype == np.uint8
        image[:] = 255 - image  # Its own copy.
        return image[border:-border, border:-border]

    early = numpy_step(crop, keys={"border": 2}, at="decoded")
    negative = stepped(early, DOUBLE)
    engine = choose_engine(negative, settings())
    assert isinstance(engine, TensorFlowEngine)
    with pytest.raises(UserError, match=r"decoder=native is refused: preprocessing\.steps\[0\].*has at=decoded"):
        choose_engine(negative, settings(decoder="native"))
    whole = SteppedPreprocessing(CifarnetPreprocessing(8, is_training=True), [early])
    for preprocessing in (negative, whole):
        (batch,) = build_dataset(
            split, preprocessing=preprocessing, settings=settings(), seed=0, is_training=True
        ).take(1)
        assert batch["image"].shape == [4, 8, 8, 3]
    picture = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    finished = negative.finish(tf.constant(picture), tf.zeros([1]))
    expected = 2 * (255.0 - picture[2:-2, 2:-2] - 127.5) / 127.5
    np.testing.assert_allclose(finished, expected, atol=1e-5)


def test_autograph_turns_python_into_tensorflow_in_both_engines(split: Split) -> None:
    def brighten(image: tf.Tensor) -> tf.Tensor:
        if tf.reduce_mean(image) < 0:
            image = -image
        return image

    (batch,) = build_dataset(
        split, preprocessing=stepped(Step(KEY, brighten)), settings=settings(), seed=0, is_training=True
    ).take(1)
    assert (batch["image"].numpy().mean(axis=(1, 2, 3)) >= 0).all()


def several(image: np.ndarray, strength: float, draws: np.ndarray) -> np.ndarray:
    return image


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": {"strenght": 1}, "num_draws": 1}, r"cannot be called so: .*strength.* it takes \(image"),
        ({"keys": {}, "num_draws": 1}, r"missing a required argument: 'strength'"),
        ({"keys": {"strength": 1}}, r"takes draws: say how many .* num_draws"),
    ],
)
def test_arguments_that_a_function_does_not_take_are_refused(options: dict, message: str) -> None:
    with pytest.raises(StepError, match=r"^preprocessing\.steps\[0\] \(.*several\) .*" + message):
        numpy_step(several, **options)


def test_draws_without_a_parameter_are_refused() -> None:
    with pytest.raises(StepError, match=r"has num_draws=2, but no parameter `draws`"):
        Step(KEY, double, num_draws=2)


def raises(image: np.ndarray) -> np.ndarray:
    raise KeyError("palette")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda: numpy_step(lambda image: image * np.ones(3)), r"returns float64 \[8, 8, 3\]; it must return float32"),
        (
            lambda: numpy_step(lambda image: image[1:]),
            r"returns float32 \(7, 8, 3\); it must .* \[8, 8, 3\], as it gets",
        ),
        (lambda: numpy_step(lambda image: image.tolist()), r"returns a list; it must return a NumPy array"),
        (lambda: numpy_step(lambda image: image[:, :, :1], at="decoded"), r"must return uint8 \[height, width, 3\]"),
        (lambda: numpy_step(lambda image: image[:0], at="decoded"), r"must return uint8 \[height, width, 3\]"),
        (lambda: numpy_step(raises), r"fails: KeyError: 'palette'\."),
        (lambda: Step(KEY, lambda image: tf.cast(image, tf.uint8)), r"returns uint8 \(8, 8, 3\); .* with tf\.cast"),
        (lambda: Step(KEY, lambda image: image[..., :1]), r"returns float32 \(8, 8, 1\); it must return float32 \[8,"),
        (lambda: Step(KEY, lambda image: [image, image]), r"returns a list; it must return one image tensor"),
        (lambda: Step(KEY, lambda image: image + tf.zeros([5, 1, 1])), r"fails: ValueError: Dimensions must be equal"),
        (lambda: Step(KEY, lambda image: tf.ensure_shape(image, [9, 8, 3])), r"fails: ValueError"),
        (lambda: Step(KEY, lambda image: image.numpy()), r"fails: .*numpy"),
        (lambda: Step(KEY, random_tensor), r"returns different images for the same one.*draws"),
        (lambda: numpy_step(random_array), r"returns different images for the same one"),
    ],
)
def test_what_a_function_gives_is_tried_before_the_start(step: object, message: str) -> None:
    with pytest.raises(StepError, match=r"(?s)^preprocessing\.steps\[0\] \(.*\) .*" + message):
        stepped(step())


def random_tensor(image: tf.Tensor) -> tf.Tensor:
    return image + tf.random.uniform([])


def random_array(image: np.ndarray) -> np.ndarray:
    return image + np.float32(np.random.random())


def test_a_picture_that_the_preprocessing_cannot_take_is_the_steps_fault() -> None:
    class Exact(PlainPreprocessing):
        def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
            return super().finish(tf.ensure_shape(image, [16, 16, 3]), draws)

    cut = numpy_step(lambda image: image[1:], at="decoded")
    with pytest.raises(StepError, match=r"16 x 16 into one of 15 x 16, which Exact cannot take"):
        SteppedPreprocessing(Exact(8), [cut])


@pytest.mark.parametrize("decoder", ["tensorflow", "auto"])
def test_an_image_that_a_step_fails_on_is_named(split: Split, decoder: str) -> None:
    def picky(image: np.ndarray) -> np.ndarray:
        if np.ptp(image) < 0.1:
            raise ValueError("all of it is one colour")
        return image

    with tf.io.gfile.GFile(split.path(4) + ".plain.png", "wb") as file:
        file.write(tf.io.encode_png(np.full([9, 9, 3], 80, np.uint8)).numpy())
    paths = [path + b".plain.png" if number == 4 else path for number, path in enumerate(split.paths)]
    broken = dataclasses.replace(split, paths=paths)
    chosen = settings(decoder=decoder, shuffle=False)
    with Feed(broken, preprocessing=stepped(numpy_step(picky)), settings=chosen, seed=0, is_training=True) as feed:
        next(feed)
        with pytest.raises(UserError) as caught:
            next(feed)
    assert re.fullmatch(
        r"preprocessing\.steps\[0\] \(.*picky\) fails: ValueError: all of it is one colour\. "
        r"The image was train\.txt:5: '.*/4\.jpg\.plain\.png', whose file is sound\.",
        str(caught.value),
    )


def test_libraries_that_cannot_be_used(library: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"steps\[0\]\.library=none\.so: there is no such file\. \./scripts/build_op"):
        load_op(KEY, "none.so", "fade")
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(UserError, match=r"text\.so: cannot be loaded: .*It must be built for TensorFlow 2\."):
        load_op(KEY, str(text), "fade")
    with pytest.raises(UserError, match=r"steps\[0\]\.op=blur: .*fade\.so has no such op; it has fade\."):
        load_op(KEY, str(library), "blur")
    fade = load_op(KEY, str(library), "fade")
    with pytest.raises(StepError, match=r"cannot be called so: got an unexpected keyword argument 'least'"):
        Step(KEY, fade, {"least": 1.0}, num_draws=1, name=f"fade of {library}")
    with pytest.raises(StepError, match=r"(?s)fails: .*most=3 must lie in 0\.\.1"):
        stepped(Step(KEY, fade, {"most": 3.0}, num_draws=1))


def test_what_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(UserError, match=r"none\.cc: there is no such file"):
        build_op([tmp_path / "none.cc"])
    source = tmp_path / "broken.cc"
    source.write_text("int main( {\n")
    if build.compiler():
        assert main([str(source)]) == 1
        assert re.search(r"build_op: error: .*broken\.cc: the compiler failed \(.*error", capsys.readouterr().err)
        assert list(tmp_path.iterdir()) == [source]
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match=r"There is no C\+\+ compiler .* apt-get install g\+\+"):
        build_op([source])
