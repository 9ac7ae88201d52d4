"""Figures of a run: learning curves, a confusion matrix, average precision by label."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from slimexp.evaluation.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, number_note, saved_figure, style
from slimexp.evaluation.text import labels_for
from slimexp.tracking.metrics_file import MetricsRow, columns

__all__ = ["plot_confusion_matrix", "plot_learning_curves", "plot_per_label"]

_CURVE_PANELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("loss", (("train/loss", BLUE), ("eval/loss", ORANGE))),
    (
        "evaluation",
        (("eval/top1", ORANGE), ("eval/top5", PURPLE), ("eval/mean_average_precision", ORANGE), ("eval/f1", GREEN)),
    ),
    ("learning rate", (("train/learning_rate", GREEN),)),
)


def plot_learning_curves(rows: Sequence[MetricsRow], path: str | os.PathLike[str]) -> None:
    """Draws losses, evaluation metrics and the learning rate over the steps.

    Readable from one point to many thousands: few points get markers, many a moving average over the pale raw curve.
    Values that are not finite leave a gap, and the first of a loss is marked.

    Args:
        rows: From `read_metrics`.
        path: The PNG file.
    """
    curves = columns(rows)
    panels = [(title, [(name, color) for name, color in series if name in curves]) for title, series in _CURVE_PANELS]
    panels = [panel for panel in panels if panel[1]]
    with saved_figure(path, 8.5, 2.7 * max(1, len(panels)) + 0.4) as figure:
        if not panels:
            figure.text(0.5, 0.5, "No metrics have been logged yet.", ha="center", va="center")
            return
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
        for axes, (title, series) in zip(grid[:, 0], panels, strict=True):
            drawn = [_draw_curve(axes, name, color, *curves[name]) for name, color in series]
            values = np.concatenate(drawn) if drawn else np.zeros(0)
            style(axes, title)
            _scale(axes, values)
            axes.legend(frameon=False, loc="best")
        grid[-1, 0].set_xlabel("step")
        grid[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
        steps = {step for _, series in panels for name, _ in series for step in curves[name][0]}
        if len(steps) == 1:
            grid[-1, 0].set_xlim(min(steps) - 1, min(steps) + 1)


def plot_confusion_matrix(matrix: np.ndarray, class_names: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Draws a confusion matrix, each row as shares of its class.

    With up to 20 classes the counts stand in the cells; beyond 12, the most frequent confusions are listed beside it;
    beyond 120, the axes show class numbers; beyond 250, neighbouring classes share a cell that shows the largest share.

    Args:
        matrix: Integers [C, C]; row = class, column = prediction.
        class_names: The C names.
        path: The PNG file.
    """
    matrix = np.asarray(matrix, dtype=np.int64)
    count = len(class_names)
    assert matrix.shape == (count, count), (matrix.shape, count)
    totals = matrix.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = matrix / np.where(totals > 0, totals, np.nan)
    listed = _worst_confusions(matrix, class_names) if count > 12 else []
    side = min(12.5, max(4.0, 0.42 * count + 1.5))
    with saved_figure(path, side + 1.2 + (4.2 if listed else 0), side + 0.6) as figure:
        if listed:
            axes, notes = figure.subplots(1, 2, width_ratios=[side, 4.2])
        else:
            axes, notes = figure.subplots(), None
        _draw_shares(figure, axes, shares, count)
        names = labels_for(class_names, 24)
        if count <= 120:
            size = float(np.clip(430 / count, 5, 10))
            crowded = max(map(len, names)) > (3 if count > 6 else 12)
            axes.set_xticks(range(count), names, rotation=90 if crowded else 0, fontsize=size)
            axes.set_yticks(range(count), names, fontsize=size)
        if count <= 20:
            _write_counts(axes, matrix, shares)
        examples = int(totals.sum())
        right = f", {100 * np.trace(matrix) / examples:.1f} % right" if examples else ""
        axes.set_title(f"Confusion matrix: {examples} examples{right}")
        axes.set_xlabel(
            ("predicted" if count <= 120 else "number of the predicted class") + number_note(names, class_names)
        )
        axes.set_ylabel("class" if count <= 120 else "number of the class")
        axes.set_anchor("N")
        if notes is not None:
            _write_list(notes, "Most frequent confusions", listed)


