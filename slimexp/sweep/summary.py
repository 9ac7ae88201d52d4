"""The answer of a sweep: table, CSV files, charts, verdict, and what to set. From the files in its folder alone."""

from __future__ import annotations

import dataclasses
import math
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from slimexp.errors import UserError
from slimexp.sweep.charts import write_charts
from slimexp.sweep.jobs import RECORD_FILE, Sweep, read_sweep
from slimexp.sweep.results import SEED, JobResult, read_results
from slimexp.sweep.scores import best_of, choose_metric, group_by_seed, is_maximized
from slimexp.sweep.table import print_groups, print_jobs, write_groups_csv, write_jobs_csv
from slimexp.sweep.tuned import adopt_tuned, tuned_text, write_tuned
from slimexp.sweep.verdict import Advice, SweepVerdict, disturbance, judge

__all__ = ["DIRECTIONS", "Summary", "summarize"]

DIRECTIONS = ("maximize", "minimize")


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a sweep came to, for its run in the tracking store.

    Attributes:
        sentence: The verdict in plain words.
        metric: What decided; None if there was nothing to compare by.
        maximize: Whether more of it is better.
        best: The best job's number; None without one.
        best_run_id: Its id in the tracking store.
        overrides: What to set.
        metrics: Numbers of the sweep as a whole.
        tags: The verdict and what to set.
        files: Tables, charts and settings.
        error: What is wrong with the metric that was asked for; another one decided then.
    """

    sentence: str
    metric: str | None = None
    maximize: bool = True
    best: int | None = None
    best_run_id: str | None = None
    overrides: tuple[str, ...] = ()
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    files: tuple[Path, ...] = ()
    error: str | None = None


def summarize(
    sweep_dir: Path, metric: str | None = None, direction: str | None = None, start_dir: Path | None = None
) -> Summary | None:
    """Prints what a sweep came to, and writes it into the sweep's folder.

    On the screen a table of the jobs with the best one marked, one over repeats with other seeds, and the verdict; as
    files `sweep.csv`, `sweep_groups.csv` (with seeds), a chart for each swept number, and after a sweep of benchmarks
    over the pipeline's settings `pipeline/tuned.yaml`. Also for a sweep that broke off or whose jobs all failed.

    Args:
        sweep_dir: The sweep's folder.
        metric: What decides; None for `sweep.metric`, and without that by what the jobs have, see `choose_metric`.
        direction: `maximize` or `minimize`; None for `sweep.direction`, and without that by the metric's name.
        start_dir: The folder that the sweep was started in, whose `conf/` then gets the settings for `pipeline=tuned`.

    Returns:
        What it came to; None if there are no jobs.
    """
    record = read_sweep(sweep_dir) if (sweep_dir / RECORD_FILE).is_file() else Sweep()
    jobs = read_results(sweep_dir)
    if not jobs:
        return None
    asked, error = metric or record.metric, None
    try:
        chosen = choose_metric(jobs, asked)
    except UserError as problem:
        # A night's work gets its table all the same.
        chosen, error = choose_metric(jobs), str(problem)
    maximize = is_maximized(chosen, direction or record.direction if error is None else None)
    best = best_of(jobs, chosen, maximize)
    groups = group_by_seed(jobs, chosen)
    verdict = judge(jobs, groups, chosen, maximize)

    files = [sweep_dir / "sweep.csv"]
    print_jobs(jobs, chosen, best)
    write_jobs_csv(files[0], jobs, best)
    if any(SEED in job.settings for job in jobs):
        print()
        print_groups(groups, chosen)
        files.append(sweep_dir / "sweep_groups.csv")
        write_groups_csv(files[-1], groups)
    files += write_charts(sweep_dir, jobs, chosen, verdict.sentence, best)
    lines = [f"\n{verdict.sentence}\n", *_what_to_set(verdict)]
    tuned = _tune(sweep_dir, record, jobs, verdict.advice, start_dir)
    if tuned is not None:
        files += tuned[0]
        lines.append(f"Tuned:        {tuned[1]}")
    lines.append(f"Results:      {', '.join(str(path.relative_to(sweep_dir)) for path in files)}")
    print("\n".join(lines), flush=True)
    if error is not None:
        print(f"slimexp: error: {error}", file=sys.stderr, flush=True)
    return Summary(
        sentence=verdict.sentence,
        metric=chosen,
        maximize=maximize,
        best=best.number if best else None,
        best_run_id=best.run_id if best else None,
        overrides=verdict.overrides,
        metrics=_metrics(jobs, chosen, best),
        tags=_tags(verdict, chosen, best),
        files=tuple(files),
        error=error,
    )


def _what_to_set(verdict: SweepVerdict) -> list[str]:
    """Returns lines to paste: one for each network or dataset that benchmarks were made of."""
    if len(verdict.advice) > 1:
        return [
            f"Set:          {shlex.join(one.overrides)}  ({one.context})" for one in verdict.advice if one.overrides
        ]
    return [f"Set:          {shlex.join(verdict.overrides)}"] if verdict.overrides else []


def _tune(
    sweep_dir: Path, record: Sweep, jobs: Sequence[JobResult], advice: Sequence[Advice], start_dir: Path | None
) -> tuple[list[Path], str] | None:
    """Writes the advised settings as an option of the group `pipeline`; returns the file and what to say of it."""
    known = [one for one in advice if one.overrides and one.job.benchmark is not None]
    if not known or known[0].job.benchmark is None or known[0].job.benchmark.pipeline is None:
        return None
    if len({one.overrides for one in known}) > 1:
        return [], f"nothing for pipeline=tuned, as not all want the same; sweep with {known[0].context} alone."
    found = known[0].job.benchmark
    notes = [f"not tried: {' '.join(known[0].untried)}."] if known[0].untried else []
    if len(advice) == 1:
        notes.append(disturbance([job for job in jobs if job.benchmark is not None]))
    text = tuned_text(
        known[0].job.benchmark.pipeline,
        (),
        where=found.where,
        rates=found.rates,
        command=shlex.join(record.command) or f"a sweep in {sweep_dir}",
        note=" ".join(notes),
    )
    path = write_tuned(sweep_dir, text)
    if start_dir is not None:
        return [path], adopt_tuned(start_dir, text)
    return [path], f"--config-dir={sweep_dir} pipeline=tuned takes these settings"


def _metrics(jobs: Sequence[JobResult], metric: str | None, best: JobResult | None) -> dict[str, float]:
    found: dict[str, float] = {
        "sweep/jobs": len(jobs),
        "sweep/finished": sum(job.finished for job in jobs),
        "sweep/failed": sum(job.status == "FAILED" for job in jobs),
    }
    if best is not None and metric is not None:
        values = [job.metrics[metric] for job in jobs if job.finished and metric in job.metrics]
        finite = [value for value in values if math.isfinite(value)]
        found[f"best/{metric}"] = best.metrics[metric]
        found[f"mean/{metric}"] = statistics.fmean(finite)
        if best.images_per_sec:
            found["best/images_per_sec"] = best.images_per_sec
        # As the jobs have them: the parent's line in the UI then shows the values of the best.
        for key in best.settings:
            if (number := best.number_of(key)) is not None:
                found[f"best/{key}"] = number
    return found


def _tags(verdict: SweepVerdict, metric: str | None, best: JobResult | None) -> dict[str, str]:
    tags = {"sweep.verdict": verdict.sentence}
    if metric is not None:
        tags["sweep.metric"] = metric
    if best is not None:
        tags["sweep.best"] = best.name
        if best.run_id:
            tags["sweep.best_run_id"] = best.run_id
        if best.bottleneck:
            tags["bottleneck"] = best.bottleneck
    if verdict.overrides:
        tags["sweep.set"] = shlex.join(verdict.overrides)
    return tags
