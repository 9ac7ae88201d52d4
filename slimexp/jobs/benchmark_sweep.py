"""The end of a sweep of `job=benchmark`: one table, one chart and one verdict from what the jobs have left."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table
from rich.text import Text
from yaml import YAMLError

from slimexp.evaluation.tables import write_csv
from slimexp.pipeline.doctor.figures import plot_sweep
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import BOTTLENECKS
from slimexp.tracking.tracker import RECORD_FILE

__all__ = ["RESULT_FILE", "summarize"]

_log = logging.getLogger("slimexp")

RESULT_FILE = "benchmark.json"
# What a job with fewer threads may lack to be taken for as fast.
_AS_FAST = 0.95
_CHART_KEYS = ("pipeline.threads", "pipeline.readers")


# Overrides that say where a job's results go and not what it measures.
_APART = ("job", "run_dir", "output_root", "tracking", "hydra")


@dataclasses.dataclass(frozen=True)
class _Job:
    """What one job has left.

    Attributes:
        name: Its folder's name.
        asked: What its command set.
        settings: What it ran with, as far as it is on record; later those settings in which the jobs differ.
        rates: Its rates; none if it came to no end.
        bottleneck: What held it back.
        status: FINISHED, FAILED or KILLED.
        reason: Why it came to no end, in words.
    """

    name: str
    asked: dict[str, Any]
    settings: dict[str, Any]
    rates: dict[str, Rate]
    bottleneck: str
    status: str = "FINISHED"
    reason: str = ""

    @property
    def label(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.settings.items()) or self.name


def summarize(sweep_dir: Path) -> str | None:
    """Prints a table of a sweep's benchmarks, and writes `sweep.csv` and `sweep.png` into the sweep's folder.

    Args:
        sweep_dir: The folder with one folder a job.

    Returns:
        The verdict on the sweep, which names the jobs that have left no result; None if there were no jobs.
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
            "status": job.status,
            "reason": job.reason,
        }
        for job in jobs
    ]
    # The rates stand together, though a job at the start may have none.
    rows.sort(key=lambda row: len(row), reverse=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    rows.sort(key=lambda row: (len(row["job"]), row["job"]))
    write_csv(sweep_dir / "sweep.csv", [{key: row.get(key) for key in columns} for row in rows])
    _print_table(jobs)
    files = f"{sweep_dir}/sweep.csv"
    done = [job for job in jobs if job.rates]
    if done and _plot(done, sweep_dir / "sweep.png"):
        files += ", sweep.png"
    sentence = _sentence(done) + _failures(jobs) if done else _failures(jobs).strip()
    print(f"\n{sentence}\n\nSweep:       {files}", flush=True)
    return sentence


def _read_jobs(sweep_dir: Path) -> list[_Job]:
    """Reads what each job's folder says, with the settings in which the jobs differ, whether or not they ended well."""
    folders = {path.parent for path in sweep_dir.rglob(RESULT_FILE)}
    folders.update(path.parent.parent for path in sweep_dir.rglob(".hydra/overrides.yaml"))
    found = [job for job in (_read_job(folder, sweep_dir) for folder in folders) if job is not None]
    found.sort(key=lambda job: (len(job.name), job.name))  # 2 before 10.
    done = [job for job in found if job.rates]
    keys = dict.fromkeys(key for job in found for key in (*job.settings, *job.asked))
    varied = [
        key
        for key in keys
        if len({str(job.settings.get(key)) for job in done}) > 1 or len({str(job.asked.get(key)) for job in found}) > 1
    ]
    return [
        dataclasses.replace(job, settings={key: job.settings.get(key, job.asked.get(key)) for key in varied})
        for job in found
    ]


def _read_job(folder: Path, sweep_dir: Path) -> _Job | None:
    """Returns what a job has left; None if it was none of `job=benchmark`."""
    name, asked = str(folder.relative_to(sweep_dir)), _overrides(folder)
    record = _record(folder)
    status = str(record.get("status") or "FAILED")
    if record.get("params", {}).get("job.name", "benchmark") != "benchmark":
        return None
    path = folder / RESULT_FILE
    reason = ""
    # A result beside the record of a failure is of an earlier job in the same folder.
    if path.is_file() and (not record or status == "FINISHED"):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rates = {key: Rate(**rate) for key, rate in content["rates"].items()}
            bottleneck = str(content["verdict"]["bottleneck"])
            settings = dict(content["settings"])
            if bottleneck in BOTTLENECKS and {"training", "pipeline"} <= set(rates):
                return _Job(name, asked, settings, rates, bottleneck)
            reason = f"{RESULT_FILE} lacks what a benchmark finds"
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read and is left out: %s", path, error)
            reason = f"{RESULT_FILE} cannot be read"
        return _Job(name, asked, {}, {}, "", "FAILED", reason)
    if status == "RUNNING":  # The sweep is over: it was ended from outside, before it could say so.
        status, reason = "KILLED", "it ended without a word, as by SIGKILL or for want of memory"
    reason = reason or _first_words(str(record.get("message") or "")) or _logged_error(folder) or "it left no result"
    return _Job(name, asked, {}, {}, "", status if status == "KILLED" else "FAILED", reason)


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _overrides(folder: Path) -> dict[str, Any]:
    """Returns what a job's command set, by key, as Hydra has noted it."""
    try:
        lines = OmegaConf.to_container(OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException):
        return {}
    pairs = (str(line).lstrip("+~").partition("=") for line in lines) if isinstance(lines, list) else ()
    return {key: _number_or_text(value) for key, _, value in pairs if key.split(".")[0] not in _APART}


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value


def _first_words(message: str) -> str:
    """Returns a message's first line without the error's name; with the next one, where the first only announces it."""
    kind, separator, rest = message.strip().partition(": ")
    lines = (rest if separator and kind.isidentifier() else message).strip().splitlines()
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1].strip()}"
    return lines[0] if lines else ""


