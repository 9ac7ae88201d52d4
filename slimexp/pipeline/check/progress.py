"""Shows how far a walk has come: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["WalkProgress"]

_LINE_EVERY_SECS = 10.0
_BAR_EVERY_SECS = 0.1


class WalkProgress:
    """Counts examples and faults while it is entered."""

    def __init__(self, name: str, total: int, out: TextIO | None = None) -> None:
        """Prepares the display.

        Args:
            name: What is gone through.
            total: How many examples there are.
            out: Where to write; by default standard error.
        """
        self._name, self._total = name, total
        self._out = out if out is not None else sys.stderr
        self._bar: Progress | None = None
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> WalkProgress:
        console = Console(file=self._out)
        if self._out.isatty() and not console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("faults {task.fields[faults]}", markup=False),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._bar.add_task(self._name, total=self._total, faults=0)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def update(self, num_done: int, num_faults: int) -> None:
        """Notes how far it has come; cheap enough for each example."""
        now = time.monotonic()
        if now - self._shown < (_LINE_EVERY_SECS if self._bar is None else _BAR_EVERY_SECS):
            return
        self._shown = now
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=num_done, faults=num_faults)
            return
        rate = num_done / max(now - self._started, 1e-9)
        line = f"{self._name}: {num_done} of {self._total}, {num_faults} faults, {rate:.0f} a second"
        print(line, file=self._out, flush=True)
