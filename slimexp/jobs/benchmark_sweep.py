"""The end of a sweep of `job=benchmark`: one table, one chart and one verdict from what the jobs have left."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slimexp.evaluation.tables import write_csv
from slimexp.pipeline.doctor.figures import plot_sweep
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import BOTTLENECKS

__all__ = ["RESULT_FILE", "summarize"]

_log = logging.getLogger("slimexp")

RESULT_FILE = "benchmark.json"
# What a job with fewer threads may lack to be taken for as fast.
_AS_FAST = 0.95
_CHART_KEYS = ("pipeline.threads", "pipeline.readers")


@dataclasses.dataclass(frozen=True)
class _Job:
    """What one job has left: its folder's name, the settings in which the jobs differ, its rates and verdict."""

    name: str
    settings: dict[str, Any]
    rates: dict[str, Rate]
    bottleneck: str

    @property
    def label(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.settings.items()) or self.name


def summarize(sweep_dir: Path) -> str | None:
    """Prints a table of a sweep's benchmarks, and writes `sweep.csv` and `sweep.png` into the sweep's folder.

    Args:
        sweep_dir: The folder with one folder a job.

    Returns:
        The verdict on the sweep; None if no job has left a result.
    """
    jobs = _read_jobs(sweep_dir)
    if not jobs:
        return None
    rows = [
        {
            "job": job.name,
            **job.settings,
            **{f"{name}_images_per_sec": rate.median for name, rate in job.rates.items()},
            "bottleneck": job.bottleneck,
        }
        for job in jobs
    ]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    write_csv(sweep_dir / "sweep.csv", [{key: row.get(key) for key in columns} for row in rows])
    _print_table(jobs)
    files = f"{sweep_dir}/sweep.csv"
    if _plot(jobs, sweep_dir / "sweep.png"):
        files += ", sweep.png"
    sentence = _sentence(jobs)
    print(f"\n{sentence}\n\nSweep:       {files}", flush=True)
    return sentence


def _read_jobs(sweep_dir: Path) -> list[_Job]:
    found = []
    for path in sorted(sweep_dir.rglob(RESULT_FILE)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rates = {name: Rate(**rate) for name, rate in content["rates"].items()}
            bottleneck = str(content["verdict"]["bottleneck"])
            settings = dict(content["settings"])
            usable = bottleneck in BOTTLENECKS and "training" in rates and "pipeline" in rates
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read and is left out: %s", path, error)
            continue
        if usable:
            found.append(_Job(str(path.parent.relative_to(sweep_dir)), settings, rates, bottleneck))
    keys = dict.fromkeys(key for job in found for key in job.settings)
    varied = [key for key in keys if len({str(job.settings.get(key)) for job in found}) > 1]
    jobs = [dataclasses.replace(job, settings={k: job.settings.get(k) for k in varied}) for job in found]
    return sorted(jobs, key=lambda job: (len(job.name), job.name))  # 2 before 10.


def _print_table(jobs: Sequence[_Job]) -> None:
    table = Table(box=None, pad_edge=False)
    for key in jobs[0].settings or {"job": None}:
        table.add_column(key.rpartition(".")[2], justify="right")
    for title in ("pipeline images/s", "network", "together"):
        table.add_column(title, justify="right")
    table.add_column("held back by")
    for job in jobs:
        rates = [job.rates.get(name) for name in ("pipeline", "network", "training")]
        shown = ["-" if rate is None else f"{rate.median:,.0f}" for rate in rates]
        names = [str(value) for value in job.settings.values()] or [job.name]
        table.add_row(*names, *shown, job.bottleneck)
    Console().print(table)


def _plot(jobs: Sequence[_Job], path: Path) -> bool:
    """Draws the chart if a setting with numbers was swept over; tells whether it did."""
    keys = [key for key in jobs[0].settings if all(type(job.settings[key]) in (int, float) for job in jobs)]
    keys.sort(key=lambda key: _CHART_KEYS.index(key) if key in _CHART_KEYS else len(_CHART_KEYS))
    if not keys:
        return False
    lines: dict[str, list[tuple[float, Rate]]] = {}
    for job in jobs:
        others = {key: value for key, value in job.settings.items() if key != keys[0]}
        label = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in others.items())
        lines.setdefault(label, []).append((job.settings[keys[0]], job.rates["pipeline"]))
    plot_sweep(path, keys[0], lines, _network(jobs))
    return True


def _network(jobs: Sequence[_Job]) -> float | None:
    """Returns what the network takes, where it is the same for all jobs."""
    rates = [job.rates["network"].median for job in jobs if "network" in job.rates]
    return sum(rates) / len(rates) if rates and max(rates) <= 1.5 * min(rates) else None


def _sentence(jobs: Sequence[_Job]) -> str:
    def speed(job: _Job) -> float:
        return job.rates["training"].median

    fastest = max(jobs, key=speed)
    if len(jobs) == 1 or not fastest.settings:
        return f"{fastest.label}: {speed(fastest):,.0f} images/s. {_held_back(fastest)}"
    modest = min((job for job in jobs if speed(job) >= _AS_FAST * speed(fastest)), key=lambda job: _cost(job.settings))
    told = f"Fastest with the network: {fastest.label}, {speed(fastest):,.0f} images/s"
    if modest is not fastest:
        told += f"; {modest.label} gives {100 * speed(modest) / speed(fastest):.0f} % of that"
    return f"{told}. {_held_back(modest)}"


def _held_back(job: _Job) -> str:
    if job.bottleneck == "balanced":
        return "Network and input keep pace."
    return f"Held back by: {job.bottleneck}."


def _cost(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """Orders settings by the threads that they take."""
    numbers = [settings.get(key) for key in _CHART_KEYS]
    return tuple(float(number) if isinstance(number, (int, float)) else 0.0 for number in numbers)
