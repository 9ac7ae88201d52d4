"""Shows how far a run is: a bar on a terminal, plain lines in a pipe or a log file."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

__all__ = ["Progress"]


class Progress:
    """Reports steps, losses and speed while it is entered as a context manager.

    The first step is left out of every rate, since the graph is traced and compiled in it, and so is the time spent
    in `paused()`. On a terminal, log messages and prints appear above the bar.
    """

    def __init__(
        self,
        total_steps: int,
        first_step: int,
        batch_size: int,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the display; nothing is shown before it is entered.

        Args:
            total_steps: The step at which training ends.
            first_step: The step it starts from: 0, or a checkpoint's.
            batch_size: Images a step, all replicas together.
            out: Where to write; by default standard error.
            clock: A clock in seconds.
        """
        self._total = total_steps
        self._step = first_step
        self._batch_size = batch_size
        self._out = out if out is not None else sys.stderr
        self._clock = clock
        self._resumed_at: float | None = None  # None before the first step's end, and while paused.
        self._spent_secs = 0.0  # In the steps that count.
        self._counted_steps = 0
        self._wait_secs = 0.0  # Of the spent seconds, those in which a step waited for its batch.
        self._reported = (0.0, 0, 0.0)  # The three above, at the last report.
        self._started = False
        self._bar: Bar | None = None
        self._task: Any = None
        self._moved_handlers: list[tuple[logging.StreamHandler[Any], Any]] = []

    def __enter__(self) -> Progress:
        console = Console(file=self._out)
        if self._out.isatty() and not console.is_dumb_terminal:
            steps = f"step {self._total}/{self._total}"
            self._bar = Bar(
                TextColumn("step {task.completed:.0f}/{task.total:.0f}", table_column=_fixed(len(steps))),
                BarColumn(bar_width=None),
                TextColumn("ETA {task.fields[eta]}", markup=False, table_column=_fixed(len("ETA 0:00:00"))),
                # The last and least: where the terminal is narrow, this one is cut.
                TextColumn("{task.fields[status]}", markup=False),
                console=console,
                expand=True,
            )
            self._task = self._bar.add_task("", total=self._total, completed=self._step, status="", eta="-")
            # A handler keeps the stream it was made with, so one that writes to this terminal is turned to what
            # rich puts in the place of sys.stderr and sys.stdout: it prints above the bar.
            streams = {id(sys.stderr): "stderr", id(sys.stdout): "stdout"}
            self._bar.start()
            for handler in _stream_handlers():
                name = streams.get(id(handler.stream))
                if name is not None and handler.stream.isatty():
                    self._moved_handlers.append((handler, handler.setStream(getattr(sys, name))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handler, stream in self._moved_handlers:
            handler.setStream(stream)
        self._moved_handlers.clear()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def advance(self, step: int, wait_secs: float = 0.0) -> None:
        """Notes that a step is done; cheap enough for each one.

        Args:
            step: The number of steps done in all, first_step + 1 after the first.
            wait_secs: How long it waited for its batch.
        """
        now = self._clock()
        if not self._started:
            self._started = True
        else:
            self._counted_steps += max(0, step - self._step)
            self._wait_secs += wait_secs
        if self._resumed_at is not None:
            self._spent_secs += now - self._resumed_at
        self._resumed_at = now
        self._step = step
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def report(
        self, step: int, *, loss: float | None = None, learning_rate: float | None = None, note: str | None = None
    ) -> dict[str, float]:
        """Shows the state at a log interval.

        Args:
            step: The step, for which `advance` has been called.
            loss: The loss.
            learning_rate: The learning rate.
            note: What else to show.

        Returns:
            What was measured since the last report: `images_per_sec`, `step_secs` and `input_wait_frac`, the share of
            the time that was spent waiting for batches, 0..1. Empty if no step counts.
        """
        now = (self._spent_secs, self._counted_steps, self._wait_secs)
        spent, steps, waited = (new - old for new, old in zip(now, self._reported, strict=True))
        self._reported = now
        rates: dict[str, float] = {}
        if steps and spent > 0:
            rates = {
                "images_per_sec": steps * self._batch_size / spent,
                "step_secs": spent / steps,
                "input_wait_frac": min(waited / spent, 1.0),
            }
        parts = []
        if loss is not None:
            parts.append(f"loss {loss:.4g}")
        if learning_rate is not None:
            parts.append(f"lr {learning_rate:.4g}")
        if rates:
            speed = rates["images_per_sec"]
            parts.append(f"images/s {speed:.0f}" if speed >= 10 else f"images/s {speed:.2g}")
            parts.append(f"input wait {100 * rates['input_wait_frac']:.0f} %")
        if note:
            parts.append(note)
        eta = self._eta()
        if self._bar is not None:
            self._bar.update(self._task, completed=step, status="  ".join(parts), eta=eta)
        else:
            line = "  ".join([f"step {step}/{self._total}", *parts, f"ETA {eta}"])
            print(line, file=self._out, flush=True)
        return rates

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves what happens inside, an evaluation say, out of the rates."""
        running = self._resumed_at is not None
        if self._resumed_at is not None:
            self._spent_secs += self._clock() - self._resumed_at
            self._resumed_at = None
        try:
            yield
        finally:
            if running:
                self._resumed_at = self._clock()

    def _eta(self) -> str:
        left = self._total - self._step
        if left <= 0:
            return "0:00"
        if not self._counted_steps:
            return "-"
        secs = round(left * self._spent_secs / self._counted_steps)
        hours, minutes, secs = secs // 3600, secs // 60 % 60, secs % 60
        return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def _fixed(width: int) -> Column:
    """Returns a table column that a narrow terminal does not shrink."""
    return Column(no_wrap=True, min_width=width)


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    """Returns the handlers of all loggers that write to a stream, each once."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    found: dict[int, logging.StreamHandler[Any]] = {}
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                found[id(handler)] = handler
    return list(found.values())
