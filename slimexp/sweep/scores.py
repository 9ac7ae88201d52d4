"""Which job of a sweep is the best, by which metric, and what repeats with other seeds say about it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from slimexp.errors import UserError
from slimexp.sweep.results import SEED, JobResult
from slimexp.validation import nearest

__all__ = ["SPEED", "Group", "best_of", "choose_metric", "group_by_seed", "is_maximized", "pipeline_only"]

# Pipeline and network together, of `job=benchmark`.
SPEED = "benchmark/training_images_per_sec"
# What decides unless `sweep.metric` says otherwise: the first that there is.
_DEFAULTS = (SPEED, "eval/mean_average_precision", "eval/top1", "train/loss")
# Parts of the names of metrics of which less is better.
_LESS_IS_BETTER = ("loss", "error", "wait", "secs", "_ms", "bytes", "spread", "skipped", "gradient_norm")


@dataclasses.dataclass(frozen=True)
class Group:
    """Jobs that differ in nothing but their seeds.

    Attributes:
        settings: Their swept keys without the seed.
        jobs: All of them, those that did not finish included.
        values: Of the metric that decides, of the finished ones; only finite values.
    """

    settings: dict[str, str | None]
    jobs: tuple[JobResult, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the values; NaN without any."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def sd(self) -> float | None:
        """The standard deviation that the values estimate (over n - 1); None with fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def label(self) -> str:
        """Names it by its settings."""
        return self.jobs[0].label(list(self.settings))


def choose_metric(jobs: Sequence[JobResult], asked: str | None = None) -> str | None:
    """Returns the metric that decides which job is best.

    Args:
        jobs: Those of the sweep.
        asked: `sweep.metric`, if it is set.

    Returns:
        `asked`, else the first of images a second (benchmarks), mean average precision, top-1 and training loss that
        finished jobs have; None if they have none.

    Raises:
        UserError: If no job has the metric that was asked for; it lists those there are.
    """
    known = {name for job in jobs for name in job.metrics}
    if asked is not None:
        if asked in known:
            return asked
        if not known:
            raise UserError(f"sweep.metric={asked}: no job of the sweep has left any metric.")
        raise UserError(
            f"sweep.metric={asked}: no job of the sweep has it; the nearest is {nearest(asked, known)}. There are "
            f"{', '.join(sorted(known))}."
        )
    done = [job for job in jobs if job.finished]
    return next((name for name in _DEFAULTS if any(name in job.metrics for job in done)), None)


def is_maximized(metric: str | None, direction: str | None = None) -> bool:
    """Tells whether more of a metric is better.

    Args:
        metric: Its name.
        direction: `maximize` or `minimize`, where the user has said so; otherwise it follows from the name.
    """
    if direction is not None:
        return direction == "maximize"
    return metric is None or not any(part in metric for part in _LESS_IS_BETTER)


def pipeline_only(jobs: Iterable[JobResult]) -> bool:
    """Tells whether the sweep varies nothing but settings of the pipeline that leave the batches as they are."""
    keys = {key for job in jobs for key in job.settings}
    return bool(keys) and all(key.startswith("pipeline.") and key != "pipeline.batch_size" for key in keys)


def best_of(jobs: Sequence[JobResult], metric: str | None, maximize: bool) -> JobResult | None:
    """Returns the finished job with the best value of a metric; of equals the fastest, then the first.

    A value that is not finite never wins.
    """
    if metric is None:
        return None
    done = [job for job in jobs if job.finished and math.isfinite(job.metrics.get(metric, math.nan))]
    sign = 1 if maximize else -1
    return max(done, key=lambda job: (sign * job.metrics[metric], job.images_per_sec or 0.0, -job.number), default=None)


def group_by_seed(jobs: Sequence[JobResult], metric: str | None) -> list[Group]:
    """Puts the jobs together that differ in nothing but the seed.

    Args:
        jobs: Those of the sweep.
        metric: The one that decides.

    Returns:
        The groups in the order of their first jobs. Where the seed was not swept over, one a job.
    """
    members: dict[tuple[str | None, ...], list[JobResult]] = {}
    for job in jobs:
        members.setdefault(tuple(without_seed(job.settings).values()), []).append(job)
    return [
        Group(
            settings=without_seed(group[0].settings),
            jobs=tuple(group),
            values=tuple(
                job.metrics[metric]
                for job in group
                if metric is not None and job.finished and math.isfinite(job.metrics.get(metric, math.nan))
            ),
        )
        for group in members.values()
    ]


def without_seed(settings: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns the settings that tell more than repeats apart."""
    return {key: value for key, value in settings.items() if key != SEED}
