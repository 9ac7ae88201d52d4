"""Goes through a split on several threads: files as they are listed, records shard by shard."""

from __future__ import annotations

import dataclasses
import queue
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from slimexp.dataset.record_file import RecordDamage, locate_damage
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Split
from slimexp.errors import UserError
from slimexp.pipeline.check.examine import Examiner, Finding
from slimexp.pipeline.dataset_iterator import elements
from slimexp.pipeline.diagnose import Fault, read_image_file
from slimexp.pipeline.images.pillow_decode import cause_of
from slimexp.pipeline.record_faults import labels_of, picture_of

__all__ = ["ShardFinding", "walk"]

_POLL_SECS = 0.2
_WAITING_PER_THREAD = 4
_OFFSET = re.compile(r"record at (\d+)")


@dataclasses.dataclass(frozen=True)
class ShardFinding:
    """A shard that cannot be read to its end.

    Attributes:
        shard: Its number in the split.
        num_read: How many records came before the damage.
        offset: The byte at which the first lost record begins; None if that is unknown.
        reason: What is wrong, in words, with the file's name.
    """

    shard: int
    num_read: int
    offset: int | None
    reason: str


def walk(
    split: AnySplit,
    examiner: Examiner,
    *,
    threads: int,
    readers: int,
    check_stop: Callable[[], None] = lambda: None,
) -> Iterator[Finding | ShardFinding]:
    """Examines each example of a split once; those that name the same file share what is found.

    Args:
        split: The examples.
        examiner: Decodes them.
        threads: Threads that decode.
        readers: Shards that are read at a time.
        check_stop: Called a few times a second; what it raises ends the walk.

    Yields:
        A finding for each example, in the order in which they are done, and one for each shard that is damaged, whose
        lost examples have none of their own.
    """
    walker = _RecordWalk(split, examiner) if isinstance(split, RecordSplit) else _FileWalk(split, examiner)
    # Daemons, as all: one that waits for a network drive must not keep the process from ending.
    crew = _Crew(walker, threads, min(readers, walker.num_sources))
    try:
        while (found := crew.take(check_stop)) is not None:
            yield from found
    finally:
        crew.stop()


class _FileWalk:
    """Reads and examines files; each name once."""

    num_sources = 1

    def __init__(self, split: Split, examiner: Examiner) -> None:
        self._split, self._examiner = split, examiner
        self._examples: dict[bytes, list[int]] = {}
        for index, path in enumerate(split.paths):
            self._examples.setdefault(path, []).append(index)

    def tasks(self, source: int) -> Iterator[Any]:
        yield from self._examples.items()

    def examine(self, task: Any) -> list[Finding | ShardFinding]:
        path, indices = task
        contents = read_image_file(path)
        if isinstance(contents, Fault):
            return [Finding(index, contents) for index in indices]
        finding = self._examiner.examine(indices[0], contents)
        return [finding if index == finding.index else dataclasses.replace(finding, index=index) for index in indices]


class _RecordWalk:
    """Reads shards and examines their records."""

    def __init__(self, split: RecordSplit, examiner: Examiner) -> None:
        self._split, self._examiner = split, examiner
        self.num_sources = len(split.shards)

    def tasks(self, source: int) -> Iterator[Any]:
        split = self._split
        first, count = int(split.firsts[source]), int(split.counts[source])
        number = 0
        try:
            with tf.device("/CPU:0"):
                records = tf.data.TFRecordDataset(tf.constant(split.shards[source])).take(count)
            for record in elements(records):
                yield first + number, record.numpy()
                number += 1
            if number < count:
                raise UserError(f"{_text(split.shards[source])} has {number} records, where {count} were counted.")
        except (tf.errors.OpError, UnicodeDecodeError, UserError) as error:
            yield self._explain(source, number, error)

    def _explain(self, source: int, num_read: int, error: Exception) -> ShardFinding:
        path = self._split.shards[source]
        match = _OFFSET.search(str(error))
        damage = locate_damage(path, int(match[1]) if match else None)
        offset = damage.offset if isinstance(damage, RecordDamage) else None
        reason = str(damage) if damage else str(error) if isinstance(error, UserError) else cause_of(error)
        return ShardFinding(source, num_read, offset, reason)

    def examine(self, task: Any) -> list[Finding | ShardFinding]:
        if isinstance(task, ShardFinding):
            return [task]
        index, record = task
        picture = picture_of(self._split, record)
        if isinstance(picture, str):
            return [Finding(index, Fault(picture, is_bad_image=False))]
        return [self._examiner.examine(index, picture, labels_of(self._split, record))]


class _Crew:
    """The threads: some list what is to be done, the others do it."""

    def __init__(self, walker: _FileWalk | _RecordWalk, threads: int, listers: int) -> None:
        self._walker = walker
        self._sources: queue.SimpleQueue[int] = queue.SimpleQueue()
        for source in range(walker.num_sources):
            self._sources.put(source)
        self._tasks: queue.Queue[Any] = queue.Queue(threads * _WAITING_PER_THREAD)
        # Bounded too: whoever takes the findings may be slower than the threads.
        self._found: queue.Queue[Any] = queue.Queue(threads * _WAITING_PER_THREAD)
        self._stopped = threading.Event()
        self._num_listing, self._num_working = listers, threads
        self._lock = threading.Lock()
        for target, count in ((self._list, listers), (self._work, threads)):
            for _ in range(count):
                threading.Thread(target=self._guarded, args=(target,), name="slimexp check", daemon=True).start()

    def take(self, check_stop: Callable[[], None]) -> list[Finding | ShardFinding] | None:
        """Returns the next findings; None once there are no more."""
        while True:
            try:
                found = self._found.get(timeout=_POLL_SECS)
                break
            except queue.Empty:
                check_stop()
        check_stop()
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self) -> None:
        """Lets the threads end as soon as they are done with what they have in hand."""
        self._stopped.set()

    def _guarded(self, target: Callable[[], None]) -> None:
        try:
            target()
        except _StopError:
            pass
        except BaseException as error:  # A fault of ours: whoever waits is to see it.
            self._put(self._found, error)

    def _list(self) -> None:
        while True:
            try:
                source = self._sources.get_nowait()
            except queue.Empty:
                break
            for task in self._walker.tasks(source):
                self._put(self._tasks, task)
        with self._lock:
            self._num_listing -= 1
            is_last = self._num_listing == 0
        if is_last:
            for _ in range(self._num_working):
                self._put(self._tasks, None)

    def _work(self) -> None:
        while (task := self._get(self._tasks)) is not None:
            self._put(self._found, self._walker.examine(task))
        with self._lock:
            self._num_working -= 1
            is_last = self._num_working == 0
        if is_last:
            self._put(self._found, None)

    def _put(self, target: queue.Queue[Any], item: Any) -> None:
        while True:
            if self._stopped.is_set():
                raise _StopError
            try:
                target.put(item, timeout=_POLL_SECS)
                return
            except queue.Full:
                continue

    def _get(self, source: queue.Queue[Any]) -> Any:
        while True:
            if self._stopped.is_set():
                raise _StopError
            try:
                return source.get(timeout=_POLL_SECS)
            except queue.Empty:
                continue


class _StopError(Exception):
    """The walk is over."""


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
