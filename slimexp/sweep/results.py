"""What the jobs of a sweep have left in their folders: settings, status, metrics, rates. From files alone.

So the answer can be had again at any time, also of a sweep that broke off or whose jobs all failed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import logging
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import BOTTLENECKS
from slimexp.sweep.identity import short_keys
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, NOT_RUN, RUNNING, SweepJob, first_line, read_sweep
from slimexp.sweep.jobs import RECORD_FILE as SWEEP_FILE
from slimexp.tracking.metrics_file import columns, read_metrics
from slimexp.tracking.record import RECORD_FILE
from slimexp.tracking.run import METRICS_FILE

__all__ = ["BENCHMARK_FILE", "SEED", "Benchmark", "JobResult", "number_or_text", "read_results", "shorten"]

_log = logging.getLogger("slimexp")

BENCHMARK_FILE = "benchmark.json"
# The key whose values make repeats of one and the same setting.
SEED = "seed"
# Overrides that say where a job's results go and not what it does.
_APART = ("run_dir", "output_root", "tracking", "hydra", "sweep", "dry_run")
_UNEXPLAINED = "it ended without a word, as by SIGKILL or for want of memory"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What a job of `job=benchmark` has measured.

    Attributes:
        rates: Images a second by measurement, e.g. `training` for pipeline and network together.
        fills: The mean fill of each queue, 0..1, by its name.
        bottleneck: One of the doctor's `BOTTLENECKS`.
        sentence: The doctor's finding in words.
        advice: What the doctor would set, e.g. `pipeline.threads=6`.
        settings: The pipeline's counts and what the command set, by their keys.
        pipeline: The whole group `pipeline` as it was in effect; None in a result of an older version.
        where: What it was measured on: machine, cores, dataset, model, ...; see `slimexp.jobs.benchmark`.
    """

    rates: dict[str, Rate]
    fills: dict[str, float]
    bottleneck: str
    sentence: str
    advice: tuple[str, ...]
    settings: dict[str, Any]
    pipeline: dict[str, Any] | None
    where: dict[str, Any]

    @property
    def speed(self) -> float:
        """Images a second of pipeline and network together."""
        return self.rates["training"].median


@dataclasses.dataclass(frozen=True)
class JobResult:
    """What one job of a sweep has left.

    Attributes:
        number: Its number in the sweep.
        name: What tells it from the others, e.g. `vgg16 threads=8`.
        folder: Its run folder.
        settings: The swept keys, each with the value of this job as the command gave it; None where it gave none.
        overrides: All that its command set.
        status: FINISHED, FAILED, KILLED, PRUNED, NOT_RUN, or RUNNING while it is.
        reason: Why it did not finish, in a line.
        run_id: Its id in the tracking store.
        secs: How long it ran.
        metrics: The last value of each metric.
        images_per_sec: Of benchmarks pipeline and network together, of others the median of `train/images_per_sec`.
        bottleneck: What held it back, where that was found out.
        benchmark: What `job=benchmark` has measured; None for other jobs and without a result.
    """

    number: int
    name: str
    folder: Path
    settings: dict[str, str | None]
    overrides: tuple[str, ...] = ()
    status: str = FINISHED
    reason: str = ""
    run_id: str | None = None
    secs: float | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    images_per_sec: float | None = None
    bottleneck: str = ""
    benchmark: Benchmark | None = None

    @property
    def finished(self) -> bool:
        """Whether it did all its work; only then it can be the best."""
        return self.status == FINISHED

    def number_of(self, key: str) -> float | None:
        """Returns the value of a swept key as a number, for `auto` the count that was found; None if it is none."""
        value = number_or_text(self.settings.get(key))
        if value == "auto" and self.benchmark is not None:
            value = self.benchmark.settings.get(key)
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None

    def label(self, keys: Sequence[str]) -> str:
        """Names it by some of the swept keys, in their short form."""
        names = short_keys(list(self.settings))
        return " ".join(f"{names[key]}={shorten(self.settings[key])}" for key in keys if self.settings[key] is not None)


def read_results(sweep_dir: Path) -> list[JobResult]:
    """Reads what the jobs of a sweep have left.

    Args:
        sweep_dir: The sweep's folder. Its `sweep.json` lists the jobs; where there is none, as in sweeps of older
            versions, every folder with Hydra's notes or the result of a benchmark is a job.

    Returns:
        One result a job of the command that was started last, by their numbers; empty if there are no jobs.
    """
    entries = read_sweep(sweep_dir).asked if (sweep_dir / SWEEP_FILE).is_file() else _found_jobs(sweep_dir)
    keys = dict.fromkeys(key for entry in entries for key in entry.swept)
    return [_read_job(sweep_dir, entry, keys) for entry in sorted(entries, key=lambda entry: entry.number)]


def number_or_text(value: str | None) -> int | float | str | None:
    """Returns a value of the command line as a number if it is one: `8`, `1e-3`."""
    if value is None:
        return None
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value


def shorten(value: str | None) -> str:
    """Returns a swept value as tables show it: a number that a search has drawn with four digits."""
    number = number_or_text(value)
    if isinstance(number, float) and value is not None and len(value) > 8:
        return f"{number:.4g}"
    return "-" if value is None else value


