"""The iterator that training and evaluation take their batches from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.pipeline.diagnose import explain_failure
from slimexp.pipeline.order import examples_at
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.stream import build_dataset

__all__ = ["Feed"]


class Feed(Iterator[Any]):
    """Hands out a split's batches, divided among the replicas of a strategy.

    Use it as a context manager, or call `close`, to stop the pipeline's threads.

    Attributes:
        batch_size: Examples in a global batch.
        num_batches: The batches in the stream from `start_position` on; None for training, which is endless.
        last_wait_secs: The seconds that the last batch kept its taker waiting.
    """

    def __init__(
        self,
        split: Split,
        *,
        preprocessing: PreprocessingLike,
        settings: PipelineSettings,
        seed: int,
        is_training: bool,
        start_position: int = 0,
        strategy: tf.distribute.Strategy | None = None,
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

        Raises:
            UserError: If the settings do not fit the split or the strategy.
        """
        self._strategy = strategy or tf.distribute.get_strategy()
        settings.check(len(split), self._strategy.num_replicas_in_sync, is_training=is_training)
        self._split = split
        self._preprocessing = preprocessing
        self._seed = seed
        self._shuffle = is_training and settings.shuffle
        self._position = start_position
        self._stop = None if is_training else len(split)
        self.batch_size = settings.batch_size
        self.num_batches = None if is_training else -(-max(len(split) - start_position, 0) // settings.batch_size)
        self.last_wait_secs = 0.0
        dataset = build_dataset(
            split,
            preprocessing=preprocessing,
            settings=settings,
            seed=seed,
            is_training=is_training,
            start_position=start_position,
        )
        self._dataset: tf.data.Dataset | None = dataset
        self._batch_spec = dataset.element_spec
        self._iterator: Iterator[Any] | None = None

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
            UserError: If an image cannot be read or preprocessed; all bad files of the batch are named.
            ValueError: If the feed was closed, which a failure does too.
        """
        if self._dataset is None:
            raise ValueError("The feed is closed.")
        started = time.perf_counter()
        try:
            with tf.device("/CPU:0"):
                if self._iterator is None:
                    self._iterator = iter(self._dataset)
                batch = next(self._iterator)
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            # UnicodeDecodeError: TensorFlow cannot put a file name that is not UTF-8 into the message it wants to give.
            explanation = self._explanation(error)
            self.close()  # The pipeline would go on behind the failed batch, so that positions were wrong.
            raise explanation from explanation.__cause__
        self.last_wait_secs = time.perf_counter() - started
        self._position += self.batch_size
        return self._divide(batch)

    def close(self) -> None:
        """Stops the pipeline and lets go of its memory."""
        self._iterator = None
        self._dataset = None

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

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

    def _explanation(self, error: Exception) -> Exception:
        # The order is fixed, so what failed can only be among the examples of the batch that was asked for.
        stop = self._position + self.batch_size
        positions = np.arange(self._position, stop if self._stop is None else min(stop, self._stop))
        with tf.device("/CPU:0"):
            indices, seeds = examples_at(
                positions, num_examples=len(self._split), seed=self._seed, shuffle=self._shuffle
            )
        return explain_failure(
            error,
            split=self._split,
            preprocessing=self._preprocessing,
            indices=[int(index) for index in indices.numpy()],
            seeds=seeds.numpy(),
        )
