"""A sample of a split's examples to measure with: their bytes in memory, and where they come from."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Split
from slimexp.pipeline.dataset_iterator import elements
from slimexp.pipeline.diagnose import explain_failure, find_faults
from slimexp.pipeline.doctor.page_cache import evict
from slimexp.pipeline.doctor.watch import Watch
from slimexp.pipeline.order import example_seeds, uniform_draws
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.records import record_stream
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.skipping import SkippedImages
from slimexp.pipeline.stream import Locate, ReadFile

__all__ = ["FileSample", "RecordSample", "Sample"]

_T = TypeVar("_T")

# Where the bytes of the examples would fill the memory, fewer are taken.
_MOST_BYTES = 256 * 2**20
_FIRST_READERS = 16


class Sample(abc.ABC):
    """Some examples of a split. What is asked of them at first reads them, so that they are in the page cache then.

    Attributes:
        split: What a pipeline is fed with to see them.
        feed_options: The arguments that go with it, of a `Feed` as of `build_dataset`.
        held: They themselves, as a split whose paths are their numbers among them, in decimal.
        contents: string [n], their bytes.
    """

    split: AnySplit
    feed_options: dict[str, Any]
    held: Split
    contents: tf.Tensor

    def __init__(self, preprocessing: PreprocessingLike, settings: PipelineSettings, seed: int) -> None:
        self._preprocessing = preprocessing
        self._settings = settings
        self._seed = seed

    @abc.abstractmethod
    def encoded(self, readers: int, *, repeat: bool) -> tf.data.Dataset:
        """Returns the examples' bytes, string [], and draws, read as the pipeline does it: endlessly, or once."""

    @abc.abstractmethod
    def evict(self) -> None:
        """Drops the examples from the page cache.

        Raises:
            OSError: If that is not possible; it says why.
        """

    def draws(self, count: int) -> tf.Tensor:
        """Returns the draws of the first examples, float32 [count, num_draws]."""
        indices = tf.range(count, dtype=tf.int64)
        seeds = example_seeds(tf.zeros_like(indices), indices, seed=self._seed)
        return uniform_draws(seeds, self.num_draws)

    @property
    def num_draws(self) -> int:
        """The random numbers of an example; one at the least, as in the pipeline."""
        return max(getattr(self._preprocessing, "num_draws", 0), 1)

    def explained(self, measure: Callable[[], _T]) -> _T:
        """Calls a function; when it fails, the error names the bad images among the examples.

        Raises:
            UserError: If the function fails as a pipeline does.
        """
        try:
            return measure()
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            indices = self._indices()
            raise explain_failure(
                error,
                split=self.split,
                preprocessing=self._preprocessing,
                indices=indices,
                draws=self.draws(len(indices)).numpy(),
                exif=self._settings.exif,
            ) from error

    @abc.abstractmethod
    def _indices(self) -> Sequence[int]:
        """Returns the examples' numbers in `split`."""

    def _hold(self, contents: list[bytes], labels: np.ndarray) -> None:
        with tf.device("/CPU:0"):
            self.contents = tf.constant(contents, tf.string)
        numbers = [str(number).encode() for number in range(len(contents))]
        self.held = Split(self.split.name, numbers, labels, self.split.source)


