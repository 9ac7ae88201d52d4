"""The verdict on a sweep in plain words: what is best, by how much, whether that is more than chance, what to set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from slimexp.sweep.identity import short_keys
from slimexp.sweep.jobs import PRUNED
from slimexp.sweep.results import SEED, Benchmark, JobResult, number_or_text, shorten
from slimexp.sweep.scores import SPEED, Group, best_of, pipeline_only, without_seed

__all__ = ["Advice", "SweepVerdict", "disturbance", "judge", "show_spread", "show_value"]

# What a job with fewer threads may lack to be taken for as fast.
_AS_FAST = 0.95
# The network's own rates in jobs that do not differ in it lie within this ratio of each other on a quiet machine.
_DISTURBED = 1.25
# What takes threads, the dearer first: of two settings that are as fast, the one with fewer wins.
_COSTS = ("pipeline.threads", "pipeline.readers")
# The chance of a difference as large among equals (Welch's t-test, two-sided) below which it counts as real.
_SIGNIFICANT = 0.05
_MOST_NAMED = 8


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to set for the throughput of one network on one dataset.

    Attributes:
        context: The swept settings that are not the pipeline's, e.g. `model=vgg16`; empty without any.
        job: The job that was measured with what is advised.
        overrides: The pipeline's settings of that job that were swept over, e.g. `pipeline.threads=2`.
        untried: What the job's own verdict would set beyond what the sweep has measured.
    """

    context: str
    job: JobResult
    overrides: tuple[str, ...]
    untried: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SweepVerdict:
    """What a sweep came to.

    Attributes:
        sentence: In plain words.
        best: The best job; None if none finished with a metric to compare.
        overrides: What to enter for the settings of the best job, or of the best group of repeats; of benchmarks for
            those that are advised.
        advice: For benchmarks, what to set; one for each network or dataset that was swept over.
    """

    sentence: str
    best: JobResult | None
    overrides: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()


def judge(jobs: Sequence[JobResult], groups: Sequence[Group], metric: str | None, maximize: bool) -> SweepVerdict:
    """Says what a sweep came to.

    Args:
        jobs: Those of the sweep.
        groups: The same, those with nothing but different seeds together.
        metric: What decides; None if there is nothing to compare by.
        maximize: Whether more of it is better.
    """
    failures = _failures(jobs, metric)
    best = best_of(jobs, metric, maximize)
    benchmarks = [job for job in jobs if job.benchmark is not None]
    if best is None or metric is None:
        done = sum(job.finished for job in jobs)
        told = "" if done == 0 else f"{_count(done, 'job')} finished; there is no metric to compare by."
        if metric is not None and done:
            told = f"{_count(done, 'job')} finished, none with a finite {metric}."
        return SweepVerdict(f"{told} {failures}".strip(), None)
    advice = tuple(_advise(benchmarks))
    if benchmarks and metric == SPEED and maximize:
        told = " ".join(_throughput(one, [job for job in benchmarks if _context(job) == one.context]) for one in advice)
        overrides = advice[0].overrides if len(advice) == 1 else best_overrides(best, without_seed(best.settings))
    else:
        told, winner = _compare(jobs, groups, metric, maximize, best)
        overrides = best_overrides(winner.jobs[0], winner.settings)
    return SweepVerdict(f"{told} {failures}".strip(), best, overrides, advice)


def best_overrides(job: JobResult, keys: Iterable[str]) -> tuple[str, ...]:
    """Returns what a job's command set of some of the swept keys, as it stood there: with its plus signs and quotes."""
    asked = {override.lstrip("+~").partition("=")[0]: override for override in job.overrides}
    values = {key: job.settings.get(key) for key in keys}
    return tuple(asked.get(key, f"{key}={value}") for key, value in values.items() if value is not None)


