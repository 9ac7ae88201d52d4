"""The charts of a sweep: one for each swept number.

Benchmarks: images a second of each stage against the setting, the network's limit as a line, below it how full the
queues were. Other jobs: the metric against the setting, with the spread over seeds, below it images a second.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from slimexp.evaluation.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, saved_figure, style
from slimexp.sweep.identity import short_keys
from slimexp.sweep.results import SEED, JobResult
from slimexp.sweep.verdict import show_value

__all__ = ["numeric_keys", "plot_benchmarks", "plot_metric", "write_charts"]

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#56B4E9", "#E69F00", "#000000")
# More lines than colours, or lines of one point each, say nothing: then only the points are drawn.
_MOST_LINES = len(_COLORS)
_MOST_TITLE_LINES = 6
_STAGES = {
    "training": ("pipeline and network together", BLUE),
    "pipeline": ("pipeline alone", ORANGE),
    "preprocess": ("decode + preprocess + batch, from memory", GREEN),
    "read": ("read files", PURPLE),
}
_QUEUES = {"filename": GREY, "read": PURPLE, "prefetch": GREEN, "batch": ORANGE}
# Settings that are chosen by their order of magnitude.
_MAGNITUDES = ("learning_rate.", "weight_decay", "epsilon", "decay_factor")


@dataclasses.dataclass(frozen=True)
class _Point:
    """The jobs with one value of a setting, as a point with a bar."""

    x: float
    y: float
    low: float
    high: float


def write_charts(
    folder: Path, jobs: Sequence[JobResult], metric: str | None, verdict: str, best: JobResult | None
) -> list[Path]:
    """Draws a chart for each swept number.

    Args:
        folder: The sweep's; the files are named after the settings, e.g. `sweep_threads.png`.
        jobs: Those of the sweep.
        metric: The one that decides.
        verdict: Its sentence stands above the charts of benchmarks.
        best: The best job.

    Returns:
        The files.
    """
    files = []
    names = short_keys(list(jobs[0].settings)) if jobs else {}
    for key in numeric_keys(jobs):
        path = folder / f"sweep_{names[key].replace('.', '_')}.png"
        if any(job.benchmark is not None for job in jobs):
            plot_benchmarks(path, key, jobs, verdict)
        elif metric is not None:
            plot_metric(path, key, jobs, metric, best)
        else:
            continue
        files.append(path)
    return files


def numeric_keys(jobs: Sequence[JobResult]) -> list[str]:
    """Returns the swept keys, but for the seed, that have two numbers or more among the jobs that finished."""
    done = [job for job in jobs if job.finished]
    keys = [key for key in (done[0].settings if done else ()) if key != SEED]
    numbers = {key: [job.number_of(key) for job in done] for key in keys}
    return [key for key, found in numbers.items() if None not in found and len(set(found)) > 1]


def plot_benchmarks(path: Path, key: str, jobs: Sequence[JobResult], verdict: str) -> None:
    """Draws images a second, and the fill of the queues, against a setting.

    With one combination of the other settings each stage has a line; with more, each combination has one, of pipeline
    and network together, and one for the fill of the queue before the network.

    Args:
        path: The PNG file.
        key: The setting on the horizontal axis.
        jobs: Those of the sweep.
        verdict: Stands above.
    """
    done = [job for job in jobs if job.benchmark is not None]
    lines = _by_others(done, key)
    queues: dict[str, tuple[list[_Point], str]] = {}
    with saved_figure(path, 8.5, 6.4) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        shared = _is_shared(
            [b.rates["network"].median for job in done if (b := job.benchmark) and "network" in b.rates]
        )
        if shared or len(lines) == 1:
            _draw_network(upper, done, key, GREY, "network alone")
        if len(lines) == 1:
            for name, (title, color) in _STAGES.items():
                _draw(upper, _rates(done, key, name), title, color, width=2.4 if name == "training" else 1.4)
            queues = {name: (_fills(done, key, name), color) for name, color in _QUEUES.items()}
        else:
            for number, (label, members) in enumerate(lines.items()):
                color = _COLORS[number % len(_COLORS)]
                _draw(upper, _rates(members, key, "training"), label, color, joined=len(lines) <= _MOST_LINES)
                if len(lines) <= _MOST_LINES:
                    queues[label] = (_fills(members, key, "batch"), color)
                    if not shared:
                        _draw_network(upper, members, key, color)
            if len(lines) <= _MOST_LINES and not shared:
                upper.plot([], [], color=GREY, linestyle="--", linewidth=1.2, label="network alone")
        for label, (points, color) in queues.items():
            _draw(lower, points, f"{label} queue" if len(lines) == 1 else label, color)
        style(upper, "images/s" if len(lines) == 1 else "images/s, pipeline and network together")
        _scale_rates(upper)
        style(lower, "queue fill" if len(lines) == 1 else "batch queue fill")
        lower.set_ylim(-0.04, 1.04)
        lower.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        _scale_setting(lower, key, [job.number_of(key) for job in jobs])
        _mark_failures(lower, key, jobs)
        lower.set_xlabel(_axis_title(key))
        _legend(upper)
        if len(lines) == 1:
            _legend(lower)
        _titles(figure, upper, [f"Images a second against {key}", verdict], _where(done))


def plot_metric(path: Path, key: str, jobs: Sequence[JobResult], metric: str, best: JobResult | None) -> None:
    """Draws a metric, and below it images a second, against a setting; a line for each combination of the others.

    Repeats with other seeds are one point: their mean, with a bar of one standard deviation to each side.

    Args:
        path: The PNG file.
        key: The setting on the horizontal axis.
        jobs: Those of the sweep.
        metric: The metric.
        best: The best job; its point has a ring.
    """
    done = [job for job in jobs if job.finished and math.isfinite(job.metrics.get(metric, math.nan))]
    lines = _by_others(done, key)
    joined = len(lines) <= _MOST_LINES and len(done) > len(lines)
    with_speed = any(job.images_per_sec for job in done)
    with saved_figure(path, 8.5, 6.4 if with_speed else 4.6) as figure:
        heights = [2, 1] if with_speed else [1]
        axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
        upper, bottom = axes[0, 0], axes[-1, 0]
        for number, (label, members) in enumerate(lines.items()):
            color = _COLORS[number % len(_COLORS)] if joined else BLUE
            label = label if joined else ""
            _draw(upper, _points(members, key, lambda job: job.metrics[metric]), label, color, joined)
            if with_speed:
                _draw(bottom, _points(members, key, lambda job: job.images_per_sec), "", color, joined)
        if best is not None and (x := best.number_of(key)) is not None:
            ring = {"markerfacecolor": "none", "markeredgecolor": "black", "markersize": 12, "linestyle": "none"}
            upper.plot([x], [best.metrics[metric]], marker="o", label="best job", **ring)
        style(upper, metric)
        if with_speed:
            style(bottom, "images/s")
            bottom.set_ylim(bottom=0)
        _scale_values(upper, [job.metrics[metric] for job in done])
        _scale_setting(bottom, key, [job.number_of(key) for job in jobs])
        _mark_failures(bottom, key, jobs, metric)
        bottom.set_xlabel(_axis_title(key))
        _legend(upper)
        if with_speed:
            _legend(bottom)
        title = f"{metric} against {key}"
        if best is not None:
            title += f": best {show_value(best.metrics[metric])} with {best.label(list(best.settings))}"
        bars = "mean of the seeds, bars: one standard deviation" if any(SEED in job.settings for job in jobs) else ""
        _titles(figure, upper, [title], bars)


def _by_others(jobs: Sequence[JobResult], key: str) -> dict[str, list[JobResult]]:
    """Returns the jobs by their other swept settings, seeds apart."""
    lines: dict[str, list[JobResult]] = {}
    for job in jobs:
        lines.setdefault(job.label([other for other in job.settings if other not in (key, SEED)]), []).append(job)
    return lines


def _points(jobs: Iterable[JobResult], key: str, value: Callable[[JobResult], float | None]) -> list[_Point]:
    """Returns a point for each value of the setting: mean and standard deviation over its jobs."""
    found: dict[float, list[float]] = {}
    for job in jobs:
        x, y = job.number_of(key), value(job)
        if x is not None and y is not None and math.isfinite(y):
            found.setdefault(x, []).append(y)
    points = []
    for x, values in sorted(found.items()):
        mean = statistics.fmean(values)
        sd = statistics.stdev(values) if len(values) > 1 else 0.0
        points.append(_Point(x, mean, mean - sd, mean + sd))
    return points


def _rates(jobs: Sequence[JobResult], key: str, name: str) -> list[_Point]:
    """Returns a measurement's points: the mean of the medians, bars from the slowest to the fastest round."""
    found: dict[float, list[tuple[float, float, float]]] = {}
    for job in jobs:
        x, benchmark = job.number_of(key), job.benchmark
        if x is not None and benchmark is not None and name in benchmark.rates:
            rate = benchmark.rates[name]
            found.setdefault(x, []).append((rate.median, rate.low, rate.high))
    return [
        _Point(x, statistics.fmean(r[0] for r in rates), min(r[1] for r in rates), max(r[2] for r in rates))
        for x, rates in sorted(found.items())
    ]