class FileSample(Sample):
    """Image files, evenly spread over their split."""

    split: Split

    def __init__(
        self,
        split: Split,
        preprocessing: PreprocessingLike,
        settings: PipelineSettings,
        seed: int,
        *,
        count: int,
        watch: Watch,
        skip_bad: bool = False,
        read_file: ReadFile = tf.io.read_file,
        locate: Locate | None = None,
    ) -> None:
        """Reads `count` files, or as many as the memory for them holds, but a batch at the least.

        Args:
            split: The examples.
            preprocessing: Theirs.
            settings: The pipeline's.
            seed: The seed of the run.
            count: How many to take, at most.
            watch: Reads them, so that one that gives no answer can be given up.
            skip_bad: Whether to leave out files that hold no picture that can be read.
            read_file, locate: Where the files' bytes come from; see `build_dataset`.

        Raises:
            UserError: If a file cannot be read.
        """
        super().__init__(preprocessing, settings, seed)
        self._read_file = read_file
        self._locate = locate
        self._loaded: list[bytes] = []
        self.feed_options = {"read_file": read_file, "locate": locate}
        self.split = _part(split, np.linspace(0, len(split) - 1, min(count, len(split))).round().astype(np.int64))
        if skip_bad:
            numbers = range(len(self.split))
            faults = watch.run(lambda: find_faults(self.split, numbers, exif=settings.exif), self._awaited)
            bad = [index for index, fault in faults.items() if fault.is_bad_image]
            self.split = _part(self.split, np.setdiff1d(np.arange(len(self.split)), bad))
        watch.run(lambda: self.explained(self._load), self._awaited)
        contents, self._loaded = self._loaded, []
        self.split = _part(self.split, np.arange(len(contents)))
        self._hold(contents, self.split.labels)

    def encoded(self, readers: int, *, repeat: bool) -> tf.data.Dataset:
        """See the base class."""
        count = len(self.split)
        paths, draws = self._located(), self.draws(count)
        stop = np.iinfo(np.int64).max if repeat else count

        def read(position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self._read_file(paths[position % count]), draws[position % count]

        def read_in_turn(reader: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.range(reader, stop, readers).map(read, synchronous=True)

        numbers = tf.data.Dataset.range(readers)
        return numbers.interleave(read_in_turn, readers, num_parallel_calls=readers, deterministic=True)

    def evict(self) -> None:
        """See the base class."""
        reason = evict(self.split.paths) if self._locate is None else "the small copies of pipeline.cache stay there"
        if reason is not None:
            raise OSError(reason)

    def _indices(self) -> Sequence[int]:
        return range(len(self.split))

    def _awaited(self) -> Sequence[bytes]:
        return self.split.paths[len(self._loaded) :]

    def _load(self) -> None:
        with tf.device("/CPU:0"):
            files = tf.data.Dataset.from_tensor_slices(self._located())
            files = files.map(self._read_file, num_parallel_calls=_FIRST_READERS, deterministic=True)
        size = 0
        for file in elements(files):
            self._loaded.append(file.numpy())
            size += len(self._loaded[-1])
            if size > _MOST_BYTES and len(self._loaded) >= self._settings.batch_size:
                break

    def _located(self) -> tf.Tensor:
        names = tf.constant(self.split.paths, tf.string)
        return names if self._locate is None else self._locate(names)


class RecordSample(Sample):
    """The first records of a stream; since they are read in sequence, a pipeline sees those of the whole split."""

    split: RecordSplit

    def __init__(
        self,
        split: RecordSplit,
        preprocessing: PreprocessingLike,
        settings: PipelineSettings,
        seed: int,
        *,
        count: int,
        watch: Watch,
        skip_bad: bool = False,
    ) -> None:
        """Reads `count` records, or as many as the memory for them holds, but a batch at the least.

        Args:
            split: The examples.
            preprocessing: Theirs.
            settings: The pipeline's.
            seed: The seed of the run.
            count: How many to take, at most.
            watch: Reads them, so that a file that gives no answer can be given up.
            skip_bad: Whether to leave out those of them whose picture cannot be read.

        Raises:
            UserError: If a record cannot be read.
        """
        super().__init__(preprocessing, settings.fitted(is_sequential=True, is_training=True), seed)
        self.split = split
        self._first: list[int] = []
        self._skipped = SkippedImages(split, path=None, max_fraction=1.0) if skip_bad else None
        self.feed_options = {"skipped": self._skipped}
        most = min(count, len(split))
        contents, labels = watch.run(lambda: self.explained(lambda: self._load(most)), lambda: split.shards)
        if self._skipped is not None:
            first = self._first
            faults = watch.run(lambda: find_faults(split, first, exif=settings.exif), lambda: split.shards)
            bad = {index: fault for index, fault in faults.items() if fault.is_bad_image}
            if bad:
                self._skipped.add(bad)
                good = [place for place, index in enumerate(self._first) if index not in bad]
                contents, labels = [contents[place] for place in good], labels[good]
                self._first = [self._first[place] for place in good]
        self._hold(contents, labels)

    def encoded(self, readers: int, *, repeat: bool) -> tf.data.Dataset:
        """See the base class."""
        stream = self._stream(readers).map(lambda contents, labelled, draws: (contents, draws))
        return stream if repeat else stream.take(len(self.split))

    def evict(self) -> None:
        """See the base class."""
        reason = evict(self.split.shards)
        if reason is not None:
            raise OSError(reason)

    def _indices(self) -> Sequence[int]:
        return self._first or range(min(len(self.split), self._settings.batch_size))

    def _load(self, count: int) -> tuple[list[bytes], np.ndarray]:
        contents: list[bytes] = []
        labels = []
        size = 0
        for picture, (index, label), _ in elements(self._stream(self._settings.readers).take(count)):
            contents.append(picture.numpy())
            labels.append(label.numpy())
            self._first.append(int(index))
            size += len(contents[-1])
            if size > _MOST_BYTES and len(contents) >= self._settings.batch_size:
                break
        return contents, np.stack(labels)

    def _stream(self, readers: int) -> tf.data.Dataset:
        return record_stream(
            self.split,
            dataclasses.replace(self._settings, readers=readers),
            seed=self._seed,
            is_training=True,
            num_draws=self.num_draws,
            skipped=self._skipped,
        )


def _part(split: Split, chosen: np.ndarray) -> Split:
    lines = None if split.lines is None else split.lines[chosen]
    return Split(split.name, [split.paths[index] for index in chosen], split.labels[chosen], split.source, lines)
