from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.evaluation import Accumulator, plot_precision_recall
from slimexp.evaluation.precision_recall import _at_levels


def test_a_curve_by_hand() -> None:
    """Scores 3, 2, 1 with truths +, -, +; the fourth entry does not count."""
    accumulator = Accumulator("multi", ("a", "b"))
    labels = np.array([[1, -1], [-1, -1], [1, -1], [0, 0]], np.int8)
    accumulator.update(np.array([[3.0, 0], [2, 0], [1, 0], [9, 0]]), labels, np.ones(4, bool), np.arange(4))
    curve, without_positives = accumulator.precision_recall()
    assert without_positives is None
    assert curve is not None
    recall, precision = curve
    np.testing.assert_allclose(recall, [0, 0.5, 0.5, 1])
    np.testing.assert_allclose(precision, [1, 1, 0.5, 2 / 3])
    levels = _at_levels(curve)
    np.testing.assert_allclose(levels[[0, 50, 51, 100]], [1, 1, 2 / 3, 2 / 3])


@pytest.mark.parametrize("count", [1, 2, 10, 30, 150])
def test_few_labels_and_many(count: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.where(random.random((40, count)) < 0.3, 1, -1).astype(np.int8)
    labels[:, -1] = -1  # One label without a positive; of one label, none is left.
    accumulator = Accumulator("multi", [f"$label_{c} 犬" for c in range(count)])
    accumulator.update(labels + random.normal(size=labels.shape), labels, np.ones(40, bool), np.arange(40))
    plot_precision_recall(accumulator.precision_recall(), accumulator.per_class(), tmp_path / "p.png")
    with Image.open(tmp_path / "p.png") as image:
        assert image.format == "PNG"
        assert max(image.size) < 1200
        assert np.asarray(image.convert("L")).min() < 100  # Something is drawn.
