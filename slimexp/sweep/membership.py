"""What a job knows of the sweep that it belongs to. Its process sets it; the run's record takes it from here."""

from __future__ import annotations

import dataclasses

__all__ = ["Membership", "current", "join"]


@dataclasses.dataclass(frozen=True)
class Membership:
    """A job's place in a sweep.

    Attributes:
        sweep: The sweep's folder, absolute.
        number: The job's number.
        name: What tells it from the others, e.g. `vgg16 threads=8`.
        parent_run_id: The sweep's run in the tracking store; None without one.
        numbers: The values of the swept keys that are numbers, to be metrics, by which the store can sort.
    """

    sweep: str
    number: int
    name: str
    parent_run_id: str | None = None
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the job's run. MLflow shows it below its parent's."""
        tags = {"sweep": self.sweep, "sweep.job": str(self.number)}
        return {**tags, "mlflow.parentRunId": self.parent_run_id} if self.parent_run_id else tags


_current: list[Membership] = []


def join(membership: Membership) -> None:
    """Makes this process a job of a sweep."""
    _current[:] = [membership]


def current() -> Membership | None:
    """Returns the place in a sweep of the job that this process runs; None if it is none's."""
    return _current[0] if _current else None
