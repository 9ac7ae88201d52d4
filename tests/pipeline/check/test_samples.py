"""Images as the network gets them, and the sheet of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slimexp.dataset.split import Split
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.check.contact_sheet import draw_contact_sheet
from slimexp.pipeline.check.samples import Sample, Shower, take_samples
from slimexp.pipeline.preprocessing import (
    CifarnetPreprocessing,
    InceptionPreprocessing,
    LenetPreprocessing,
    PlainPreprocessing,
    VggPreprocessing,
)
from tests.pipeline.test_records import COUNTS, load
from tests.records import write_shards

SETTINGS = PipelineSettings(batch_size=4, threads=2, readers=2, decoder="tensorflow")


@pytest.mark.parametrize(
    "preprocessing",
    [
        VggPreprocessing(24, is_training=False),
        InceptionPreprocessing(24, is_training=False),
        PlainPreprocessing(24),
        LenetPreprocessing(24, is_training=False),
    ],
    ids=["vgg", "inception", "none", "lenet"],
)
def test_what_was_made_of_colours_is_undone(preprocessing: object, photo: np.ndarray) -> None:
    picture = photo[:24, :24]
    shower = Shower(preprocessing)  # type: ignore[arg-type]
    finished = preprocessing.finish(tf.constant(picture), tf.zeros([1])).numpy()  # type: ignore[attr-defined]
    assert not shower.is_stretched
    assert np.abs(shower.show(finished).astype(int) - picture).max() <= 1


def test_what_differs_from_image_to_image_is_stretched() -> None:
    shower = Shower(CifarnetPreprocessing(24, is_training=True))
    assert shower.is_stretched
    shown = shower.show(np.linspace(-3, 5, 12).reshape(2, 2, 3))
    assert (shown.min(), shown.max()) == (0, 255)
    assert shower.show(np.full([2, 2, 3], np.nan)).max() == 0
    assert shower.show(np.ones([2, 2, 1])).shape == (2, 2, 3)


def test_training_samples_are_the_first_that_a_run_would_see(split: Split) -> None:
    preprocessing = InceptionPreprocessing(16, is_training=True)
    is_sound = np.ones(21, bool)
    is_sound[[3, 7]] = False
    arguments = {"preprocessing": preprocessing, "settings": SETTINGS, "seed": 5, "is_training": True}
    samples = take_samples(split, is_sound=is_sound, count=9, original_px=50, **arguments)
    with Feed(split, **arguments) as feed:
        batches = [next(feed) for _ in range(3)]
    index = np.concatenate([batch["index"] for batch in batches])
    wanted = [int(n) for n in index if is_sound[n]][:9]
    assert [sample.index for sample in samples] == wanted
    images = np.concatenate([batch["image"] for batch in batches])
    for sample in samples:
        expected = (images[index == sample.index][0] - preprocessing.offset) / preprocessing.scale
        assert np.abs(sample.image - expected).max() <= 1
        assert int(sample.label) == sample.index % 5
        assert max(sample.original.shape) <= 50


def test_evaluation_samples_are_chosen_by_the_seed(split: Split) -> None:
    def chosen(seed: int) -> list[int]:
        samples = take_samples(
            split,
            is_sound=np.arange(21) != 2,
            count=6,
            original_px=99,
            preprocessing=PlainPreprocessing(16),
            settings=SETTINGS,
            seed=seed,
            is_training=False,
        )
        assert [int(sample.label) for sample in samples] == [sample.index % 5 for sample in samples]
        return [sample.index for sample in samples]

    some, others = chosen(1), chosen(2)
    assert len(set(some)) == len(set(others)) == 6
    assert some != others
    assert 2 not in some + others


@pytest.mark.parametrize("is_training", [True, False])
def test_records_with_few_that_are_sound(tmp_path: Path, is_training: bool) -> None:
    write_shards(tmp_path, COUNTS)
    records = load(tmp_path)
    is_sound = np.zeros(21, bool)
    options = {
        "count": 8,
        "original_px": 20,
        "preprocessing": PlainPreprocessing(16),
        "settings": SETTINGS,
        "seed": 0,
        "is_training": is_training,
    }
    assert take_samples(records, is_sound=is_sound, **options) == []
    is_sound[[4, 20]] = True
    samples = take_samples(records, is_sound=is_sound, **options)
    assert sorted(sample.index for sample in samples) == [4, 20]


def test_the_sheet_has_a_pair_for_each(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    plain = np.full([28, 28, 3], (200, 30, 60), np.uint8)
    samples = [Sample(n, plain, photo, np.int32(0)) for n in range(5)]
    captions = ["cat", "$x_1$ 中文", "a" * 90, "", "a\nb"]
    draw_contact_sheet(samples, captions, tmp_path / "figures" / "samples.png", "title")
    sheet = np.asarray(Image.open(tmp_path / "figures" / "samples.png").convert("RGB"))
    is_plain = (np.abs(sheet.astype(int) - (200, 30, 60)).max(axis=2) <= 2).sum()
    assert 0.97 * 5 * 160**2 < is_plain < 1.03 * 5 * 160**2
