from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import PipelineSettings, build_dataset, engines
from slimexp.pipeline.native import build, ops
from slimexp.pipeline.preprocessing import (
    CifarnetPreprocessing,
    InceptionPreprocessing,
    PlainPreprocessing,
    VggPreprocessing,
)

needs_native = pytest.mark.skipif(not ops.available(), reason="the native op has not been built (scripts/build_ops)")

# The greatest mean difference, in grey levels, between the two engines' images at DCT scale 1.
_GREY_LEVELS = 1.0


@pytest.fixture(scope="module")
def mixed(split: Split, photo: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Split:
    """The JPEGs of `split` with some that the native op leaves: a PNG, a CMYK JPEG, a GIF."""
    folder = tmp_path_factory.mktemp("mixed")
    image = Image.fromarray(photo).resize((90, 70))
    paths = list(split.paths)
    for number, (kind, converted) in enumerate({"png": image, "jpg": image.convert("CMYK"), "gif": image}.items()):
        path = folder / f"{number}.{kind}"
        converted.save(path)
        paths[3 + 5 * number] = str(path).encode()
    return Split("train", paths, split.labels, split.source, split.lines)


def batches(split: Split, preprocessing: Any, decoder: str, *, is_training: bool = True, **values: Any) -> list[dict]:
    settings = PipelineSettings(batch_size=7, readers=2, threads=2, decoder=decoder, **values)
    dataset = build_dataset(split, preprocessing=preprocessing, settings=settings, seed=5, is_training=is_training)
    return list(dataset.take(4).as_numpy_iterator())


@needs_native
@pytest.mark.parametrize("is_training", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("make", "grey_levels"),
    [
        (lambda training: VggPreprocessing(32, is_training=training), _GREY_LEVELS),
        pytest.param(
            lambda training: InceptionPreprocessing(32, is_training=training),
            _GREY_LEVELS * 2 / 255,
            marks=pytest.mark.slow,
        ),
        (lambda training: InceptionPreprocessing(32, is_training=training, color="full"), _GREY_LEVELS * 2 / 255),
        (lambda training: PlainPreprocessing(32, is_training=training), _GREY_LEVELS / 127.5),
    ],
    ids=["vgg", "inception fast", "inception full", "none"],
)
def test_both_engines_make_the_same(
    mixed: Split, make: Callable[[bool], Any], grey_levels: float, is_training: bool
) -> None:
    preprocessing = make(is_training)
    pairs = zip(
        batches(mixed, preprocessing, "native", is_training=is_training),
        batches(mixed, preprocessing, "tensorflow", is_training=is_training),
        strict=True,
    )
    for native, theirs in pairs:
        for name in ("index", "label", "valid"):
            assert (native[name] == theirs[name]).all()
        differences = np.abs(native["image"] - theirs["image"]).mean(axis=(1, 2, 3))
        # Pictures at twice the size or more are decoded at half of it, which differs more.
        assert np.median(differences) < grey_levels
        assert differences.max() < 12 * grey_levels


@needs_native
def test_auto_is_the_native_one_where_it_does_what_is_needed() -> None:
    settings = PipelineSettings(batch_size=4)
    chosen = [
        type(engines.choose_engine(preprocessing, settings))
        for preprocessing in (VggPreprocessing(24, is_training=True), CifarnetPreprocessing(24, is_training=True))
    ]
    assert chosen == [engines.NativeEngine, engines.TensorFlowEngine]
    unscaled = PipelineSettings(batch_size=4, scaled_decode=False)
    engine = engines.choose_engine(VggPreprocessing(24, is_training=True), unscaled)
    assert isinstance(engine, engines.TensorFlowEngine)


class Grey(VggPreprocessing):
    """Does more than the numbers say."""

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(super().finish(image, draws)))


@pytest.mark.parametrize(
    ("preprocessing", "values", "message"),
    [
        (
            CifarnetPreprocessing(24, is_training=True),
            {},
            "pipeline.decoder=native is refused: .* CifarnetPreprocessing is none",
        ),
        (Grey(24, is_training=True), {}, "Grey is none"),
        (VggPreprocessing(24, is_training=True), {"scaled_decode": False}, "pipeline.scaled_decode=false"),
    ],
)
def test_asking_for_the_native_op_in_vain_is_refused(preprocessing: Any, values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        engines.choose_engine(preprocessing, PipelineSettings(decoder="native", **values))


def test_without_a_compiler_auto_is_tensorflow_and_native_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    preprocessing = VggPreprocessing(24, is_training=True)
    assert build.find()[0] is None
    engine = engines.choose_engine(preprocessing, PipelineSettings(decoder="auto"))
    assert isinstance(engine, engines.TensorFlowEngine)
    with pytest.raises(UserError, match=r"(?s)pipeline\.decoder=native is refused: .*compiler"):
        engines.choose_engine(preprocessing, PipelineSettings(decoder="native"))
