"""The rows of a run as they are measured: into `metrics.jsonl` and the event files, with what the machine does."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping

from slimexp.tracking.events import EventFiles
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow
from slimexp.tracking.system_metrics import SystemSampler

__all__ = ["Rows"]

_LOG = logging.getLogger(__name__)


class Rows:
    """Writes rows for the training thread; a disk that takes none costs these rows and not the run.

    Args:
        metrics: The file.
        events: The event files; None for none.
        sampler: What looks at the machine; None for nothing.
        last_step: The step that the run begins at.

    Attributes:
        spent_secs: How long the calls of `write` took so far.
    """

    def __init__(
        self, metrics: MetricsFile, *, events: EventFiles | None, sampler: SystemSampler | None, last_step: int
    ) -> None:
        self._metrics = metrics
        self._events = events
        self._sampler = sampler
        self._last_step = last_step  # Of a run that goes on and logs nothing.
        self._stopped = False
        self._write_error: str | None = None
        self._lost_rows = 0
        self.spent_secs = 0.0

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes one row; nothing once it is stopped."""
        began = time.perf_counter()
        values = {name: float(value) for name, value in metrics.items()}
        if self._sampler is not None:
            values.update(self._sampler.take(int(step)))
        row = MetricsRow(int(step), time.time(), values)
        if not self._stopped:
            self._last_step = row.step
            try:
                self._metrics.append(row)
            except OSError as error:
                self._lost_rows += 1
                if self._write_error is None:
                    self._write_error = error.strerror or str(error)
                    _LOG.warning("%s cannot be written: %s. The run goes on.", self._metrics.path, self._write_error)
            if self._events is not None:
                self._events.write(row.step, row.metrics, row.time)
        self.spent_secs += time.perf_counter() - began

    def stop(self) -> None:
        """Takes no more rows; adds one on the machine for a run that was too short for any."""
        if self._sampler is not None and (values := self._sampler.stop(self._last_step)):
            with contextlib.suppress(OSError):
                self._metrics.append(MetricsRow(self._last_step, time.time(), values))
        self._stopped = True

    def close_events(self) -> None:
        """Closes the event files."""
        if self._events is not None:
            self._events.close()

    def close_file(self) -> None:
        """Closes `metrics.jsonl`, which nobody is to read back any more."""
        self._metrics.close()

    def warn_of_losses(self) -> None:
        """Says how many rows were lost, if any."""
        if self._lost_rows:
            _LOG.warning("%d line(s) of metrics are lost: %s.", self._lost_rows, self._write_error)
