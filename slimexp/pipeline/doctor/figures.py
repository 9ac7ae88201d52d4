"""The figure of the pipeline: stages with their rates, and queues with their fills."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from slimexp.evaluation.drawing import BLUE, GREY, ORANGE, saved_figure
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import Verdict
from slimexp.pipeline.stats import PipelineStats

__all__ = ["plot_pipeline"]

_SKY = "#56B4E9"  # Of Okabe and Ito's colours, like the others.
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
    with saved_figure(path, 12.5, 3.9) as figure:
        axes = figure.subplots()
        x = 0.0
        for queue, (name, lines) in zip(stats.queues, stages.items(), strict=True):
            _draw_queue(axes, x, queue.fill_frac, queue.name == choking)
            axes.text(x + 0.4, 1.28, queue.name, ha="center", va="bottom", fontsize=9)
            axes.text(x + 0.4, -0.06, f"{100 * queue.fill_frac:.0f} % of", ha="center", va="top", fontsize=9)
            axes.text(x + 0.4, -0.24, f"{queue.capacity} {queue.unit}", ha="center", va="top", fontsize=9)
            _draw_arrow(axes, x + 0.85, x + 1.15)
            _draw_stage(axes, x + 1.2, lines, ORANGE if name == guilty else BLUE)
            if name in alone:
                rate = f"alone {alone[name].median:,.0f} images/s"
                axes.text(x + 2.1, -0.06, rate, ha="center", va="top", fontsize=9, color=GREY)
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
            color=ORANGE if guilty or choking else "black",
        )
        axes.set_title(f"In the run: {stats.images_per_sec:,.0f} images/s, {cores}", fontsize=10, loc="left")


def _draw_queue(axes: Axes, x: float, fill: float, choking: bool) -> None:
    color = ORANGE if choking else _SKY
    axes.add_patch(Rectangle((x, 0), 0.8, 1.2 * min(max(fill, 0.0), 1.0), facecolor=color, edgecolor="none"))
    axes.add_patch(Rectangle((x, 0), 0.8, 1.2, fill=False, edgecolor=GREY, linewidth=1.2))


def _draw_stage(axes: Axes, x: float, lines: tuple[str, str, str], color: str) -> None:
    axes.add_patch(Rectangle((x, 0.15), 1.8, 0.9, facecolor=color, edgecolor="none"))
    shown = [line for line in lines if line]
    for number, line in enumerate(shown):
        y = 0.6 + 0.25 * ((len(shown) - 1) / 2 - number)
        weight = "bold" if number == 0 else "normal"
        axes.text(x + 0.9, y, line, ha="center", va="center", color="white", fontsize=9.5, fontweight=weight)


def _draw_arrow(axes: Axes, start: float, end: float) -> None:
    axes.annotate("", (end, 0.6), (start, 0.6), arrowprops={"arrowstyle": "->", "color": GREY})
