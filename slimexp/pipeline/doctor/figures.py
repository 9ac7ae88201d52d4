"""Figures of the pipeline: stages with their rates and queues with their fills, and the rates of a sweep.

Drawn straight on matplotlib's Agg canvas: no display, no pyplot, so nothing global to clash with a notebook's figures.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from slimexp.evaluation.tables import replace_file
from slimexp.evaluation.text import font_families
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import Verdict
from slimexp.pipeline.stats import PipelineStats

__all__ = ["plot_pipeline", "plot_sweep"]

# Okabe and Ito's colours, which the colour-blind tell apart.
_BLUE, _ORANGE, _GREEN, _PURPLE, _SKY, _GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#888888"
_DPI = 110
_STAGE_OF = {"reading": "read", "preprocessing": "preprocess", "batching": "batch", "network": "network"}


def plot_pipeline(
    path: str | os.PathLike[str], stats: PipelineStats, verdict: Verdict, alone: Mapping[str, Rate] | None = None
) -> None:
    """Draws the pipeline from the files to the network: boxes are stages, tanks are queues with their mean fill.

    What holds the run back is orange.

    Args:
        path: The PNG file.
        stats: What was measured while the network was fed.
        verdict: Its sentence stands above.
        alone: What `read`, `preprocess`, `batch` and `network` make each on its own, where that was measured.
    """
    alone = alone or {}
    read, preprocess = stats.stage("read"), stats.stage("preprocess")
    stages = {
        "read": ("Readers", f"{read.threads} at a time", f"busy {100 * read.busy_frac:.0f} %"),
        "preprocess": (
            "Preprocessing",
            f"{preprocess.threads} thread{'s' * (preprocess.threads != 1)}",
            f"busy {100 * preprocess.busy_frac:.0f} %",
        ),
        "batch": ("Batching", "", ""),
        "network": ("Network", "", f"waits {100 * stats.wait_frac:.0f} %"),
    }
    guilty = _STAGE_OF.get(verdict.bottleneck)
    choking = verdict.overrides[0].split(".")[2] if verdict.bottleneck == "queue" else None
    with _figure(path, 12.5, 3.9) as figure:
        axes = figure.subplots()
        x = 0.0
        for queue, (name, lines) in zip(stats.queues, stages.items(), strict=True):
            _draw_queue(axes, x, queue.fill_frac, queue.name == choking)
            axes.text(x + 0.4, 1.28, queue.name, ha="center", va="bottom", fontsize=9)
            axes.text(x + 0.4, -0.06, f"{100 * queue.fill_frac:.0f} % of", ha="center", va="top", fontsize=9)
            axes.text(x + 0.4, -0.24, f"{queue.capacity} {queue.unit}", ha="center", va="top", fontsize=9)
            _draw_arrow(axes, x + 0.85, x + 1.15)
            _draw_stage(axes, x + 1.2, lines, _ORANGE if name == guilty else _BLUE)
            if name in alone:
                rate = f"alone {alone[name].median:,.0f} images/s"
                axes.text(x + 2.1, -0.06, rate, ha="center", va="top", fontsize=9, color=_GREY)
            if name != "network":
                _draw_arrow(axes, x + 3.05, x + 3.35)
            x += 3.4
        axes.set_xlim(-0.1, x - 0.3)
        axes.set_ylim(-0.5, 1.6)
        axes.axis("off")
        cores = f"{100 * stats.cpu_frac:.0f} % of {stats.num_cpus:g} cores"
        figure.suptitle(
            "\n".join(textwrap.wrap(verdict.sentence, 120)),
            fontsize=11,
            ha="left",
            x=0.01,
            color=_ORANGE if guilty or choking else "black",
        )
        axes.set_title(f"In the run: {stats.images_per_sec:,.0f} images/s, {cores}", fontsize=10, loc="left")


def plot_sweep(
    path: str | os.PathLike[str],
    key: str,
    lines: Mapping[str, Sequence[tuple[float, Rate]]],
    network: float | None = None,
) -> None:
    """Draws images a second over a swept setting, a line for each combination of the others.

    Args:
        path: The PNG file.
        key: The setting on the horizontal axis, e.g. `pipeline.threads`.
        lines: For each line its label (empty if it is the only one) and its points: the setting and the rate.
        network: What the network takes, as a dashed line.
    """
    colors = (_BLUE, _ORANGE, _GREEN, _PURPLE, _SKY, _GREY)
    with _figure(path, 8.0, 4.5) as figure:
        axes = figure.subplots()
        ticks: set[float] = set()
        for number, (label, points) in enumerate(lines.items()):
            points = sorted(points, key=lambda point: point[0])
            xs, rates = [point[0] for point in points], [point[1] for point in points]
            bars = [[r.median - r.low for r in rates], [r.high - r.median for r in rates]]
            color = colors[number % len(colors)]
            axes.errorbar(xs, [r.median for r in rates], bars, label=label or None, color=color, marker="o", capsize=3)
            ticks.update(xs)
        if network is not None:
            axes.axhline(network, color=_GREY, linestyle="--", linewidth=1.2, label="the network takes")
        if ticks and min(ticks) > 0 and max(ticks) / min(ticks) >= 4:
            axes.set_xscale("log", base=2)
        if len(ticks) <= 12:
            axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel(key)
        axes.set_ylabel("images/s")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if any(lines) or network is not None:
            axes.legend(frameon=False, loc="best")


def _draw_queue(axes: Axes, x: float, fill: float, choking: bool) -> None:
    color = _ORANGE if choking else _SKY
    axes.add_patch(Rectangle((x, 0), 0.8, 1.2 * min(max(fill, 0.0), 1.0), facecolor=color, edgecolor="none"))
    axes.add_patch(Rectangle((x, 0), 0.8, 1.2, fill=False, edgecolor=_GREY, linewidth=1.2))


def _draw_stage(axes: Axes, x: float, lines: tuple[str, str, str], color: str) -> None:
    axes.add_patch(Rectangle((x, 0.15), 1.8, 0.9, facecolor=color, edgecolor="none"))
    shown = [line for line in lines if line]
    for number, line in enumerate(shown):
        y = 0.6 + 0.25 * ((len(shown) - 1) / 2 - number)
        weight = "bold" if number == 0 else "normal"
        axes.text(x + 0.9, y, line, ha="center", va="center", color="white", fontsize=9.5, fontweight=weight)


def _draw_arrow(axes: Axes, start: float, end: float) -> None:
    axes.annotate("", (end, 0.6), (start, 0.6), arrowprops={"arrowstyle": "->", "color": _GREY})


@contextlib.contextmanager
def _figure(path: str | os.PathLike[str], width_in: float, height_in: float) -> Iterator[Figure]:
    """Gives an empty figure and saves it as a PNG file afterwards."""
    # A user's matplotlibrc may ask for LaTeX. A `$` is no formula.
    settings = {"font.family": list(font_families()), "text.usetex": False, "text.parse_math": False}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        yield figure
        replace_file(path, lambda temporary: canvas.print_png(Path(temporary)))