def plot_per_label(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draws the average precision of each label as bars, best first, with the number of positives.

    Of more than 80 labels, the best 40 and the worst 40 are shown.

    Args:
        rows: From `Accumulator.per_class()` for `multi`: `class`, `average_precision` (or None), `positives`.
        path: The PNG file.
    """
    names = labels_for([str(row["class"]) for row in rows], 28)
    known = [(row["average_precision"], name, row["positives"]) for row, name in zip(rows, names, strict=True)]
    bars = sorted((bar for bar in known if bar[0] is not None), key=lambda bar: -bar[0])
    without = len(known) - len(bars)
    mean = float(np.mean([bar[0] for bar in bars])) if bars else math.nan
    cut = max(0, len(bars) - 80)
    if cut:
        bars = [*bars[:40], *bars[-40:]]
    with saved_figure(path, 7.5, max(2.2, 0.2 * len(bars) + 1.4)) as figure:
        axes = figure.subplots()
        places = np.arange(len(bars), dtype=float)
        if cut:
            places[40:] += 1.5
            axes.text(0.5, 40.25, f"... {cut} labels between ...", ha="center", va="center", color=GREY, fontsize=8)
        values = [bar[0] for bar in bars]
        axes.barh(places, values, color=BLUE, height=0.75)
        for place, (value, _, positives) in zip(places, bars, strict=True):
            text = axes.text(value + 0.008, place, f"{value:.3f}  ({positives})", va="center", fontsize=7.5)
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # Over the line of the mean.
        axes.set_yticks(places, [bar[1] for bar in bars], fontsize=8)
        axes.set_ylim(max(places, default=0) + 0.7, -0.7)
        axes.set_xlim(0, 1.16)
        axes.set_xticks(np.linspace(0, 1, 6))
        note = f"; {without} without a positive left out" if without else ""
        if bars:
            axes.axvline(mean, color=ORANGE, linewidth=1.2, linestyle="--", zorder=2)
            axes.set_title(
                f"Average precision by label: mean {mean:.3f} over {len(bars) + cut} labels{note}", fontsize=10
            )
        else:
            axes.set_title(f"Average precision by label{note}", fontsize=10)
        shown = [row["class"] for row in rows]
        axes.set_xlabel("average precision (number of positives)" + number_note(names, shown))
        axes.spines[["top", "right"]].set_visible(False)


def _scale(axes: Axes, values: np.ndarray) -> None:
    """Takes a logarithmic axis where the values span more than two decades."""
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() / values.min() > 100:
        axes.set_yscale("log")
        # Plain numbers: the powers of ten that matplotlib writes are formulas, which are switched off here.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_curve(axes: Axes, name: str, color: str, steps: Sequence[int], values: Sequence[float]) -> np.ndarray:
    """Draws one metric; returns its values."""
    order = np.argsort(steps, kind="stable")
    x, y = np.asarray(steps)[order], np.asarray(values, dtype=float)[order]
    finite = np.isfinite(y)
    if name.endswith("loss") and not finite.all():
        first = int(x[np.argmin(finite)])
        axes.axvline(first, color=color, linestyle=":", linewidth=1.2, label=f"{name}: not finite at step {first}")
    y = np.where(finite, y, np.nan)
    if len(y) > 200 and name != "train/learning_rate":
        axes.plot(x, y, color=color, alpha=0.25, linewidth=0.7)
        axes.plot(x, _moving_average(y, max(5, len(y) // 50)), color=color, linewidth=1.6, label=name)
    else:
        marker = "o" if len(y) <= 40 else None
        axes.plot(x, y, color=color, linewidth=1.6, marker=marker, markersize=4, label=name)
    return y


def _moving_average(values: np.ndarray, width: int) -> np.ndarray:
    """Averages over the `width` values around each, fewer at the ends; NaN counts for nothing."""
    known = np.isfinite(values)
    half = width // 2
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    low = np.maximum(np.arange(len(values)) - half, 0)
    high = np.minimum(np.arange(len(values)) + half + 1, len(values))
    number = counts[high] - counts[low]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, (sums[high] - sums[low]) / number, np.nan)


def _draw_shares(figure: Figure, axes: Axes, shares: np.ndarray, count: int) -> None:
    block = math.ceil(count / 250)
    if block > 1:
        # One pixel of 1000 x 1000 would be lost in the figure.
        padding = -count % block
        padded = np.pad(shares, ((0, padding), (0, padding)), constant_values=np.nan)
        cells = padded.reshape(len(padded) // block, block, -1, block)
        shares = np.where(np.isnan(cells), -1.0, cells).max(axis=(1, 3))
        shares = np.where(shares < 0, np.nan, shares)
    colors = matplotlib.colormaps["Blues"].with_extremes(bad="#eeeeee")
    # The square root of the share, so that one confusion in a hundred still shows.
    extent = (-0.5, len(shares) * block - 0.5, len(shares) * block - 0.5, -0.5)
    image = axes.imshow(
        np.ma.masked_invalid(shares), cmap=colors, norm=PowerNorm(0.5, 0, 1), extent=extent, interpolation="nearest"
    )
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.set_label("share of the class")
    bar.set_ticks([0, 0.01, 0.1, 0.25, 0.5, 1], labels=["0", "1 %", "10 %", "25 %", "50 %", "100 %"])


def _write_counts(axes: Axes, matrix: np.ndarray, shares: np.ndarray) -> None:
    size = float(np.clip(95 / len(matrix), 5.5, 10))
    for (row, column), number in np.ndenumerate(matrix):
        if number:
            color = "white" if shares[row, column] > 0.35 else "black"
            text = str(number) if number < 100_000 else f"{number:.0e}"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=size)


def _worst_confusions(matrix: np.ndarray, class_names: Sequence[str]) -> list[str]:
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:20]
    names = labels_for(class_names, 20)
    lines = []
    for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True):
        if wrong[row, column]:
            share = wrong[row, column] / matrix[row].sum()
            lines.append(f"{wrong[row, column]} ({100 * share:.0f} %)  {names[row]} \u2192 {names[column]}")
    return lines or ["none"]


def _write_list(axes: Axes, title: str, lines: Sequence[str]) -> None:
    axes.axis("off")
    axes.set_title(title, loc="left")
    axes.text(0, 0.99, "\n".join(lines), va="top", fontsize=9.5, linespacing=1.8, transform=axes.transAxes)
