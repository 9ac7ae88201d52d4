"""What the monitor measured of a running pipeline, as plain numbers. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses

__all__ = ["PipelineStats", "QueueStats", "StageStats", "as_metrics", "describe"]


@dataclasses.dataclass(frozen=True)
class StageStats:
    """One stage over an interval.

    Attributes:
        name: `read` or `preprocess`.
        threads: The calls that the stage makes at the same time, as in effect.
        images_per_sec: Images that it handed on.
        busy_frac: The share of its threads' time, 0..1, that was spent on images, waiting for a processor core or a
            disk included; the rest they waited for input or for room in the queue behind them.
    """

    name: str
    threads: int
    images_per_sec: float
    busy_frac: float


@dataclasses.dataclass(frozen=True)
class QueueStats:
    """One of the four queues over an interval.

    Attributes:
        name: `filename`, `read`, `prefetch` or `batch`.
        capacity: The most that it holds, in `unit`.
        unit: `names`, `images` or `batches`.
        fill_frac: The mean share of the capacity that was taken, 0..1.
    """

    name: str
    capacity: int
    unit: str
    fill_frac: float


@dataclasses.dataclass(frozen=True)
class PipelineStats:
    """The pipeline over an interval.

    Attributes:
        secs: The interval's length.
        images: The images that the network took.
        wait_frac: The share of the interval, 0..1, in which the network waited for its batches.
        stages: `read` and `preprocess`, in this order.
        queues: The four queues, in the order in which an example passes them.
        cpu_frac: The share of the processor cores available to the process that it used, 0..1.
        num_cpus: The cores available to the process (affinity and cgroup limit).
    """

    secs: float
    images: int
    wait_frac: float
    stages: tuple[StageStats, ...]
    queues: tuple[QueueStats, ...]
    cpu_frac: float
    num_cpus: float

    @property
    def images_per_sec(self) -> float:
        """The images that the network took in a second."""
        return self.images / self.secs if self.secs else 0.0

    def stage(self, name: str) -> StageStats:
        """Returns the stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)

    def queue(self, name: str) -> QueueStats:
        """Returns the queue of that name."""
        return next(queue for queue in self.queues if queue.name == name)


def as_metrics(stats: PipelineStats) -> dict[str, float]:
    """Returns the numbers under the names that MLflow gets: `pipeline/read_images_per_sec` and so on."""
    metrics = {f"pipeline/{queue.name}_queue/fill_frac": queue.fill_frac for queue in stats.queues}
    for stage in stats.stages:
        metrics[f"pipeline/{stage.name}_images_per_sec"] = stage.images_per_sec
        metrics[f"pipeline/{stage.name}_busy_frac"] = stage.busy_frac
        metrics[f"pipeline/{stage.name}_threads"] = stage.threads
    metrics["pipeline/cpu_frac"] = stats.cpu_frac
    return metrics


def describe(stats: PipelineStats) -> str:
    """Returns the stages and queues in a few words, for the progress line."""
    busy = " ".join(f"{stage.name} {100 * stage.busy_frac:.0f}" for stage in stats.stages)
    fills = " ".join(f"{queue.name} {100 * queue.fill_frac:.0f}" for queue in stats.queues)
    return f"busy % {busy}  full % {fills}"
