from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from PIL import Image

from slimexp.evaluation.figures import _moving_average, plot_confusion_matrix, plot_learning_curves, plot_per_label
from slimexp.tracking.metrics_file import MetricsRow

ODD_NAMES = [
    "$x^2$ & 100 %",
    "犬と猫",
    "étiquette",
    "line\nbreak\ttab",
    "",
    "n" * 300,
    "\U0001f600",
    "_hidden",
    "a\udc80b",
]


def image(path: Path) -> np.ndarray:
    with Image.open(path) as opened:
        assert opened.format == "PNG"
        return np.asarray(opened.convert("RGB"))


def curve_rows(count: int) -> list[MetricsRow]:
    rows = []
    for i in range(count):
        metrics = {
            "train/loss": 3 * math.exp(-4 * i / count) + 0.1,
            "train/learning_rate": 0.1 * 0.94 ** (20 * i // count),
        }
        if count <= 10 or i % (count // 10) == 0:
            metrics |= {"eval/loss": 1.0, "eval/top1": i / count}
        rows.append(MetricsRow(10 * i, 0.0, metrics))
    return rows


@pytest.mark.parametrize("count", [0, 1, 2, 100, 10_000])
def test_learning_curves(count: int, tmp_path: Path) -> None:
    path = tmp_path / "figures" / "curves.png"
    plot_learning_curves(curve_rows(count), path)
    pixels = image(path)
    assert pixels.min() < 100  # Something is drawn.
    assert pixels.shape[1] < 2500
    assert list(path.parent.iterdir()) == [path]


def test_learning_curves_with_gaps(tmp_path: Path) -> None:
    rows = curve_rows(300)
    rows[150].metrics["train/loss"] = math.nan
    rows[200].metrics["train/loss"] = math.inf
    rows += [MetricsRow(3000, 0.0, {"eval/mean_average_precision": 0.5, "train/loss": 1e-5, "other": 1.0})]
    plot_learning_curves(rows, tmp_path / "a.png")
    plot_learning_curves([MetricsRow(1, 0.0, {"train/loss": math.nan})], tmp_path / "b.png")
    image(tmp_path / "b.png")


def test_moving_average_by_hand() -> None:
    values = np.array([1.0, 2.0, math.nan, 4.0, 9.0])
    np.testing.assert_allclose(_moving_average(values, 3), [1.5, 1.5, math.nan, 6.5, 6.5])


@pytest.mark.parametrize("count", [1, 2, 10, 30, 100, 1000])
def test_confusion_matrix(count: int, tmp_path: Path) -> None:
    matrix = np.diag(np.full(count, 7))
    matrix[0, -1] += 2
    names = [f"class {c}" for c in range(count)]
    plot_confusion_matrix(matrix, names, tmp_path / "c.png")
    pixels = image(tmp_path / "c.png")
    assert max(pixels.shape) < 2300
    # The diagonal is dark blue, and however many classes there are, it can be seen.
    dark = (pixels[..., 2].astype(int) - pixels[..., 0] > 60) & (pixels[..., 0] < 60)
    assert dark.sum() > 1000


def test_confusion_matrix_of_odd_names_and_no_examples(tmp_path: Path) -> None:
    count = len(ODD_NAMES)
    matrix = np.zeros((count, count), np.int64)
    plot_confusion_matrix(matrix, ODD_NAMES, tmp_path / "c.png")
    matrix[3, 4] = 1_234_567
    plot_confusion_matrix(matrix, ODD_NAMES, tmp_path / "c.png")
    image(tmp_path / "c.png")


@pytest.mark.parametrize("count", [0, 1, 20, 200])
def test_per_label(count: int, tmp_path: Path) -> None:
    names = [*ODD_NAMES, *map(str, range(200))]
    rows: list[dict[str, Any]] = [
        {"class": names[c], "average_precision": (c % 7) / 6, "positives": c} for c in range(count)
    ]
    rows.append({"class": "none", "average_precision": None, "positives": 0})
    plot_per_label(rows, tmp_path / "p.png")
    assert max(image(tmp_path / "p.png").shape) < 2500


def test_a_users_settings_do_not_matter_and_stay(tmp_path: Path) -> None:
    with matplotlib.rc_context({"text.usetex": True, "font.family": "serif"}):
        plot_confusion_matrix(np.eye(2, dtype=int), ["a_b", "$"], tmp_path / "c.png")
        assert matplotlib.rcParams["text.usetex"] is True


def test_neither_pyplot_nor_tensorflow_nor_mlflow_comes_along(tmp_path: Path) -> None:
    code = (
        "import sys, slimexp.evaluation as e, numpy as np\n"
        "e.plot_confusion_matrix(np.eye(2, dtype=int), ['a', 'b'], sys.argv[1])\n"
        "assert not {'matplotlib.pyplot', 'tensorflow', 'mlflow'} & set(sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path / "c.png")], check=True, cwd=root)