def _fills(jobs: Sequence[JobResult], key: str, queue: str) -> list[_Point]:
    def fill(job: JobResult) -> float | None:
        return job.benchmark.fills.get(queue) if job.benchmark is not None else None

    return _points(jobs, key, fill)


def _draw(
    axes: Axes, points: Sequence[_Point], label: str, color: str, joined: bool = True, width: float = 1.6
) -> None:
    if not points:
        return
    bars = [[max(0.0, p.y - p.low) for p in points], [max(0.0, p.high - p.y) for p in points]]
    has_bars = any(bar > 0 for side in bars for bar in side)
    axes.errorbar(
        [p.x for p in points],
        [p.y for p in points],
        bars if has_bars else None,
        label=label or None,
        color=color,
        marker="o",
        markersize=5,
        linewidth=width,
        linestyle="-" if joined else "none",
        elinewidth=1.0,
        capsize=3,
    )


def _draw_network(axes: Axes, jobs: Sequence[JobResult], key: str, color: str, label: str = "") -> None:
    """Draws what the network takes: one line across where that hardly differs between the jobs, else point by point."""
    points = _rates(jobs, key, "network")
    if not points:
        return
    rates = [point.y for point in points]
    line: dict[str, Any] = {"color": color, "linestyle": "--", "linewidth": 1.2, "label": label or None}
    if _is_shared(rates):
        axes.axhline(statistics.fmean(rates), **line)
    else:
        axes.plot([p.x for p in points], rates, **line)


