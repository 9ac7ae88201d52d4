"""The table of a sweep: on the screen, as `sweep.csv`, and over repeats as `sweep_groups.csv`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slimexp.evaluation.tables import write_csv
from slimexp.sweep.identity import short_keys
from slimexp.sweep.results import JobResult, shorten
from slimexp.sweep.scores import Group
from slimexp.sweep.verdict import show_spread, show_value

__all__ = ["print_groups", "print_jobs", "write_groups_csv", "write_jobs_csv"]

# Shown beside the metric that decides, as far as there is room.
_MORE_METRICS = ("eval/mean_average_precision", "eval/top1", "eval/loss", "train/loss")
_MOST_METRICS = 3
# Where the output goes into a file, lines need not end at the 80 columns that rich assumes.
_FILE_COLUMNS = 180
# The rates of a benchmark, by their column.
_RATES = {"pipeline": "pipeline", "network": "network", "training": "together"}


def print_jobs(jobs: Sequence[JobResult], metric: str | None, best: JobResult | None) -> None:
    """Prints a line a job: what was swept, its status, metrics and speed, and what held it back or why it failed.

    Args:
        jobs: Those of the sweep.
        metric: The one that decides.
        best: The job to mark.
    """
    names = short_keys(list(jobs[0].settings))
    columns: list[tuple[str, bool, Callable[[JobResult], str]]] = [("#", True, lambda job: str(job.number))]
    for key, name in names.items():
        columns.append((name, True, lambda job, key=key: shorten(job.settings[key])))  # type: ignore[misc]
    if not names:
        columns.append(("name", False, lambda job: job.name))
    columns.append(("status", False, lambda job: f"{job.status}, best" if job is best else job.status))
    for shown in _shown_metrics(jobs, metric):
        columns.append((shown, True, lambda job, name=shown: show_value(job.metrics.get(name))))  # type: ignore[misc]
    if any(job.benchmark is not None for job in jobs):
        for rate, title in _RATES.items():
            columns.append((f"{title} images/s", True, lambda job, rate=rate: _rate(job, rate)))  # type: ignore[misc]
    elif any(job.images_per_sec for job in jobs):
        columns.append(("images/s", True, lambda job: f"{job.images_per_sec:,.0f}" if job.images_per_sec else "-"))
    if any(job.bottleneck or job.reason for job in jobs):
        failed = any(job.reason for job in jobs)
        title = "held back by, or reason" if failed else "held back by"
        columns.append((title, False, lambda job: job.reason or job.bottleneck))
    _print(columns, jobs, best)


def print_groups(groups: Sequence[Group], metric: str | None) -> None:
    """Prints a line for each setting that was repeated with other seeds: how many, mean and standard deviation.

    Args:
        groups: In any order.
        metric: The one that decides.
    """
    names = short_keys(list(groups[0].settings))
    columns: list[tuple[str, bool, Callable[[Group], str]]] = []
    for key, name in names.items():
        columns.append((name, True, lambda group, key=key: shorten(group.settings[key])))  # type: ignore[misc]
    columns.append(("seeds", True, lambda group: _seeds(group)))
    for shown in _shown_metrics([job for group in groups for job in group.jobs], metric):
        columns.append((shown, True, lambda group, name=shown: _mean_sd(_values(group, name))))  # type: ignore[misc]
    if any(job.images_per_sec for group in groups for job in group.jobs):
        columns.append(("images/s", True, lambda group: _mean_sd(_speeds(group))))
    _print(columns, groups)


def write_jobs_csv(path: Path, jobs: Sequence[JobResult], best: JobResult | None) -> None:
    """Writes every job with all that is known of it: settings, status, reason, run id and the last of each metric."""
    names = sorted({name for job in jobs for name in job.metrics})
    rows: list[dict[str, Any]] = [
        {
            "number": job.number,
            "name": job.name,
            **job.settings,
            "status": job.status,
            "reason": job.reason,
            "best": "best" if job is best else None,
            "run_id": job.run_id,
            "secs": job.secs,
            "images_per_sec": job.images_per_sec,
            "bottleneck": job.bottleneck,
            "overrides": " ".join(job.overrides),
            "folder": str(job.folder),
            # A swept number is logged as a metric too; its column is there already.
            **{name: job.metrics.get(name) for name in names if name not in job.settings},
        }
        for job in jobs
    ]
    write_csv(path, rows)


def write_groups_csv(path: Path, groups: Sequence[Group]) -> None:
    """Writes a line for each setting: how many seeds it was run with, mean and standard deviation of each metric."""
    names = sorted({name for group in groups for job in group.jobs for name in job.metrics})
    rows = []
    for group in groups:
        row: dict[str, Any] = {**group.settings, "jobs": len(group.jobs)}
        row["finished"] = sum(job.finished for job in group.jobs)
        for name, values in (
            ("images_per_sec", _speeds(group)),
            *((name, _values(group, name)) for name in names if name not in group.settings and name != "seed"),
        ):
            row[f"{name} n"] = len(values)
            row[f"{name} mean"] = statistics.fmean(values) if values else None
            row[f"{name} sd"] = statistics.stdev(values) if len(values) > 1 else None
        rows.append(row)
    write_csv(path, rows)


def _print(columns: Sequence[tuple[str, bool, Callable[[Any], str]]], rows: Sequence[Any], best: Any = None) -> None:
    table = Table(box=None, pad_edge=False)
    for title, right, _ in columns:
        table.add_column(Text(title), justify="right" if right else "left", overflow="fold")
    for row in rows:
        # Text: a message may hold what looks like markup.
        table.add_row(*(Text(cell(row)) for _, _, cell in columns), style="bold" if row is best else None)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_COLUMNS)
    console.print(table)


def _shown_metrics(jobs: Sequence[JobResult], metric: str | None) -> list[str]:
    known = {name for job in jobs for name in job.metrics}
    shown = [name for name in dict.fromkeys((metric, *_MORE_METRICS)) if name in known][:_MOST_METRICS]
    # A benchmark's speeds have columns of their own.
    return [name for name in shown if name is not None and not name.endswith("images_per_sec")]


def _rate(job: JobResult, name: str) -> str:
    if job.benchmark is None or name not in job.benchmark.rates:
        return "-"
    return f"{job.benchmark.rates[name].median:,.0f}"


def _seeds(group: Group) -> str:
    done = sum(job.finished for job in group.jobs)
    return str(done) if done == len(group.jobs) else f"{done} of {len(group.jobs)}"


def _values(group: Group, name: str) -> list[float]:
    found = (job.metrics.get(name, math.nan) for job in group.jobs if job.finished)
    return [value for value in found if math.isfinite(value)]


def _speeds(group: Group) -> list[float]:
    return [job.images_per_sec for job in group.jobs if job.finished and job.images_per_sec]


def _mean_sd(values: Sequence[float]) -> str:
    if len(values) > 1:
        return show_spread(statistics.fmean(values), statistics.stdev(values))
    return show_value(values[0]) if values else "-"
