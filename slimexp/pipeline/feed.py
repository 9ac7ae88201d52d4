"""The iterator that training and evaluation take their batches from."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit
from slimexp.errors import UserError
from slimexp.pipeline.dataset_iterator import DatasetIterator
from slimexp.pipeline.diagnose import explain_failure, find_faults
from slimexp.pipeline.engines import choose_engine
from slimexp.pipeline.monitor import Monitor, queue_fills
from slimexp.pipeline.order import example_seeds, examples_at, uniform_draws
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.record_faults import explain_shards, find_damaged_shards
from slimexp.pipeline.records import record_numbers
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.skipping import SkippedImages
from slimexp.pipeline.stream import Locate, ReadFile, build_dataset
from slimexp.pipeline.waiting import Taker, find_silent

__all__ = ["Feed"]

_log = logging.getLogger("slimexp")

# How long a batch may take before a warning says so; the next one comes after twice that, and so on.
_PATIENCE_SECS = 60.0
_MOST_NAMED = 5


class Feed(Iterator[Any]):
    """Hands out a split's batches, divided among the replicas of a strategy.

    Use it as a context manager, or call `close`, to stop the pipeline's threads.

    Attributes:
        batch_size: Examples in a global batch.
        num_batches: The batches in the stream from `start_position` on; None for training, which is endless.
        decoder: What decodes and preprocesses: `native` or `tensorflow`.
        last_wait_secs: The seconds that the last batch kept its taker waiting.
        monitor: What looks into the pipeline of a training stream; None before its first batch.
    """

    def __init__(
        self,
        split: AnySplit,
        *,
        preprocessing: PreprocessingLike,
        settings: PipelineSettings,
        seed: int,
        is_training: bool,
        start_position: int = 0,
        strategy: tf.distribute.Strategy | None = None,
        read_file: ReadFile = tf.io.read_file,
        locate: Locate | None = None,
        skipped: SkippedImages | None = None,
        check_stop: Callable[[], None] = lambda: None,
        patience_secs: float = _PATIENCE_SECS,
    ) -> None:
        """Builds the pipeline; the first `next` starts it.

        Args:
            split: The examples.
            preprocessing: What to cut out of a picture and what to make of it.
            settings: Thread counts, batch size, queue capacities.
            seed: The seed of the run.
            is_training: Whether the stream is endless, shuffled as the settings say and augmented, or goes once
                through the examples.
            start_position: The position of the first example; see `build_dataset`.
            strategy: What to divide batches among. None: the strategy in whose scope this is called.
            read_file, locate: Where the files' bytes come from; see `build_dataset`.
            skipped: Where bad images are noted, which are left out from then on; see `build_dataset`. None: they are
                errors.
            check_stop: Called a few times a second while a batch is waited for; what it raises ends the wait, and the
                feed with it.
            patience_secs: After waiting so long for a batch, and each time after twice as long, a warning says what is
                waited for.

        Raises:
            UserError: If the settings do not fit the split or the strategy.
        """
        self._strategy = strategy or tf.distribute.get_strategy()
        is_sequential = split.is_sequential
        replicas = self._strategy.num_replicas_in_sync
        settings.check(len(split), replicas, is_training=is_training, is_sequential=is_sequential)
        self._split = split
        self._preprocessing = preprocessing
        self._seed = seed
        self._shuffle = is_training and settings.shuffle
        self._position = start_position
        self._stop = None if is_training else len(split)
        self.batch_size = settings.batch_size
        self.num_batches = None if is_training else -(-max(len(split) - start_position, 0) // settings.batch_size)
        self.last_wait_secs = 0.0
        with tf.device("/CPU:0"):
            engine = choose_engine(preprocessing, settings)
        self._settings = settings.fitted(is_sequential=is_sequential, is_training=is_training)
        self._pool = engine.pool
        self.decoder = "tensorflow" if engine.pool is None else "native"
        start = [start_position]  # Of the next iterator.
        dataset = build_dataset(
            split,
            preprocessing=preprocessing,
            settings=settings,
            seed=seed,
            is_training=is_training,
            start_position=start_position if skipped is None else lambda: start[0],
            read_file=read_file,
            locate=locate,
            engine=engine,
            skipped=skipped,
        )
        self._check_stop = check_stop
        self._patience_secs = patience_secs
        self._warn_after_secs = patience_secs
        self._taker = Taker()
        self._skipped = skipped
        self._start_position = start
        self._dataset: tf.data.Dataset | None = dataset
        self._batch_spec = dataset.element_spec
        self._iterator: DatasetIterator | None = None
        self._is_training = is_training
        self.monitor: Monitor | None = None

    @property
    def position(self) -> int:
        """The position of the next batch's first example: k batches after `start_position`, k * batch size more."""
        return self._position

    @property
    def element_spec(self) -> Any:
        """The type of a batch, for the signature of a `tf.function`."""
        zeros = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), self._batch_spec)
        return tf.nest.map_structure(tf.type_spec_from_value, self._divide(zeros))

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        """Waits for the next batch.

        Returns:
            The dict that `build_dataset` describes; with several replicas, per-replica values of it.

        Raises:
            StopIteration: After the last batch of an evaluation.
            UserError: If an image cannot be read or preprocessed; all bad files of the batch are named. With `skipped`:
                if the file is at fault otherwise than by its contents, or too many are bad.
            ValueError: If the feed was closed, which a failure does too.
        """
        if self._dataset is None:
            raise ValueError("The feed is closed.")
        started = time.perf_counter()
        self._warn_after_secs = self._patience_secs
        batch = None
        while batch is None:
            batch = self._wait()
        self.last_wait_secs = time.perf_counter() - started
        if self.monitor is not None:
            self.monitor.took(self.batch_size, self.last_wait_secs)
        self._position += self.batch_size
        return self._divide(batch)

    def _wait(self) -> dict[str, tf.Tensor] | None:
        """Waits for the next batch; None: it had bad images, which are skipped from now on."""
        try:
            if self._iterator is None:
                self._start()
            assert self._iterator is not None
            return self._taker.take(functools.partial(next, self._iterator), self._while_waiting)
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            # UnicodeDecodeError: TensorFlow cannot put a file name that is not UTF-8 into the message it wants to give.
            try:
                explanation = self._skip_or_explain(error)
            except BaseException:
                self.close()
                raise
            # The pipeline would go on behind the failed batch, so that positions were wrong.
            if explanation is not None:
                self.close()
                raise explanation from explanation.__cause__
            self._stop_iterator()
            self._start_position[0] = self._position
            return None

    def close(self) -> None:
        """Stops the pipeline and lets go of its memory; the monitor keeps what it measured."""
        self._taker.close()
        self._stop_iterator()
        self._dataset = None

    def paused(self) -> AbstractContextManager[None]:
        """Keeps what happens inside out of the monitor's measurement."""
        return contextlib.nullcontext() if self.monitor is None else self.monitor.paused()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _while_waiting(self, secs: float) -> None:
        self._check_stop()
        if secs >= self._warn_after_secs:
            self._warn_after_secs = 2 * secs
            _log.warning("%s", self._what_is_awaited(secs))

    def _what_is_awaited(self, secs: float) -> str:
        split = self._split
        assert self._iterator is not None
        fills = queue_fills(self._iterator, self._settings, self._pool)
        queues = ", ".join(
            f"{queue.name} {fills[queue.name]:.0%} of {queue.capacity}" for queue in self._settings.queues().values()
        )
        if isinstance(split, RecordSplit):
            paths = list(split.shards)
        else:
            paths = list(dict.fromkeys(split.paths[index] for index in self._examples_of_batch()[0]))
        silent = [path.decode("utf-8", "backslashreplace") for path in find_silent(paths)]
        if silent:
            more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
            named = ", ".join(map(repr, silent[:_MOST_NAMED]))
            reading = f"These do not answer: {named}{more}. A network drive that is gone would explain it."
        else:
            reading = f"The files that were tried do answer ({split.source})."
        return f"No batch for {secs:.0f} s. Full are the queues {queues}. {reading} Ctrl-C ends the run."

    def _start(self) -> None:
        assert self._dataset is not None
        self._iterator = DatasetIterator(self._dataset)
        if self._is_training:
            self.monitor = Monitor(self._iterator, self._settings, self._pool)

    def _stop_iterator(self) -> None:
        if self.monitor is not None:
            self.monitor.close()
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None

    def _divide(self, batch: dict[str, tf.Tensor]) -> Any:
        """Gives each replica its share of a batch, without a copy."""
        # `experimental_distribute_dataset` would do this, but its iterator (MultiDeviceIterator, TensorFlow 2.21) can
        # crash the process when it is let go of in the midst of a stream, which is how an endless one ends: its thread
        # goes on reading from an iterator that is already freed.
        num_replicas = self._strategy.num_replicas_in_sync
        if num_replicas == 1:
            return batch
        share = self.batch_size // num_replicas

        def divide(value: tf.Tensor) -> Any:
            def part(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
                start = context.replica_id_in_sync_group * share
                return value[start : start + share]

            return self._strategy.experimental_distribute_values_from_function(part)

        with tf.device("/CPU:0"):
            return tf.nest.map_structure(divide, batch)

    def _skip_or_explain(self, error: Exception) -> Exception | None:
        """Adds the failed batch's bad images to the skipped ones and returns None; or returns what to raise."""
        try:
            examples, seeds = self._examples_of_batch()
        except tf.errors.OpError as reading:
            assert isinstance(self._split, RecordSplit)
            damaged = find_damaged_shards(self._split, reading)
            if self._skipped is not None and self._skipped.add_damaged_shards(damaged):
                return None
            explanation = UserError(
                explain_shards(self._split, damaged)
                if damaged
                else f"{self._split.source} cannot be read, yet each shard seems to be whole now: {reading.message}"
            )
            explanation.__cause__ = error
            return explanation
        with tf.device("/CPU:0"):
            draws = uniform_draws(seeds, max(getattr(self._preprocessing, "num_draws", 0), 1)).numpy()
        if self._skipped is not None:
            used = np.flatnonzero(~self._skipped.are_skipped(examples))
            draws = draws[used] if len(used) else draws[:1]
            examples = [examples[place] for place in used] or [self._skipped.first_good()]
            faults = find_faults(self._split, examples, exif=self._settings.exif)
            if faults and all(fault.is_bad_image for fault in faults.values()):
                self._skipped.add(faults)
                return None
        return explain_failure(
            error,
            split=self._split,
            preprocessing=self._preprocessing,
            indices=examples,
            draws=draws,
            exif=self._settings.exif,
        )

    def _examples_of_batch(self) -> tuple[list[int], tf.Tensor]:
        """Returns the numbers of the next batch's examples, and their seeds, int64 [n, 2]."""
        # The order is fixed, so what failed can only be among the examples of the batch that was asked for.
        stop = self._position + self.batch_size
        positions = np.arange(self._position, stop if self._stop is None else min(stop, self._stop))
        split = self._split
        with tf.device("/CPU:0"):
            if not isinstance(split, RecordSplit):
                index, seeds = examples_at(positions, num_examples=len(split), seed=self._seed, shuffle=self._shuffle)
                return index.numpy().tolist(), seeds
            numbers = record_numbers(
                split,
                self._settings,
                seed=self._seed,
                is_training=self._is_training,
                start_position=self._position,
                skipped=self._skipped,
            )
            pairs = list(numbers.take(len(positions)))
            index = tf.stack([index for index, _ in pairs])
            return index.numpy().tolist(), example_seeds(
                tf.stack([epoch for _, epoch in pairs]), index, seed=self._seed
            )
