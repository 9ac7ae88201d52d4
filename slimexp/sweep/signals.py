"""The signals that stop a sweep: counted, so that the second one may ask for more than the first."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from slimexp.sweep.screen import say
from slimexp.sweep.stopping import Stop

__all__ = ["SweepSignals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SweepSignals:
    """Passes signals on instead of ending the process; after the fourth one, the next interrupts it.

    Args:
        on_stop: Called with each wish to stop.

    Attributes:
        count: How many signals came.
        first: The number of the first one; 0 before that.
    """

    def __init__(self, on_stop: Callable[[Stop], None]) -> None:
        self._on_stop = on_stop
        self._handlers: dict[int, Any] = {}
        self.count = self.first = 0

    def take(self) -> None:
        """Takes the signals from here on."""
        self._handlers = {
            number: signal.signal(number, self._handle)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN  # As under nohup.
        }

    def restore(self) -> None:
        """Leaves the signals to whom they went to before."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.first = self.first or number
        if self.count > 3:
            signal.signal(number, signal.default_int_handler)
        self._on_stop(Stop(number, self.count))
        if self.count == 1:
            say("\nslimexp: stopping: what runs saves its checkpoint; what has not begun is left. Once more: at once.")
