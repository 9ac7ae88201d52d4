"""Measures the pipeline's stages, each alone on real examples in memory or in the page cache, and all together.

Every measurement is a method that runs for some seconds and returns images a second, so that a caller can take turns
with them: on a machine with other users, what is measured side by side can be compared.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.samples import FileSample, RecordSample, Sample
from slimexp.pipeline.doctor.watch import Watch
from slimexp.pipeline.engines import choose_engine
from slimexp.pipeline.images.decode import decode_window
from slimexp.pipeline.preprocessing.base import PreprocessingLike, WindowPreprocessing
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.steps import inner_of
from slimexp.pipeline.stream import build_dataset

__all__ = ["StageBench", "step_rate", "take_turns"]

# Enough examples that their sizes are typical.
_MOST_EXAMPLES = 512
# Decoded windows and finished images are larger than encoded pictures, so fewer of them are held in memory.
_MOST_HELD_BYTES = 64 * 2**20
# What is counted at a time where elements are small: a step of Python costs more than such an element.
_CHUNK = 32
# The share of a measurement's time at the start in which queues fill and threads start: it does not count.
_WARM_UP = 0.2
# What a measurement that starts the clock behind its first element has to come to, or it tells nothing: so many more
# elements, images for each reader that is amid one as it starts, and seconds.
_LEAST_ELEMENTS, _LEAST_A_READER, _LEAST_SECS = 4, 4, 0.02
# Steps that do not count: no fewer, whatever time they take, and no more.
_WARM_UP_STEPS, _MOST_WARM_UP_STEPS = 3, 10_000
# Steps that may be under way on a device before the clock is looked at with all of them done.
_STEPS_AHEAD = 16


class StageBench:
    """The stages of one pipeline, ready to be measured.

    The examples are a sample of the split. They are read once at the start, so that all but the `cold` measurements
    find them in the page cache; those say why when the system does not let files be dropped.

    Attributes:
        sample: The examples.
        mean_bytes: The mean size of an encoded picture.
        is_native: Whether our own op decodes and preprocesses, and not TensorFlow's.
    """

    def __init__(
        self,
        split: AnySplit,
        *,
        preprocessing: PreprocessingLike,
        settings: PipelineSettings,
        seed: int,
        skip_bad: bool = False,
        most_examples: int = _MOST_EXAMPLES,
        check_stop: Callable[[], None] = lambda: None,
        **file_access: Any,
    ) -> None:
        """Reads the sample.

        Args:
            split: The examples.
            preprocessing: What to cut out of a picture and what to make of it, for training.
            settings: Threads, readers, batch size and queues of the pipeline.
            seed: The seed of the run.
            skip_bad: Whether to leave out pictures that cannot be read, instead of refusing them.
            most_examples: The size of the sample, at most; a batch is always in it.
            check_stop: Called a few times a second during this and all measurements; what it raises ends them.
            file_access: `read_file` and `locate`, where image files' bytes come from; see `build_dataset`.

        Raises:
            UserError: If the settings do not fit the split, or an image cannot be read.
        """
        settings.check(len(split), is_training=True, is_sequential=split.is_sequential)
        self._preprocessing = preprocessing
        self._settings = settings
        self._seed = seed
        self._watch = Watch(check_stop)
        count = max(most_examples, settings.batch_size)
        options: dict[str, Any] = {"count": count, "watch": self._watch, "skip_bad": skip_bad}
        self.sample: Sample
        if isinstance(split, RecordSplit):
            self.sample = RecordSample(split, preprocessing, settings, seed, **options)
        else:
            self.sample = FileSample(split, preprocessing, settings, seed, **options, **file_access)
        if skip_bad:
            settings.check(len(self.sample.held), is_training=True, is_sequential=split.is_sequential)
        self.mean_bytes = float(tf.reduce_mean(tf.cast(tf.strings.length(self.sample.contents), tf.float64)))
        with tf.device("/CPU:0"):
            self.is_native = choose_engine(preprocessing, settings).pool is not None
        self._held_windows: tf.data.Dataset | None = None
        self._built: dict[object, tf.data.Dataset] = {}

    def read(self, secs: float, readers: int | None = None) -> float:
        """Measures the readers alone, or another number of them: files in the page cache to bytes in memory."""
        return self._read(secs, readers, repeat=True)

    def read_cold(self, secs: float, readers: int | None = None) -> float:
        """Measures the readers on files that are not in the page cache, once through the sample at most.

        Raises:
            OSError: If the system does not let files be dropped from the cache, or the sample is too small; it says
                which.
        """
        self._watch.run(self.sample.evict)
        return self._read(secs, readers, repeat=False)

    def read_and_decode(self, secs: float) -> float:
        """Measures `readers` that read and `threads` that decode what the preprocessing asks for, with TensorFlow."""
        readers, threads = self._settings.readers, self._settings.threads

        def build() -> tf.data.Dataset:
            files = self.sample.encoded(readers, repeat=True).prefetch(max(_CHUNK, 2 * readers, 2 * threads))
            windows = files.map(self._decode, num_parallel_calls=threads, deterministic=True)
            sizes = windows.map(lambda window, draws: tf.size(window)).batch(_CHUNK)
            return sizes.with_options(_options(readers + threads + 1))

        return self._rate(("read_and_decode",), build, secs)

    def finish(self, secs: float) -> float:
        """Measures `threads` that turn decoded windows in memory into finished images, with TensorFlow's ops."""
        threads = self._settings.threads

        def build() -> tf.data.Dataset:
            images = self._windows().map(self._preprocessing.finish, num_parallel_calls=threads, deterministic=True)
            return images.map(tf.size).batch(_CHUNK).with_options(_options(threads + 1))

        return self._rate(("finish",), build, secs)

    def preprocess(self, secs: float, settings: PipelineSettings | None = None) -> float:
        """Measures the preprocessing threads as they are, decoding and batching included, on bytes in memory.

        Args:
            secs: For how long.
            settings: Others than the pipeline's own, of which `threads` counts.
        """
        settings = settings or self._settings
        contents = self.sample.contents

        def from_memory(path: tf.Tensor) -> tf.Tensor:
            return contents[tf.strings.to_number(path, tf.int32)]

        def build() -> tf.data.Dataset:
            # What is held is a list, whatever it was read from, and a list is shuffled without a buffer.
            for_list = dataclasses.replace(settings, read_min_after_dequeue=None)
            return self._pipeline(self.sample.held, for_list, read_file=from_memory)

        return self._rate(("preprocess", settings), build, secs)

    def batch(self, secs: float) -> float:
        """Measures how fast finished images in memory are put together to batches."""

        def build() -> tf.data.Dataset:
            images = self._windows().map(self._preprocessing.finish).take(len(self.sample.held))
            images = _held(images, lambda image: 4 * image.shape.num_elements())
            batches = images.batch(self._settings.batch_size, drop_remainder=True).prefetch(2)
            return batches.with_options(_options(2))

        return self._rate(("batch",), build, secs)

    def whole(self, secs: float) -> float:
        """Measures the whole pipeline on files in the page cache, with nobody behind it who takes his time."""
        return self._rate(("whole",), self._whole, secs)

    def whole_cold(self, secs: float) -> float:
        """Measures the whole pipeline on files that are not in the page cache; see `read_cold`."""
        self._watch.run(self.sample.evict)

        def build() -> tf.data.Dataset:
            return self._whole().take(len(self.sample.split) // self._settings.batch_size)

        return self._rate(("whole_cold",), build, secs, once=self._settings.readers)

    def _decode(self, contents: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        preprocessing, settings = self._preprocessing, self._settings
        by_window = isinstance(inner_of(preprocessing), WindowPreprocessing)
        window = decode_window(
            contents,
            lambda height, width: preprocessing.window(height, width, draws),
            exif=settings.exif,
            size_px=getattr(preprocessing, "size_px", None) if by_window else None,
            scaled=settings.scaled_decode,
        )
        return window, draws

    def _read(self, secs: float, readers: int | None, *, repeat: bool) -> float:
        readers = readers or self._settings.readers
        # Of a small sample, too, there is to be something left behind the first element.
        chunk = _CHUNK if repeat else max(1, min(_CHUNK, len(self.sample.held) // 8))

        def build() -> tf.data.Dataset:
            files = self.sample.encoded(readers, repeat=repeat).prefetch(max(chunk, 2 * readers))
            sizes = files.map(lambda contents, draws: tf.strings.length(contents)).batch(chunk)
            return sizes.with_options(_options(readers + 1))

        return self._rate(("read", readers, repeat), build, secs, once=0 if repeat else readers)

    def _windows(self) -> tf.data.Dataset:
        """Returns windows and draws, endlessly, from memory."""
        if self._held_windows is None:
            windows = tf.data.Dataset.from_tensor_slices(
                (self.sample.contents, self.sample.draws(len(self.sample.held)))
            ).map(self._decode)
            self._held_windows = _held(windows, lambda window, draws: window.shape.num_elements())
        return self._held_windows

    def _whole(self) -> tf.data.Dataset:
        return self._pipeline(self.sample.split, self._settings, **self.sample.feed_options)

    def _pipeline(self, split: AnySplit, settings: PipelineSettings, **options: Any) -> tf.data.Dataset:
        return build_dataset(
            split, preprocessing=self._preprocessing, settings=settings, seed=self._seed, is_training=True, **options
        )

    def _rate(self, key: object, build: Callable[[], tf.data.Dataset], secs: float, *, once: int = 0) -> float:
        """Measures a dataset, which is built when it is first asked for: that takes a second or so.

        With `once`, the number of readers, it goes through the sample once.
        """

        def measure() -> float:
            if key not in self._built:
                with tf.device("/CPU:0"):
                    self._built[key] = build()
            if once:
                return _rate_once(self._built[key], secs, self._watch.stopped, readers=once)
            return _rate(self._built[key], secs, self._watch.stopped)

        return self._watch.run(lambda: self.sample.explained(measure))


def _held(elements: tf.data.Dataset, num_bytes: Callable[..., int]) -> tf.data.Dataset:
    """Keeps as many elements as may be in memory, and returns them endlessly, without a copy."""
    size = count = 0
    for element in elements:
        size += num_bytes(*element) if isinstance(element, tuple) else num_bytes(element)
        count += 1
        if size > _MOST_HELD_BYTES:
            break
    held = elements.take(count).cache()
    for _ in held:
        pass
    return held.repeat()


def take_turns(
    measurements: Mapping[str, Callable[[float], float]],
    *,
    rounds: int,
    secs: float,
    between: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Rate], dict[str, str]]:
    """Makes several measurements, round by round.

    Args:
        measurements: Functions that run for about the seconds they are given and return images a second.
        rounds: How often each is made.
        secs: For how long each time.
        between: Called between two measurements.

    Returns:
        The rates, and of those that raised OSError the reason.
    """
    found: dict[str, list[float]] = {name: [] for name in measurements}
    reasons: dict[str, str] = {}
    for _ in range(rounds):
        for name, measure in measurements.items():
            if name in reasons:
                continue
            try:
                found[name].append(measure(secs))
            except OSError as error:
                reasons[name] = str(error)
            between()
    return {name: Rate.of(values) for name, values in found.items() if name not in reasons}, reasons


def step_rate(step: Callable[[], Mapping[str, tf.Tensor]], batch_size: int, secs: float) -> float:
    """Measures steps that find their input ready.

    Args:
        step: Makes one step and returns what came of it.
        batch_size: Images a step.
        secs: For how long; one step at the least, after three or a share of the time that do not count.

    Returns:
        Images a second.
    """
    # The first step may compile, and the next ones find caches and memory that are still being set up.
    began = time.perf_counter()
    for number in range(1, _MOST_WARM_UP_STEPS + 1):
        _wait_for(step())
        if number >= _WARM_UP_STEPS and time.perf_counter() - began >= _WARM_UP * secs:
            break
    start = time.perf_counter()
    steps = 0
    while True:
        # A GPU works behind the back of Python; waiting for it at each step would slow it down.
        values = step()
        steps += 1
        if time.perf_counter() - start >= secs or steps % _STEPS_AHEAD == 0:
            _wait_for(values)
            if time.perf_counter() - start >= secs:
                return steps * batch_size / (time.perf_counter() - start)


def _wait_for(values: Mapping[str, tf.Tensor]) -> None:
    for value in values.values():
        value.numpy()


def _rate(elements: tf.data.Dataset, secs: float, stopped: threading.Event) -> float:
    """Takes elements of an endless dataset for some seconds and returns images a second.

    The clock starts once the first element has come and a share of the time has passed.
    """
    began = start = now = time.perf_counter()
    counting = False
    images = 0
    with tf.device("/CPU:0"):
        for element in elements:
            now = time.perf_counter()
            if counting:
                images += _size(element)
                if now - start >= secs:
                    break
            elif now - began >= _WARM_UP * secs:
                counting, start = True, now
            if stopped.is_set():
                break
    return images / max(now - start, 1e-9)


def _rate_once(elements: tf.data.Dataset, secs: float, stopped: threading.Event, *, readers: int) -> float:
    """Takes elements until they end, for some seconds at most, and returns images a second.

    The clock starts behind the first element: before, threads start and nothing comes.

    Raises:
        OSError: If too little is left behind the first element for a rate.
    """
    start = now = 0.0
    images = count = 0
    with tf.device("/CPU:0"):
        for number, element in enumerate(elements):
            now = time.perf_counter()
            if number == 0:
                start = now
                continue
            images += _size(element)
            count = number
            if now - start >= secs or stopped.is_set():
                break
    slow_enough = now - start >= min(_LEAST_SECS, secs)
    # What took all the time that there was is no matter of the sample.
    if not slow_enough or (now - start < secs and (count < _LEAST_ELEMENTS or images < _LEAST_A_READER * readers)):
        raise OSError("the sample has too few images to tell")
    return images / (now - start)


def _size(element: Any) -> int:
    return int(tf.nest.flatten(element)[0].shape[0])


def _options(num_threads: int) -> tf.data.Options:
    """Returns options that obey thread counts exactly, as the pipeline's own do."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = num_threads
    options.threading.max_intra_op_parallelism = 1
    return options
