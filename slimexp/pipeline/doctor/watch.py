"""Measures in a thread of its own, so that a file that never answers holds up neither Ctrl-C nor the words about it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from slimexp.pipeline.waiting import Taker, find_silent

__all__ = ["Watch"]

_log = logging.getLogger("slimexp")
_T = TypeVar("_T")

# How long the sample may take to be read before a warning says so; the next one comes after twice that, and so on.
_PATIENCE_SECS = 60.0
_MOST_NAMED = 5


class Watch:
    """Runs functions one at a time, each to its end or until it is told to stop.

    Attributes:
        stopped: Set once a wait was given up; a function that goes on for long looks at it.
    """

    def __init__(self, check_stop: Callable[[], None] = lambda: None, patience_secs: float | None = None) -> None:
        """Takes what ends a wait.

        Args:
            check_stop: Called a few times a second while a function runs; what it raises ends the wait.
            patience_secs: How long a function that reads files may take before a warning names those that give no
                answer; a minute by default.
        """
        self.stopped = threading.Event()
        self._check_stop = check_stop
        self._patience_secs = _PATIENCE_SECS if patience_secs is None else patience_secs

    def run(self, function: Callable[[], _T], awaited: Callable[[], Sequence[bytes]] | None = None) -> _T:
        """Returns what a function returns, or raises what it raises.

        Args:
            function: Runs in another thread.
            awaited: Returns the files that it has still to read, for the warning about those that give no answer; None
                for no warning.
        """
        warn_after_secs = [self._patience_secs]

        def meanwhile(secs: float) -> None:
            self._check_stop()
            if awaited is not None and secs >= warn_after_secs[0]:
                warn_after_secs[0] = 2 * secs
                _log.warning("%s", _what_is_awaited(secs, awaited()))

        # A thread for each, as one that was given up cannot be used again.
        taker = Taker()
        try:
            answer, error = taker.take(lambda: _outcome(function), meanwhile)
        except BaseException:  # Not of the function: the wait was given up.
            self.stopped.set()
            raise
        finally:
            taker.close()
        if error is not None:
            raise error
        return cast(_T, answer)


def _outcome(function: Callable[[], _T]) -> tuple[_T | None, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error


def _what_is_awaited(secs: float, paths: Sequence[bytes]) -> str:
    silent = [path.decode("utf-8", "backslashreplace") for path in find_silent(paths)]
    if not silent:
        return f"The images to measure with have not been read for {secs:.0f} s; those that were tried do answer."
    more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
    named = ", ".join(map(repr, silent[:_MOST_NAMED]))
    return (
        f"The images to measure with have not been read for {secs:.0f} s. These do not answer: {named}{more}. A "
        "network drive that is gone would explain it. Ctrl-C ends the run."
    )
