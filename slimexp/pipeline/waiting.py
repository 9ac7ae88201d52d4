"""Waits for a batch so that a signal can end it, and finds out what keeps it waiting. No TensorFlow here."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Taker", "find_silent"]

_POLL_SECS = 0.2
_PROBE_SECS = 2.0
_MOST_PROBED = 64


class Taker:
    """Calls functions in a thread of its own, one at a time, and waits for them where Python can see to signals.

    TensorFlow's calls return to Python only when they are done, so that in the main thread one that waits for a file
    that never comes would hold up Ctrl-C as well. Handing a call over costs some 50 us.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_busy = False

    def take(self, function: Callable[[], Any], meanwhile: Callable[[float], None]) -> Any:
        """Returns what a function returns, or raises what it raises.

        Args:
            function: Runs in the other thread.
            meanwhile: Called a few times a second while the function runs, with the seconds that it has taken. What
                it raises ends the wait; the function is then left to itself, and nothing more can be taken.
        """
        assert not self._is_busy, "The last call has not come back."
        if self._thread is None:
            # A daemon: one that waits for good must not keep the process from ending.
            self._thread = threading.Thread(target=self._serve, name="slimexp taker", daemon=True)
            self._thread.start()
        started = time.perf_counter()
        self._is_busy = True
        self._requests.put(function)
        while True:
            try:
                value, error = self._answers.get(timeout=_POLL_SECS)
                break
            except queue.Empty:
                meanwhile(time.perf_counter() - started)
        self._is_busy = False
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Ends the thread; if it is in a call, once that comes back."""
        if self._thread is not None:
            self._requests.put(None)
            if not self._is_busy:
                self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while True:
            function = self._requests.get()
            if function is None:
                return
            value: Any = None
            error: BaseException | None = None
            try:
                value = function()
            except BaseException as raised:
                error = raised
            self._answers.put((value, error))
            # Nothing is to be kept alive until the next call: an iterator has threads of its own.
            del function, value, error


def find_silent(paths: Sequence[bytes]) -> list[bytes]:
    """Tries to read the first byte of some files, and returns those that give no answer within two seconds.

    Args:
        paths: The files, of which the first 64 are tried. A file that is missing or may not be read does answer.
    """
    silent = set(paths[:_MOST_PROBED])

    def probe(path: bytes) -> None:
        try:
            with open(path, "rb", buffering=0) as file:
                file.read(1)
        except (OSError, ValueError):
            pass
        silent.discard(path)

    threads = [threading.Thread(target=probe, args=(path,), daemon=True) for path in list(silent)]
    deadline = time.monotonic() + _PROBE_SECS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return [path for path in dict.fromkeys(paths[:_MOST_PROBED]) if path in silent]
