"""SIGTERM, SIGHUP and Ctrl-C: at once where nothing can be lost, after the step where a checkpoint is due first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from slimexp.errors import Interrupted

__all__ = ["StopSignals"]


class StopSignals:
    """While it is entered, SIGTERM, SIGINT and SIGHUP raise `Interrupted` in the main thread, or wait in `deferred()`.

    SIGHUP, which comes when the terminal is closed, does nothing where it is ignored, as under nohup. Outside the main
    thread, where Python allows no handlers, nothing of this happens.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self._deferring = self._holding = False
        self._pending: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._handle)
                for number in self._SIGNALS
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            }
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Holds a first signal back until `check` is called; a second one raises at once."""
        self._deferring, before = True, self._deferring
        try:
            yield
        finally:
            self._deferring = before

    def hold(self) -> None:
        """Lets no signal through any more: what is left to do takes seconds, and half of it would be untrue."""
        self._holding = True

    def check(self) -> None:
        """Raises `Interrupted` if a signal came meanwhile."""
        if self._pending is not None:
            number, self._pending = self._pending, None
            raise _interrupted(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._holding or (self._deferring and self._pending is None):
            self._pending = number
        else:
            raise _interrupted(number)


def _interrupted(number: int) -> Interrupted:
    return Interrupted(f"stopped by {signal.Signals(number).name}", number)
