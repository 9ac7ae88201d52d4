"""What all figures share: colours, fonts, a style, and how they become files.

Drawn straight on matplotlib's Agg canvas: no display, no pyplot, so nothing global to clash with a notebook's figures.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slimexp.evaluation.tables import replace_file
from slimexp.evaluation.text import font_families

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "number_note", "saved_figure", "style"]

# Okabe and Ito's colours, which the colour-blind tell apart.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#888888"
_DPI = 110


@contextlib.contextmanager
def saved_figure(path: str | os.PathLike[str], width_in: float, height_in: float) -> Iterator[Figure]:
    """Gives an empty figure and saves it as a PNG file afterwards."""
    # A user's matplotlibrc may ask for LaTeX or other fonts, and neither takes every class name. A `$` is no formula.
    settings = {"font.family": list(font_families()), "text.usetex": False, "text.parse_math": False}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        yield figure
        replace_file(path, lambda temporary: canvas.print_png(Path(temporary)))


def style(axes: Axes, title: str) -> None:
    """Gives axes a pale grid, no frame, and the title of their y axis."""
    axes.set_ylabel(title)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def number_note(labels: Sequence[str], class_names: Sequence[str]) -> str:
    """Explains the labels that are class numbers because no font has their letters."""
    numbered = any(label == f"#{c}" != name for c, (label, name) in enumerate(zip(labels, class_names, strict=True)))
    return "\n(#n: class n, whose name has letters that no installed font has)" if numbered else ""
