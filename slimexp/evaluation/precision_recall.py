"""The figure of precision against recall, readable for two labels and for a thousand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slimexp.evaluation.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, number_note, saved_figure, style
from slimexp.evaluation.text import labels_for

__all__ = ["plot_precision_recall"]

Curve = tuple[np.ndarray, np.ndarray]
# Okabe and Ito's colours; beyond them lines are told apart by their dashes too.
_COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#E69F00", "#56B4E9")
_DASHES = ("-", "--")
# So many labels have a line of their own; of more, the best and the worst have.
_NAMED = 10
_AT = np.linspace(0, 1, 101)


def plot_precision_recall(
    curves: Sequence[Curve | None], rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]
) -> None:
    """Draws precision against recall for each label.

    Up to 10 labels have a colour and stand in the legend with their average precision. Of more, the 5 best and the 5
    worst do; the others are pale lines, beyond 100 labels a band of the middle half of them. With the mean over all.

    Args:
        curves: From `Accumulator.precision_recall()`.
        rows: From `Accumulator.per_class()`: `class`, `average_precision`, `precision` and `recall` at the threshold.
        path: The PNG file.
    """
    names = labels_for([str(row["class"]) for row in rows], 24)
    known = [
        (row["average_precision"], name, curve, row)
        for curve, name, row in zip(curves, names, rows, strict=True)
        if curve is not None
    ]
    known.sort(key=lambda item: -item[0])
    several = len(known) > _NAMED
    named = [*known[: _NAMED // 2], *known[-_NAMED // 2 :]] if several else known
    with saved_figure(path, 9.0, 5.2) as figure:
        axes = figure.subplots()
        if not known:
            axes.text(0.5, 0.5, "No label has a positive.", ha="center", va="center", color=GREY)
        levels = np.array([_at_levels(curve) for _, _, curve, _ in known]).reshape(-1, len(_AT))
        if len(known) > 100:
            low, high = np.percentile(levels, [25, 75], axis=0)
            axes.fill_between(_AT, low, high, color=GREY, alpha=0.3, linewidth=0, label="the middle half of all labels")
        elif several:
            for _, _, (recall, precision), _ in known[_NAMED // 2 : -_NAMED // 2]:
                axes.step(recall, precision, where="pre", color=GREY, alpha=0.35, linewidth=0.7)
        for number, (average, name, (recall, precision), row) in enumerate(named):
            color, dashes = _COLORS[number % len(_COLORS)], _DASHES[number // len(_COLORS)]
            width = 1.1 if several else 1.6
            label = f"{name}  {average:.3f}"
            axes.step(recall, precision, where="pre", color=color, linestyle=dashes, linewidth=width, label=label)
            axes.plot(row["recall"], row["precision"], "o", color=color, markersize=4.5)
        if len(known) > 1:
            mean = float(np.mean([item[0] for item in known]))
            label = f"mean of {len(known)}  {mean:.3f}"
            axes.plot(_AT, levels.mean(axis=0), color="black", linewidth=2.2, label=label)
        style(axes, "precision")
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(-0.01, 1.03)
        axes.set_xlabel("recall (a dot: at the threshold)" + number_note(names, [str(row["class"]) for row in rows]))
        without = len(rows) - len(known)
        which = "the 5 best and the 5 worst labels" if several else "by label"
        note = f"; {without} without a positive left out" if without else ""
        axes.set_title(f"Precision and recall: {which}{note}", fontsize=10)
        if known:
            axes.legend(
                title="average precision",
                loc="upper left",
                bbox_to_anchor=(1.01, 1.0),
                frameon=False,
                fontsize=8,
                title_fontsize=8,
            )


def _at_levels(curve: Curve) -> np.ndarray:
    """Returns the precision at each of 101 levels of recall: the best that reaches it, or more."""
    recall, precision = (values[1:] for values in curve)  # The first point is a convention: recall 0, precision 1.
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return best[np.searchsorted(recall, _AT - 1e-12).clip(max=len(best) - 1)]
