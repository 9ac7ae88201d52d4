"""TensorBoard event files: what a run logs, in `RUN_DIR/events/train` and `RUN_DIR/events/eval`.

They are written by TensorFlow's own writer, in a thread of its own; the package `tensorboard` is not needed. Their size
is bounded: up to step 10,000 every logged row is written, beyond only one for each ten-thousandth of the steps so far,
which no chart can show more of. A row is about 1 KB, so a run that logs each of 1,000,000 steps leaves 60 MB, one that
logs each tenth 35 MB. Whatever is logged, the files of a run stop at a bound in bytes, and that is said.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "MAX_BYTES", "EventFiles"]

_log = logging.getLogger(__name__)

FOLDER = "events"
# Three times what a run leaves that logs each of 1,000,000 steps.
MAX_BYTES = 200_000_000
# What a record of the file format adds: its length and two checksums.
_RECORD_BYTES = 16

_FLUSH_SECS = 10
# The resolution: a row is at least this part of its step away from the one before.
_RESOLUTION = 10_000


class EventFiles:
    """Writes scalars for TensorBoard: `eval/...` into the folder `eval`, all else into `train`.

    A metric loses the name of its folder, so that `train/loss` and `eval/loss` are two curves of one chart, `loss`. A
    writer that cannot write is given up with a warning, and the run goes on.
    """

    def __init__(self, folder: Path, *, resume_step: int | None = None, max_bytes: int = MAX_BYTES) -> None:
        """Opens nothing yet: files are made with the first row.

        Args:
            folder: Their parent, e.g. `RUN_DIR/events`.
            resume_step: The step that the run goes on from. Rows of later steps, which the run had written before it
                was stopped, are not shown any more.
            max_bytes: How large the files may become together, those of an earlier start of the run included.
        """
        self._folder = folder
        self._resume_step = resume_step
        self._writers: dict[str, _Writer] = {}
        self._has_failed = False
        self._is_full = False
        self._max_bytes = max_bytes
        files = folder.rglob("*") if resume_step is not None else ()
        self._old_bytes = sum(path.stat().st_size for path in files if path.is_file())

    def write(self, step: int, metrics: Mapping[str, float], wall_secs: float | None = None) -> None:
        """Writes one row.

        Args:
            step: The training step.
            metrics: Values by name. What is not finite is shown as such.
            wall_secs: When they were measured, in Unix seconds; by default now.
        """
        if self._has_failed or self._is_full:
            return
        parts: dict[str, dict[str, float]] = {}
        for name, value in metrics.items():
            head, _, rest = name.partition("/")
            folder = "eval" if head == "eval" else "train"
            parts.setdefault(folder, {})[rest if head == folder and rest else name] = value
        try:
            for folder, values in parts.items():
                writer = self._writers.get(folder)
                if writer is None:
                    writer = self._writers[folder] = _Writer(self._folder / folder, self._resume_step)
                writer.write(step, values, time.time() if wall_secs is None else wall_secs)
            if self._old_bytes + sum(writer.num_bytes for writer in self._writers.values()) > self._max_bytes:
                self._is_full = True
                _log.warning(
                    "%s: the event files have reached tracking.events_max_bytes=%d, at step %d; TensorBoard shows the "
                    "run up to there. metrics.jsonl and MLflow get all of it.",
                    self._folder,
                    self._max_bytes,
                    step,
                )
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:
        """Writes what is left and closes the files."""
        if not self._has_failed:
            try:
                for writer in self._writers.values():
                    writer.close()
            except Exception as error:
                self._give_up(error)
        self._writers.clear()

    def _give_up(self, error: Exception) -> None:
        self._has_failed = True
        _log.warning("%s: event files cannot be written (%s). The run goes on without.", self._folder, error)


class _Writer:
    """One file, with rows left out where they stand too close together."""

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        # Whoever trains has imported it long since; this module must not.
        import tensorflow as tf

        self._proto = tf.compat.v1
        # A file is named by the second; one of the same second would be overwritten.
        suffix = f".{time.time_ns() % 10**9:09d}"
        with tf.Graph().as_default():  # The writer refuses to be made outside of a graph.
            self._file = tf.compat.v1.summary.FileWriter(str(folder), flush_secs=_FLUSH_SECS, filename_suffix=suffix)
        self._last_step = 0
        self.num_bytes = 0
        self._held: tuple[int, Mapping[str, float], float] | None = None
        if resume_step is not None:
            self._last_step = resume_step
            # TensorBoard drops the points of earlier files from this step on.
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            self._file.add_session_log(start, resume_step + 1)

    def write(self, step: int, values: Mapping[str, float], wall_secs: float) -> None:
        if 0 < step - self._last_step < self._last_step // _RESOLUTION:
            # The last one is written at the end, whatever its distance.
            more = self._held[1] if self._held and self._held[0] == step else {}
            self._held = (step, {**more, **values}, wall_secs)
            return
        self._held = None
        self._add(step, values, wall_secs)

    def close(self) -> None:
        if self._held is not None:
            self._add(*self._held)
            self._held = None
        self._file.close()

    def _add(self, step: int, values: Mapping[str, float], wall_secs: float) -> None:
        summary: Any = self._proto.Summary()
        for tag, value in values.items():
            summary.value.add(tag=tag, simple_value=value)
        event = self._proto.Event(wall_time=wall_secs, step=step, summary=summary)
        self.num_bytes += event.ByteSize() + _RECORD_BYTES
        self._file.add_event(event)
        self._last_step = step
