"""Rates that were measured several times. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

__all__ = ["Rate"]


@dataclasses.dataclass(frozen=True)
class Rate:
    """Images a second over some rounds.

    Attributes:
        median: The middle round's.
        low: The slowest round's.
        high: The fastest round's.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: Sequence[float]) -> Rate:
        """Summarizes one rate a round; there is at least one."""
        return cls(statistics.median(rounds), min(rounds), max(rounds))

    @property
    def spread(self) -> float:
        """How far the rounds lie apart, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0
