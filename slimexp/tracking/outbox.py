"""What the training thread leaves for the sender's thread, but for the metrics: those wait in their file."""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["MAX_ENTRIES", "Entry", "Outbox"]

# MLflow's limit for the params or tags in one call of log_batch.
MAX_ENTRIES = 100


class Entry(NamedTuple):
    """A param, tag or dataset as MLflow takes it; a dataset's value is JSON."""

    kind: str  # `params`, `tags` or `datasets`
    key: str
    value: str


class Outbox:
    """Two queues, the run's end, and the wishes of the training thread, under one lock.

    The training thread puts, closes and abandons; the sender's thread waits, looks at what is first and drops it once
    it is through, so that what is left over is what did not get through.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: collections.deque[Entry] = collections.deque()
        self._files: collections.deque[tuple[Path, str | None]] = collections.deque()
        self._end: tuple[str, int | None] | None = None
        self._urgent = self._closing = self._abandoned = False

    def put(self, entries: Iterable[Entry]) -> None:
        """Queues entries."""
        with self._changed:
            self._entries.extend(entries)
            self._urgent = True
            self._changed.notify_all()

    def put_file(self, path: Path, folder: str | None) -> None:
        """Queues a file or a folder of files."""
        with self._changed:
            self._files.append((path, folder))
            self._urgent = True
            self._changed.notify_all()

    def close(self, status: str | None, end_ms: int | None) -> None:
        """Asks for the rest to be sent, and then the run's status, if any."""
        with self._changed:
            self._end = (status, end_ms) if status is not None else None
            self._closing = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Asks for nothing more to be sent."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def left(self) -> tuple[int, tuple[str, ...], bool]:
        """Returns the number of entries, the files, and whether the run's status is left."""
        with self._changed:
            return len(self._entries), tuple(str(path) for path, _ in self._files), self._end is not None

    @property
    def abandoned(self) -> bool:
        """Whether the sender's thread is to end as soon as it can."""
        return self._abandoned

    @property
    def is_empty(self) -> bool:
        """Whether both queues are empty."""
        return not self._entries and not self._files

    @property
    def num_files(self) -> int:
        """How many files wait."""
        return len(self._files)

    @property
    def end(self) -> tuple[str, int | None] | None:
        """The run's status and when it ended, in Unix milliseconds or None for now; None if there is none to send."""
        return self._end

    def wait(self, secs: float, *, for_news: bool, closing_secs: float) -> bool:
        """Waits for something to do.

        Args:
            secs: At most so long, if it is not closed before.
            for_news: Whether what is put ends the wait.
            closing_secs: How long to wait once it is closed, if it is not abandoned before.

        Returns:
            Whether it is closed.
        """
        with self._changed:
            if self._closing:
                self._changed.wait_for(lambda: self._abandoned, closing_secs)
            else:
                self._changed.wait_for(lambda: self._closing or self._abandoned or (self._urgent and for_news), secs)
            self._urgent = False
            return self._closing

    def first_entries(self) -> list[Entry]:
        """Returns the first entries, as many as may go in one call; empty if there are none."""
        with self._changed:
            for _, group in itertools.groupby(self._entries, key=lambda entry: entry.kind):
                return list(itertools.islice(group, MAX_ENTRIES))
            return []

    def drop_entries(self, count: int) -> None:
        """Drops the first entries."""
        with self._changed:
            for _ in range(count):
                self._entries.popleft()

    def first_file(self) -> tuple[Path, str | None]:
        """Returns the first file and its folder in the store."""
        return self._files[0]

    def drop_file(self) -> None:
        """Drops the first file."""
        with self._changed:
            self._files.popleft()

    def put_file_back(self) -> None:
        """Moves the first file behind the others: it must not hold them up."""
        with self._changed:
            self._files.rotate(-1)

    def drop_end(self) -> None:
        """Drops the run's status."""
        self._end = None