def _is_shared(rates: Sequence[float]) -> bool:
    """Tells whether the network takes the same with every setting, but for what disturbed the measurements."""
    return bool(rates) and max(rates) <= 1.5 * min(rates)


def _scale_setting(axes: Axes, key: str, values: Sequence[float | None]) -> None:
    """Chooses the horizontal axis's scale, and marks the values that were tried where they are few."""
    ticks = sorted({value for value in values if value is not None})
    if len(ticks) < 2:
        return
    wide = ticks[0] > 0 and ticks[-1] / ticks[0] >= 4
    if ticks[0] > 0 and (any(part in key for part in _MAGNITUDES) or ticks[-1] / ticks[0] >= 50):
        axes.set_xscale("log")
    elif wide and all(math.log2(tick).is_integer() for tick in ticks):
        axes.set_xscale("log", base=2)
    if len(ticks) <= 12:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    elif axes.get_xscale() == "log":
        # Plain numbers: the powers of ten that matplotlib writes are formulas, which are switched off here.
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())


def _scale_rates(axes: Axes) -> None:
    """Takes a logarithmic axis where stages are far apart, as reading and a large network are."""
    values = [y for line in axes.get_lines() for y in map(float, np.asarray(line.get_ydata())) if y > 0]
    if values and max(values) / min(values) > 8:
        axes.set_yscale("log")
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        ticks = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5)]
        axes.set_yticks([tick for tick in ticks if min(values) / 2 <= tick <= max(values) * 2])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(min(values) / 1.5, max(values) * 1.5)
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:g}")


def _scale_values(axes: Axes, values: Sequence[float]) -> None:
    """Takes a logarithmic axis where a metric spans more than two decades, as a loss may."""
    if values and min(values) > 0 and max(values) / min(values) > 100:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _mark_failures(axes: Axes, key: str, jobs: Sequence[JobResult], metric: str | None = None) -> None:
    """Marks the values on the axis with which a job left no result."""
    lost = {
        job.number_of(key)
        for job in jobs
        if not job.finished or (metric is not None and not math.isfinite(job.metrics.get(metric, math.nan)))
    }
    xs = sorted(x for x in lost if x is not None and (x > 0 or axes.get_xscale() != "log"))
    if xs:
        at = axes.get_xaxis_transform()
        axes.plot(xs, [0.03] * len(xs), "x", color="black", label="a job without a result", transform=at)


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)


def _titles(figure: Figure, axes: Axes, paragraphs: Sequence[str], subtitle: str) -> None:
    lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, 105)]
    figure.suptitle("\n".join(lines[:_MOST_TITLE_LINES]), fontsize=11, ha="left", x=0.01)
    if subtitle:
        axes.set_title(subtitle, fontsize=9, loc="left", color="#444444")


def _axis_title(key: str) -> str:
    units = {
        "pipeline.threads": "preprocessing threads",
        "pipeline.readers": "threads that read files",
        "pipeline.batch_size": "images",
    }
    return f"{key} ({units[key]})" if key in units else key


def _where(jobs: Sequence[JobResult]) -> str:
    """Says what was measured, as far as it is the same for all jobs."""
    known: list[Mapping[str, object]] = [job.benchmark.where for job in jobs if job.benchmark is not None]
    parts = []
    for name, wording in (("model", "{}"), ("dataset", "on {}"), ("cpu", "{}"), ("num_cpus", "{:g} cores")):
        values = {str(where.get(name)): where.get(name) for where in known}
        if len(values) == 1 and (value := next(iter(values.values()))):
            parts.append(wording.format(value))
    rounds = "medians; bars from the slowest to the fastest round"
    return f"{', '.join(parts)}\n{rounds}" if parts else rounds
