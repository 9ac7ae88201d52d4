"""What `metrics.jsonl` holds that a store lacks: rows read back as points, in portions that fit one call.

So the file is the queue. A server that is away for hours costs no memory, what it missed is sent when it is back, and a
resumed run also sends what the process before it could not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.params import legal_key
from slimexp.tracking.run import OpenRun
from slimexp.tracking.sqlite_metrics import Point

__all__ = ["MAX_POINTS", "NONFINITE_TAG", "Backlog", "Portion"]

NONFINITE_TAG = "nonfinite."
# MLflow's limit for one call of log_batch.
MAX_POINTS = 1000
# A trainer's row holds some 10 to 20 values, so this many fill a call.
_READ_ROWS = 100


@dataclasses.dataclass(frozen=True)
class Portion:
    """Some rows on their way to the store.

    Attributes:
        points: Their finite values; more than MAX_POINTS if a single row has more.
        tags: One for each metric that was not finite for the first time.
        end: Where the rows end in the file.
    """

    points: list[Point]
    tags: dict[str, str]
    end: int


class Backlog:
    """The rows that one run of a store has not been sent yet, in the order of the file.

    Args:
        metrics: The file, read from its beginning.
        run: The run. Up to the last step that the store has of a metric there is nothing to send. None as long as it
            is not known, which is as if the store had nothing.

    Attributes:
        offset: Up to where the file has been sent.
    """

    def __init__(self, metrics: MetricsFile, run: OpenRun | None = None) -> None:
        self._metrics = metrics
        self._last_steps: Mapping[str, int] = {}
        self._nonfinite: set[str] = set()
        self._keys: dict[str, str] = {}
        self.offset = 0
        if run is not None:
            self.compare_with(run)

    def compare_with(self, run: OpenRun) -> None:
        """Leaves out from here on what the store has of a run."""
        self._last_steps = run.last_steps
        self._nonfinite = {tag.removeprefix(NONFINITE_TAG) for tag in run.tags if tag.startswith(NONFINITE_TAG)}

    def next_portion(self) -> Portion | None:
        """Returns what is to be sent next, the same again until it is `done`; None if there is nothing."""
        rows = self._metrics.read_from(self.offset, _READ_ROWS)
        if not rows:
            return None
        points: list[Point] = []
        tags: dict[str, str] = {}
        end = self.offset
        for row, row_end in rows:
            row_points, row_tags = self._split(row)
            if points and len(points) + len(row_points) > MAX_POINTS:
                break
            points += row_points
            tags = {**row_tags, **tags}  # The first row that was not finite counts.
            end = row_end
        return Portion(points, tags, end)

    def done(self, portion: Portion) -> None:
        """Notes that the store has a portion, or has refused it for good."""
        self._nonfinite.update(key.removeprefix(NONFINITE_TAG) for key in portion.tags)
        self.offset = portion.end

    def count_points(self) -> int:
        """Counts the metric values that the store lacks; exact when nothing is being sent."""
        waiting, offset = 0, self.offset
        while rows := self._metrics.read_from(offset, MAX_POINTS):
            waiting += sum(len(self._split(row)[0]) for row, _ in rows)
            offset = rows[-1][1]
        return waiting

    def _split(self, row: MetricsRow) -> tuple[list[Point], dict[str, str]]:
        """Splits a row into what the store lacks of it and the tags for what is not finite."""
        points, tags = [], {}
        for name, value in row.metrics.items():
            key = self._keys.get(name) or self._keys.setdefault(name, legal_key(name))
            if not math.isfinite(value):
                if key not in self._nonfinite:
                    tags[legal_key(NONFINITE_TAG + key)] = f"{value} at step {row.step}"
            elif row.step > self._last_steps.get(key, -math.inf):
                points.append(Point(key, value, int(row.time * 1000), row.step))
        return points, tags
