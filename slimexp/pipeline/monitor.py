"""Looks into a running pipeline: how busy its stages are, how full its queues, how long the network waits.

What it reads is the model that tf.data keeps of the pipeline for its autotuner, and the counters of the native op's
threads. Reading takes 0.1 ms, five times a second. Keeping the model costs nothing that shows with the native op or on
large photos, and 2 % of the throughput with TensorFlow's ops on small ones (`scripts/bench_pipeline.py` measures it).
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

from slimexp.pipeline.dataset_iterator import DatasetIterator
from slimexp.pipeline.doctor.cpus import available_cpus
from slimexp.pipeline.native import ops
from slimexp.pipeline.settings import QUEUE_NAMES, PipelineSettings
from slimexp.pipeline.stats import PipelineStats, QueueStats, StageStats

__all__ = ["Monitor", "queue_fills"]

_SAMPLE_EVERY_SECS = 0.2


@dataclasses.dataclass
class _Counts:
    """What has added up so far: of a moment all since the pipeline's start, of an interval all within it."""

    secs: float = 0.0
    cpu_secs: float = 0.0
    images: int = 0
    wait_secs: float = 0.0
    read_images: int = 0
    read_busy_secs: float = 0.0
    preprocess_images: int = 0
    preprocess_busy_secs: float = 0.0

    def plus(self, other: _Counts, sign: int = 1) -> _Counts:
        values = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return _Counts(*(one + sign * two for one, two in values))


@dataclasses.dataclass
class _Interval:
    """An interval's counts, and the sums of its samples of the queues."""

    counts: _Counts = dataclasses.field(default_factory=_Counts)
    fills: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(QUEUE_NAMES, 0.0))
    readers_at_work: float = 0.0
    num_samples: int = 0