def _logged_error(folder: Path) -> str:
    """Returns the first line of the last error whose traceback a job's log holds."""
    try:
        lines = (folder / "slimexp.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (")]
    for number, line in enumerate(lines[starts[-1] + 1 :] if starts else (), starts[-1] + 1 if starts else 0):
        if line and not line[0].isspace():
            error = "\n".join(lines[number : number + 2])
            kind, separator, rest = error.partition(": ")
            return _first_words(f"{kind.rpartition('.')[2]}{separator}{rest}")
    return ""


def _print_table(jobs: Sequence[_Job]) -> None:
    table = Table(box=None, pad_edge=False)
    for key in jobs[0].settings or {"job": None}:
        table.add_column(key.rpartition(".")[2], justify="right")
    for title in ("pipeline images/s", "network", "together"):
        table.add_column(title, justify="right")
    table.add_column("held back by", overflow="fold")
    for job in jobs:
        rates = [job.rates.get(name) for name in ("pipeline", "network", "training")]
        shown = ["-" if rate is None else f"{rate.median:,.0f}" for rate in rates]
        names = ["-" if value is None else str(value) for value in job.settings.values()] or [job.name]
        last = job.bottleneck if job.rates else f"{job.status}: {job.reason}"
        # Text: a message may hold what looks like markup.
        table.add_row(*(Text(cell) for cell in (*names, *shown, last)))
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


def _failures(jobs: Sequence[_Job]) -> str:
    """Names the jobs that came to no end, by their settings."""
    failed = [job for job in jobs if not job.rates]
    if not failed:
        return ""
    named = "; ".join(f"{job.label}: {job.status}" for job in failed)
    return f" {len(failed)} of {len(jobs)} jobs left no result ({named})."


def _held_back(job: _Job) -> str:
    if job.bottleneck == "balanced":
        return "Network and input keep pace."
    return f"Held back by: {job.bottleneck}."


def _cost(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """Orders settings by the threads that they take."""
    numbers = [settings.get(key) for key in _CHART_KEYS]
    return tuple(float(number) if isinstance(number, (int, float)) else 0.0 for number in numbers)
