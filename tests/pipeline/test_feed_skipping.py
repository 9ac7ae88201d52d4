"""Streams in which bad images are skipped: the rest is as it would be without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.native import ops
from slimexp.pipeline.preprocessing import InceptionPreprocessing
from slimexp.pipeline.skipping import SkippedImages

DECODERS = [
    "tensorflow",
    pytest.param("native", marks=pytest.mark.skipif(not ops.available(), reason="The native op is not built.")),
]


def feed(
    split: Split, skipped: SkippedImages | None = None, start: int = 0, training: bool = True, **changes: Any
) -> Feed:
    settings = PipelineSettings(**{"threads": 2, "readers": 2, "batch_size": 4, "decoder": "tensorflow", **changes})
    return Feed(
        split,
        preprocessing=InceptionPreprocessing(16, is_training=training),
        settings=settings,
        seed=3,
        is_training=training,
        start_position=start,
        skipped=skipped,
    )


def taken(batches: Feed, count: int) -> list[dict[str, np.ndarray]]:
    return [{key: value.numpy() for key, value in next(batches).items()} for _ in range(count)]


@pytest.fixture
def bad(split: Split, damaged: Callable) -> Split:
    with open(split.paths[9], "rb") as file:
        half = file.read()[:-400]
    return damaged({8: b"<html>", 9: half, 13: b""})


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_rest_of_the_stream_is_as_without_bad_images(
    split: Split, bad: Split, tmp_path: Path, decoder: str
) -> None:
    skipped = SkippedImages(bad, path=tmp_path / "skipped.csv", max_fraction=0.5)
    with feed(split, decoder=decoder) as sound, feed(bad, skipped, decoder=decoder, readers=3) as batches:
        for number, (expected, found) in enumerate(zip(taken(sound, 12), taken(batches, 12), strict=True)):
            is_bad = np.isin(expected["index"], [8, 9, 13])
            assert (found["valid"] == ~is_bad).all()
            for key in ("index", "image", "label"):
                assert (found[key][~is_bad] == expected[key][~is_bad]).all(), (number, key)
                copied = expected[key][np.argmin(is_bad)]
                assert (found[key][is_bad] == copied).all(), (number, key)
        assert batches.position == 48
    assert np.flatnonzero(skipped.mask).tolist() == [8, 9, 13]
    assert len((tmp_path / "skipped.csv").read_text().splitlines()) == 4


def test_a_resumed_stream_is_the_same(bad: Split, tmp_path: Path) -> None:
    def skipped() -> SkippedImages:
        return SkippedImages(bad, path=tmp_path / "skipped.csv", max_fraction=0.5)

    with feed(bad, skipped()) as batches:
        whole = taken(batches, 9)
    for start in (0, 16):
        with feed(bad, skipped(), start) as batches:
            for expected, found in zip(whole[start // 4 :], taken(batches, 9 - start // 4), strict=True):
                for key in expected:
                    assert (found[key] == expected[key]).all()


def test_an_evaluation_leaves_them_out(bad: Split, damaged: Callable) -> None:
    skipped = SkippedImages(bad, path=None, max_fraction=0.5)
    with feed(bad, skipped, training=False, batch_size=8) as batches:
        found = taken(batches, 3)
        with pytest.raises(StopIteration):
            next(batches)
    valid = np.concatenate([batch["index"][batch["valid"]] for batch in found])
    assert valid.tolist() == [n for n in range(21) if n not in (8, 9, 13)]


def test_the_short_last_batch_may_be_all_bad(damaged: Callable) -> None:
    bad = damaged({20: b"text"})
    with feed(bad, SkippedImages(bad, path=None, max_fraction=0.1), training=False) as batches:
        found = taken(batches, 6)
    assert not found[-1]["valid"].any()
    assert found[-1]["index"].tolist() == [0] * 4
    assert np.isfinite(found[-1]["image"]).all()


def test_a_batch_may_be_all_bad(damaged: Callable) -> None:
    bad = damaged(dict.fromkeys((0, 4, 5, 6, 7), b"text"))
    with feed(bad, SkippedImages(bad, path=None, max_fraction=0.5), shuffle=False) as batches:
        first, second, third = taken(batches, 3)
    assert first["valid"].tolist() == [False, True, True, True]
    assert not second["valid"].any()
    assert second["index"].tolist() == [1] * 4
    assert third["valid"].all()


def test_the_example_that_fills_a_bad_batch_may_be_bad_itself(damaged: Callable) -> None:
    bad = damaged(dict.fromkeys((0, 4, 5, 6, 7), b"text"))
    skipped = SkippedImages(bad, path=None, max_fraction=0.5)
    with feed(bad, skipped, start=4, shuffle=False) as batches:
        assert next(batches)["index"].numpy().tolist() == [1] * 4
    assert np.flatnonzero(skipped.mask).tolist() == [0, 4, 5, 6, 7]


def test_a_missing_file_stops_it_all_the_same(damaged: Callable) -> None:
    bad = damaged({1: b"text", 2: None})
    skipped = SkippedImages(bad, path=None, max_fraction=0.5)
    with feed(bad, skipped, shuffle=False) as batches:
        with pytest.raises(UserError, match=r"^2 images of a batch of 4 (?s:.*)bad 2.jpg': there is no such file"):
            next(batches)
        with pytest.raises(ValueError, match="closed"):
            next(batches)
    assert len(skipped) == 0


@pytest.mark.slow
def test_too_many_stop_it(damaged: Callable) -> None:
    bad = damaged(dict.fromkeys((2, 9, 11), b"text"))
    with feed(bad, SkippedImages(bad, path=None, max_fraction=0.1), shuffle=False) as batches:
        taken(batches, 2)
        with pytest.raises(UserError, match=r"^3 of the 21 images .*max_bad_fraction=0.1 lets 2 be skipped:") as caught:
            next(batches)
    assert str(caught.value).count("it is something that begins with b'text'") == 3