class Monitor:
    """Measures a pipeline from its second batch on: the first one and the step after it are start-up.

    A thread samples the queues until `close`.
    """

    def __init__(self, iterator: DatasetIterator, settings: PipelineSettings, pool: str | None) -> None:
        """Watches an iterator over a dataset that `build_dataset` made.

        Args:
            iterator: A live one.
            settings: Its settings.
            pool: The name of the native op's threads; None if TensorFlow's ops preprocess.
        """
        self._iterator = iterator
        self._settings = settings
        self._pool = pool
        self._lock = threading.Lock()
        self._taken = _Counts()
        self._num_taken = 0
        self._base: _Counts | None = None  # None: does not count now.
        self._interval, self._total = _Interval(), _Interval()
        self._threads = {"read": settings.readers, "preprocess": settings.threads}
        self._reading: dict[int, float] = {}
        self._read_busy_secs = 0.0
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample_until_closed, name="slimexp monitor", daemon=True)
        self._sampler.start()

    def took(self, num_images: int, wait_secs: float) -> None:
        """Counts a batch that the network took after waiting for it."""
        with self._lock:
            self._taken.images += num_images
            self._taken.wait_secs += wait_secs
            self._num_taken += 1
            if self._num_taken == 2:
                self._base = self._now()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out what happens inside: queues fill while the network does something else."""
        with self._lock:
            was_counting = self._base is not None
            self._add_up()
            self._base = None
        try:
            yield
        finally:
            with self._lock:
                if was_counting:
                    self._base = self._now()

    def interval(self) -> PipelineStats | None:
        """Returns what was measured since the last call, or None if nothing was."""
        with self._lock:
            self._add_up()
            interval, self._interval = self._interval, _Interval()
            return self._stats(interval)

    def total(self) -> PipelineStats | None:
        """Returns what was measured from the second batch on, or None if nothing was."""
        with self._lock:
            self._add_up()
            return self._stats(self._total)

    def close(self) -> None:
        """Stops the thread; what was measured can still be asked for."""
        self._done.set()
        self._sampler.join()
        with self._lock:
            self._add_up()
            self._base = None

    def _sample_until_closed(self) -> None:
        while not self._done.wait(_SAMPLE_EVERY_SECS):
            with self._lock:
                if self._base is not None:
                    self._sample()

    def _sample(self) -> None:
        nodes = _Nodes(self._iterator)
        self._add_reading(nodes)
        fills = nodes.fills(self._settings, self._pool)
        at_work = nodes.readers_at_work()
        for interval in (self._interval, self._total):
            interval.readers_at_work += at_work
            for name, fill in fills.items():
                interval.fills[name] += fill
            interval.num_samples += 1

    def _now(self) -> _Counts:
        nodes = _Nodes(self._iterator)
        self._add_reading(nodes)
        preprocess_images, preprocess_busy_secs = nodes.preprocessing(self._pool)
        self._threads.update(nodes.threads(self._pool))
        return _Counts(
            secs=time.perf_counter(),
            cpu_secs=time.process_time(),
            images=self._taken.images,
            wait_secs=self._taken.wait_secs,
            read_images=nodes.num_read(),
            read_busy_secs=self._read_busy_secs,
            preprocess_images=preprocess_images,
            preprocess_busy_secs=preprocess_busy_secs,
        )

    def _add_reading(self, nodes: _Nodes) -> None:
        """Adds what the readers have done since this was last called; those that are gone by now did a little more."""
        secs = nodes.reading_secs()
        self._read_busy_secs += sum(max(value - self._reading.get(reader, 0.0), 0.0) for reader, value in secs.items())
        self._reading = secs

    def _add_up(self) -> None:
        if self._base is None:
            return
        now = self._now()
        passed = now.plus(self._base, -1)
        self._base = now
        for interval in (self._interval, self._total):
            interval.counts = interval.counts.plus(passed)
        if not self._interval.num_samples:
            self._sample()  # The interval is shorter than the sampler's.

    def _stats(self, interval: _Interval) -> PipelineStats | None:
        counts = interval.counts
        if counts.secs <= 0 or not interval.num_samples:
            return None
        num_cpus = available_cpus()

        def stage(name: str, images: int, busy_secs: float) -> StageStats:
            threads = self._threads[name]
            return StageStats(name, threads, images / counts.secs, min(busy_secs / (threads * counts.secs), 1.0))

        # What readers of files spend is not in the model, so it is estimated from the samples.
        read_busy_secs = interval.readers_at_work / interval.num_samples * counts.secs + counts.read_busy_secs

        return PipelineStats(
            secs=counts.secs,
            images=counts.images,
            wait_frac=min(counts.wait_secs / counts.secs, 1.0),
            stages=(
                stage("read", counts.read_images, read_busy_secs),
                stage("preprocess", counts.preprocess_images, counts.preprocess_busy_secs),
            ),
            queues=tuple(
                QueueStats(queue.name, queue.capacity, queue.unit, interval.fills[queue.name] / interval.num_samples)
                for queue in self._settings.queues().values()
            ),
            cpu_frac=min(counts.cpu_secs / (counts.secs * num_cpus), 1.0),
            num_cpus=num_cpus,
        )


def queue_fills(iterator: DatasetIterator, settings: PipelineSettings, pool: str | None) -> dict[str, float]:
    """Returns the share of each queue that is taken at this moment; for the arguments see `Monitor`."""
    return _Nodes(iterator).fills(settings, pool)


class _Nodes:
    """The pipeline's model at one moment, with its nodes told apart by their place in the chain."""

    def __init__(self, iterator: DatasetIterator) -> None:
        self._nodes = iterator.model().nodes
        chain = []
        node = next(node for node in self._nodes.values() if node.name == "Root")
        while node.name != "ParallelInterleaveV4" and node.inputs:
            # A FlatMap has its own input and what it is at: of records, those of the epoch.
            node = self._nodes[node.inputs[-1 if node.name == "FlatMap" else 0]]
            chain.append(node)
        # Behind the native op a second one may stand: steps of the user's own.
        *self._steps, self._preprocess = [node for node in chain if node.name == "ParallelMapV2"]
        place = chain.index(self._preprocess)
        before, behind = ([node for node in part if node.name == "Prefetch"] for part in (chain[:place], chain[place:]))
        self._batch_queue = before[0]
        self._prefetch_queue = before[1] if len(before) == 2 else None
        # None for a moment between two epochs of records.
        self._read = chain[-1] if chain[-1].name == "ParallelInterleaveV4" else None
        # Readers of files keep it themselves.
        self._read_queue = behind[0] if behind else chain[-1]
        self._readers = [] if self._read is None else [self._nodes[number] for number in self._read.inputs[1:]]

    def num_read(self) -> int:
        """Images read."""
        node = self._read_queue
        return (self._nodes[node.inputs[0]] if node.name == "Prefetch" else node).num_elements

    def readers_at_work(self) -> float:
        """How many of the readers of files are at work: those that have room for another one. 0 for records."""
        readers = [reader for reader in self._readers if not self._is_of_records(reader)]
        if self._read is None or not readers:
            return 0.0
        room = int(_parameter(self._read, "max_buffered_elements")) - self._read.buffered_elements
        return min(max(room, 0), len(readers))

    def reading_secs(self) -> dict[int, float]:
        """Seconds spent by each of the readers of records that there are now; shards come and go."""
        return {reader.id: self._secs_below(reader) for reader in self._readers if self._is_of_records(reader)}

    def _secs_below(self, reader: Any) -> float:
        return (reader.processing_time + sum(self._nodes[n].processing_time for n in self._below(reader))) / 1e9

    def _is_of_records(self, reader: Any) -> bool:
        return reader.name == "Zip"

    def _below(self, node: Any) -> Iterator[int]:
        for number in node.inputs:
            yield number
            yield from self._below(self._nodes[number])

    def preprocessing(self, pool: str | None) -> tuple[int, float]:
        """Images preprocessed, and seconds spent on it, summed over the threads."""
        if pool is None:
            return self._preprocess.num_elements, self._preprocess.processing_time / 1e9
        stats = ops.pool_stats(pool)
        if stats is None:
            return 0, 0.0
        # Steps have as many threads again: the stage is as busy as the busier of the two.
        return stats.images, max([stats.wall_secs, *(step.processing_time / 1e9 for step in self._steps)])

    def threads(self, pool: str | None) -> dict[str, int]:
        """The threads of each stage, as in effect."""
        threads = {} if self._read is None else {"read": int(_parameter(self._read, "parallelism"))}
        if pool is None:
            threads["preprocess"] = int(_parameter(self._preprocess, "parallelism"))
        else:
            stats = ops.pool_stats(pool)
            if stats is not None:
                threads["preprocess"] = stats.threads
        return threads

    def fills(self, settings: PipelineSettings, pool: str | None) -> dict[str, float]:
        """The share of each queue that is taken."""
        # The names of shards are few, and always at hand.
        names = [1.0 if self._is_of_records(r) else _fill(self._prefetch_below(r)) for r in self._readers]
        if self._prefetch_queue is not None:
            prefetch = _fill(self._prefetch_queue)
        else:
            stats = ops.pool_stats(pool) if pool else None
            waiting = self._preprocess.buffered_elements * settings.batch_size + (stats.waiting if stats else 0)
            prefetch = min(waiting / (_parameter(self._preprocess, "parallelism") * settings.batch_size), 1.0)
        return {
            "filename": sum(names) / len(names) if names else 1.0,
            "read": _fill(self._read_queue),
            "prefetch": prefetch,
            "batch": _fill(self._batch_queue),
        }

    def _prefetch_below(self, node: Any) -> Any:
        while node.name != "Prefetch":
            node = self._nodes[node.inputs[0]]
        return node


def _fill(node: Any) -> float:
    capacity = _parameter(node, "buffer_size" if node.name == "Prefetch" else "max_buffered_elements")
    return min(node.buffered_elements / max(capacity, 1.0), 1.0)


def _parameter(node: Any, name: str) -> float:
    return next(parameter.value for parameter in node.parameters if parameter.name == name)