def show_value(value: float | None) -> str:
    """Writes a metric with four digits: 0.9833, 1,250, 2.5e-05."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 0.001 or value == 0:
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.4g}"
    return f"{value:.3g}"


def show_spread(mean: float, sd: float) -> str:
    """Writes a mean and a standard deviation with as many decimals as tell something: 0.9834 ± 0.0039, 505 ± 22."""
    if max(abs(mean), sd) < 0.001:
        return f"{mean:.3g} ± {sd:.2g}"
    decimals = 4 if max(abs(mean), sd) < 10 else (1 if abs(mean) < 100 else 0)
    return f"{mean:,.{decimals}f} ± {sd:,.{decimals}f}" if sd >= 10**-decimals or sd == 0 else f"{mean:.4f} ± {sd:.2g}"


# ---- Metrics ----


def _compare(
    jobs: Sequence[JobResult], groups: Sequence[Group], metric: str, maximize: bool, best: JobResult
) -> tuple[str, Group]:
    """Tells the best setting and how far ahead it is, and returns its jobs."""
    ranked = sorted(
        (group for group in groups if group.values),
        key=lambda group: (-group.mean if maximize else group.mean, -_speed(group), group.jobs[0].number),
    )
    first = ranked[0]
    repeated = any(SEED in job.settings for job in jobs)
    label = first.label or ("all jobs" if repeated else best.name)
    told = f"Best by {metric} ({'more' if maximize else 'less'} is better): {label}, {_spread(first)}"
    if repeated and first.label:
        told += f" (the best single job is {best.name}, {show_value(best.metrics[metric])})"
    if len(ranked) == 1:
        return f"{told}.", first
    second = ranked[1]
    equals = [group for group in ranked if group.mean == first.mean]
    if len(equals) > 1:
        held = f" {_held_back(first.jobs[0].bottleneck)}" if first.jobs[0].bottleneck else ""
        faster = f"; of these it is the fastest, {_speed(first):,.0f} images/s" if _speed(first) else ""
        which = "all" if len(equals) == len(ranked) else f"{len(equals)} of {len(ranked)}"
        return f"{told}, and the same for {which} settings{faster}.{held}", first
    ahead = abs(first.mean - second.mean)
    told += f"; {show_value(ahead)} ahead of {second.label or second.jobs[0].name} ({_spread(second)})"
    told = f"{told}. {_chance(first, second)}{_at_the_edge(ranked)}"
    return f"{told}{_fastest(ranked) if pipeline_only(jobs) else ''}", first


def _chance(first: Group, second: Group) -> str:
    """Says whether the difference between two groups exceeds what their seeds make of it."""
    if first.sd is None or second.sd is None:
        return "Without repeats chance cannot be told from it: sweep over seed=0,1,2 as well."
    if first.sd == 0 and second.sd == 0:
        return f"The {_repeats(first)} make no difference, so it is none of chance."
    # It takes a second to import, and ships no types.
    from scipy.stats import ttest_ind_from_stats  # type: ignore[import-untyped]

    test = ttest_ind_from_stats(
        first.mean, first.sd, len(first.values), second.mean, second.sd, len(second.values), equal_var=False
    )
    chance = float(test.pvalue)
    told = f"Welch's t-test over the {_repeats(first)}: p = {chance:.2g}"
    if chance < _SIGNIFICANT:
        return f"That is more than the {_repeats(first)} make of it ({told})."
    return f"That is within the noise of the {_repeats(first)} ({told})."


def _at_the_edge(ranked: Sequence[Group]) -> str:
    """Says that the best value of a number is the last one that was tried, so that the best may lie beyond."""
    names = short_keys(list(ranked[0].settings))
    told = ""
    for key, value in ranked[0].settings.items():
        if key in _COSTS:  # More of these costs something, and changes no result.
            continue
        tried = sorted({number for group in ranked if (number := group.jobs[0].number_of(key)) is not None})
        best = ranked[0].jobs[0].number_of(key)
        if len(tried) >= 3 and best in (tried[0], tried[-1]):
            which = "smallest" if best == tried[0] else "largest"
            told += f" {names[key]}={shorten(value)} is the {which} that was tried: the best may lie beyond it."
    return told


def _spread(group: Group) -> str:
    if group.sd is None:
        return show_value(group.mean)
    return f"{show_spread(group.mean, group.sd)} over {len(group.values)} {_repeats(group)}"


def _repeats(group: Group) -> str:
    """Says what repeats of one setting are: other seeds, or the same once more."""
    return "seeds" if len({job.settings.get(SEED) for job in group.jobs}) > 1 else "runs"


def _speed(group: Group) -> float:
    rates = [job.images_per_sec for job in group.jobs if job.finished and job.images_per_sec]
    return sum(rates) / len(rates) if rates else 0.0


def _fastest(groups: Sequence[Group]) -> str:
    """Says which setting trained fastest, and what held it back."""
    fastest = max(groups, key=_speed)
    if not _speed(fastest):
        return ""
    held = f" {_held_back(fastest.jobs[0].bottleneck)}" if fastest.jobs[0].bottleneck else ""
    return f" Fastest: {fastest.label}, {_speed(fastest):,.0f} images/s.{held}"


# ---- Throughput ----


def _advise(jobs: Sequence[JobResult]) -> list[Advice]:
    """Returns what to set for each network or dataset among benchmarks: of settings as fast, the most modest."""
    contexts: dict[str, list[JobResult]] = {}
    for job in jobs:
        contexts.setdefault(_context(job), []).append(job)
    found = []
    for context, members in contexts.items():
        modest = _modest(members)
        assert modest.benchmark is not None
        # One alone, of a sweep that broke off, was compared with nothing.
        swept = [key for key in modest.settings if key.startswith("pipeline.") and len(members) > 1]
        found.append(Advice(context, modest, best_overrides(modest, swept), _untried(modest.benchmark, members)))
    return found


def _context(job: JobResult) -> str:
    """Names what a job measured, apart from how the pipeline was set and what repeats it."""
    return job.label([key for key in job.settings if not key.startswith("pipeline.") and key != SEED])


def _modest(jobs: Sequence[JobResult]) -> JobResult:
    fastest = max(_rate(job) for job in jobs)
    return min((job for job in jobs if _rate(job) >= _AS_FAST * fastest), key=lambda job: (_cost(job), -_rate(job)))


def _rate(job: JobResult) -> float:
    assert job.benchmark is not None
    return job.benchmark.speed


def _cost(job: JobResult) -> tuple[float, ...]:
    return tuple(job.number_of(key) or 0.0 for key in _COSTS)


def _untried(benchmark: Benchmark, jobs: Sequence[JobResult]) -> tuple[str, ...]:
    """Returns what a verdict advises and no job has tried, values beyond the largest one tried included."""
    untried = []
    for override in benchmark.advice:
        key, _, value = override.partition("=")
        tried = [job.number_of(key) for job in jobs if key in job.settings]
        most = max((number for number in tried if number is not None), default=None)
        number: Any = number_or_text(value)
        if key not in jobs[0].settings or (most is not None and isinstance(number, (int, float)) and number > most):
            untried.append(override)
    return tuple(untried)


def _throughput(advice: Advice, jobs: Sequence[JobResult]) -> str:
    """Tells which setting of the pipeline is the fastest, which one will do, and what holds that one back."""
    where = f"{advice.context}: " if advice.context else ""
    keys = [key for key in jobs[0].settings if key.startswith("pipeline.")]
    names = {id(job): job.label(keys) or job.name for job in jobs}
    ranked = sorted(jobs, key=_rate, reverse=True)
    fastest = ranked[0]
    if len(jobs) == 1:
        name = "" if where else f"{names[id(fastest)]}: "
        return f"{where}{name}{_rate(fastest):,.0f} images/s. {_held_back(fastest.bottleneck)}"
    told = f"{where}Fastest with the network: {names[id(fastest)]}, {_rate(fastest):,.0f} images/s{_ahead(ranked)}"
    modest = advice.job
    if modest is not fastest:
        told += f"; {names[id(modest)]} gives {100 * _rate(modest) / _rate(fastest):.0f} % of that"
    untried = f" Not tried: {' '.join(advice.untried)}." if advice.untried else ""
    note = f" {disturbed}" if (disturbed := disturbance(jobs)) else ""
    return f"{told}. {_held_back(modest.bottleneck)}{untried}{note}"


def disturbance(jobs: Sequence[JobResult]) -> str:
    """Says that the machine was busy with something else where the network's own rate shows it; else nothing.

    Args:
        jobs: Benchmarks of one network that differ in settings of the pipeline.
    """
    if "pipeline.batch_size" in jobs[0].settings:  # The one setting here that the network notices.
        return ""
    found = [b.rates["network"].median for job in jobs if (b := job.benchmark) is not None and "network" in b.rates]
    if not found or max(found) <= _DISTURBED * min(found):
        return ""
    return (
        f"The network alone, which none of these settings touches, came to {min(found):,.0f} in one job and to "
        f"{max(found):,.0f} images/s in another: something disturbed the measurement, so run it again on a quiet "
        "machine, or with more benchmark.rounds."
    )


def _ahead(ranked: Sequence[JobResult]) -> str:
    """Says by how much the fastest is ahead, and whether the rounds of the measurement say so too."""
    first, second = (job.benchmark.rates["training"] for job in ranked[:2] if job.benchmark is not None)
    if not second.median:
        return ""
    percent = 100 * (first.median / second.median - 1)
    noise = " (within the noise: the rounds overlap)" if first.low <= second.high else ""
    return f", {percent:.0f} % ahead of the next{noise}"


def _held_back(bottleneck: str) -> str:
    if bottleneck == "balanced":
        return "Network and input keep pace."
    return f"Held back by: {bottleneck}."


# ---- What did not work ----


def _failures(jobs: Sequence[JobResult], metric: str | None) -> str:
    """Names the jobs that came to no end, by their settings, and counts those without a finite metric."""
    told = []
    odd = [job for job in jobs if job.finished and not math.isfinite(job.metrics.get(metric or "", 0.0))]
    if odd:
        told.append(f"{len(odd)} of {_count(len(jobs), 'job')} ended with {metric} not finite ({_named(odd)}).")
    failed = [job for job in jobs if not job.finished and job.status != PRUNED]
    if failed:
        told.append(f"{len(failed)} of {_count(len(jobs), 'job')} did not finish ({_named(failed, status=True)}).")
    pruned = [job for job in jobs if job.status == PRUNED]
    if pruned:
        told.append(f"{len(pruned)} of {_count(len(jobs), 'job')} pruned, as they fell behind ({_named(pruned)}).")
    return " ".join(told)


def _named(jobs: Sequence[JobResult], status: bool = False) -> str:
    named = [job.label(list(job.settings)) or job.name for job in jobs[:_MOST_NAMED]]
    if status:
        named = [f"{name}: {job.status}" for name, job in zip(named, jobs, strict=False)]
    more = f"; and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
    return f"{'; '.join(named)}{more}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