def _read_job(sweep_dir: Path, entry: SweepJob, keys: Iterable[str]) -> JobResult:
    folder = sweep_dir / entry.dir
    record = _record(folder)
    status, reason = _status(entry.status, entry.reason or "", folder, record)
    result = JobResult(
        number=entry.number,
        name=entry.name or entry.dir,
        folder=folder,
        settings={key: entry.swept.get(key) for key in keys},
        overrides=tuple(entry.overrides),
        status=status,
        run_id=entry.run_id or record.get("run_id"),
        secs=entry.secs,
    )
    if status != NOT_RUN:  # What lies there then is of an earlier start.
        metrics, images_per_sec = _metrics(folder)
        bottleneck = str(record.get("tags", {}).get("bottleneck", ""))
        result = dataclasses.replace(result, metrics=metrics, images_per_sec=images_per_sec, bottleneck=bottleneck)
    is_benchmark = "job=benchmark" in entry.overrides or record.get("params", {}).get("job.name") == "benchmark"
    if status == FINISHED and (is_benchmark or (folder / BENCHMARK_FILE).is_file()):
        benchmark, reason = _read_benchmark(folder / BENCHMARK_FILE)
        if benchmark is None:
            return dataclasses.replace(result, status=FAILED, reason=reason)
        result = dataclasses.replace(
            result, benchmark=benchmark, images_per_sec=benchmark.speed, bottleneck=benchmark.bottleneck
        )
    return dataclasses.replace(result, reason=reason)


def _status(status: str, reason: str, folder: Path, record: Mapping[str, Any]) -> tuple[str, str]:
    """Returns how a job ended and why, also where the sweep itself was ended before it could note that."""
    if status == RUNNING and not _is_locked(folder):
        status = str(record.get("status") or KILLED)
        if status == RUNNING:
            status = KILLED
    if status in (FINISHED, RUNNING):
        return status, ""
    reason = reason or _first_words(str(record.get("message") or "")) or _logged_error(folder)
    if not reason and status != NOT_RUN:
        reason = _UNEXPLAINED if status == KILLED else "it left no result"
    return status, " ".join(first_line(reason).split())


def _is_locked(folder: Path) -> bool:
    """Tells whether a process is running in a job's folder now."""
    try:
        with open(folder / ".lock", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _metrics(folder: Path) -> tuple[dict[str, float], float | None]:
    """Returns the last value of each metric, and the median of the training steps' rate."""
    try:
        found = columns(read_metrics(folder / METRICS_FILE))
    except OSError:
        return {}, None
    last = {name: values[-1] for name, (_, values) in found.items()}
    rates = [rate for rate in found.get("train/images_per_sec", ([], []))[1] if math.isfinite(rate)]
    # The first interval pays for the graph.
    return last, statistics.median(rates[1:] or rates) if rates else None


def _read_benchmark(path: Path) -> tuple[Benchmark | None, str]:
    """Reads a benchmark's result; without one, says why."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rates = {key: Rate(**rate) for key, rate in content["rates"].items()}
        verdict = content["verdict"]
        bottleneck = str(verdict["bottleneck"])
        if bottleneck not in BOTTLENECKS or not {"training", "pipeline"} <= set(rates):
            return None, f"{BENCHMARK_FILE} lacks what a benchmark finds"
        queues = content.get("stats", {}).get("queues", [])
        benchmark = Benchmark(
            rates=rates,
            fills={str(queue["name"]): float(queue["fill_frac"]) for queue in queues},
            bottleneck=bottleneck,
            sentence=str(verdict.get("sentence", "")),
            advice=tuple(map(str, verdict.get("overrides", ()))),
            settings=dict(content["settings"]),
            pipeline=content.get("pipeline"),
            where=dict(content.get("where", {})),
        )
    except FileNotFoundError:
        return None, "it left no result"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s cannot be read and is left out: %s", path, error)
        return None, f"{BENCHMARK_FILE} cannot be read"
    return benchmark, ""


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {key: value for key, value in record.items() if value is not None}


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
    for number in range(starts[-1] + 1 if starts else len(lines), len(lines)):
        if lines[number] and not lines[number][0].isspace():
            kind, separator, rest = "\n".join(lines[number : number + 2]).partition(": ")
            return _first_words(f"{kind.rpartition('.')[2]}{separator}{rest}")
    return ""


def _found_jobs(sweep_dir: Path) -> list[SweepJob]:
    """Makes up the list of jobs of a sweep without one, from their folders."""
    folders = {path.parent for path in sweep_dir.rglob(BENCHMARK_FILE)}
    folders.update(path.parent.parent for path in sweep_dir.rglob(".hydra/overrides.yaml"))
    # 2 before 10.
    names = sorted((str(folder.relative_to(sweep_dir)) for folder in folders), key=lambda name: (len(name), name))
    asked = {name: dict(_overrides(sweep_dir / name)) for name in names}
    keys = dict.fromkeys(key for values in asked.values() for key in values)
    swept = [key for key in keys if len({values.get(key) for values in asked.values()}) > 1]
    jobs = []
    for number, name in enumerate(names):
        status = str(_record(sweep_dir / name).get("status") or FAILED)
        if (sweep_dir / name / BENCHMARK_FILE).is_file() and not _record(sweep_dir / name):
            status = FINISHED
        settings = {key: value for key, value in asked[name].items() if key in swept}
        jobs.append(
            SweepJob(
                number=int(name) if name.isdecimal() else number,
                dir=name,
                name=" ".join(f"{key}={value}" for key, value in settings.items()) or name,
                overrides=[f"{key}={value}" for key, value in asked[name].items()],
                swept=settings,
                hash="",
                status=status,
            )
        )
    return jobs


def _overrides(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields what a job's command set, by key, as Hydra has noted it."""
    try:
        lines = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return
    for line in lines if isinstance(lines, list) else ():
        key, _, value = str(line).lstrip("+~").partition("=")
        if key.split(".")[0] not in _APART:
            yield key, value
