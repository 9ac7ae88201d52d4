from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.pipeline.doctor.figures import plot_pipeline
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import Verdict
from tests.pipeline.doctor.test_verdict import stats

ORANGE = (0xD5, 0x5E, 0x00)


def orange_columns(path: Path) -> np.ndarray:
    """Returns the columns of the lower part of a figure, as shares of its width, that are mostly orange somewhere."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    pixels = pixels[len(pixels) // 4 :]  # Without the sentence.
    near = (np.abs(pixels - ORANGE).sum(axis=2) < 30).sum(axis=0)
    return np.flatnonzero(near > 20) / pixels.shape[1]


@pytest.mark.parametrize(
    ("bottleneck", "low", "high"),
    [("reading", 0.05, 0.25), ("preprocessing", 0.3, 0.5), ("batching", 0.55, 0.75), ("network", 0.8, 1.0)],
)
def test_what_holds_the_run_back_is_orange(tmp_path: Path, bottleneck: str, low: float, high: float) -> None:
    rates = {name: Rate(100.0, 90.0, 110.0) for name in ("read", "preprocess", "batch", "network")}
    plot_pipeline(tmp_path / "p.png", stats(fills=(1.0, 0.0, 0.5)), Verdict(bottleneck, "It is slow. " * 20), rates)
    columns = orange_columns(tmp_path / "p.png")
    assert low < columns.min() < columns.max() < high


def test_a_choking_queue_is_orange(tmp_path: Path) -> None:
    found = Verdict("queue", "The prefetch queue chokes.", ("pipeline.queues.prefetch.capacity=64",))
    plot_pipeline(tmp_path / "p.png", stats(), found)
    columns = orange_columns(tmp_path / "p.png")
    assert 0.5 < columns.min() < columns.max() < 0.6


@pytest.mark.parametrize("bottleneck", ["balanced", "cores", "unknown"])
def test_nothing_is_orange_where_nobody_is_to_blame(tmp_path: Path, bottleneck: str) -> None:
    plot_pipeline(tmp_path / "p.png", stats(), Verdict(bottleneck, "All is well, costs 5 $ and 5 $."))
    assert len(orange_columns(tmp_path / "p.png")) == 0
