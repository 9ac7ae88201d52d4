"""The four-queue pipeline itself: from a split's file names to batches.

names -> [filename queue] -> readers: read bytes -> [read queue] -> threads: decode + preprocess
      -> [prefetch queue] -> batch -> [batch queue]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Split
from slimexp.errors import UserError
from slimexp.pipeline.asking import ask
from slimexp.pipeline.engines import Engine, choose_engine
from slimexp.pipeline.memory import check_memory
from slimexp.pipeline.order import examples_at, uniform_draws
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.records import record_stream
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.skipping import SkippedImages

__all__ = ["build_dataset"]

# Names are looked up for so many positions at a time at the most: calling a graph costs more than what it does for one.
_NAMES_AT_A_TIME = 64

# Looking for Python's `if` on tensors, to rewrite it, takes seconds; here there is none.
_as_it_is = tf.autograph.experimental.do_not_convert

ReadFile = Callable[[tf.Tensor], tf.Tensor]
Locate = Callable[[tf.Tensor], tf.Tensor]


def build_dataset(
    split: AnySplit,
    *,
    preprocessing: PreprocessingLike,
    settings: PipelineSettings,
    seed: int,
    is_training: bool,
    start_position: int | Callable[[], int] = 0,
    read_file: ReadFile = tf.io.read_file,
    locate: Locate | None = None,
    engine: Engine | None = None,
    skipped: SkippedImages | None = None,
) -> tf.data.Dataset:
    """Reads, decodes and preprocesses a split's images in parallel and batches them.

    The batches are the same for any number of readers and threads and any queue capacities.

    Training is an endless stream of full batches, which run on across the ends of epochs. Evaluation goes once
    through the file order, and its last batch is filled up with copies of its last example, which are not `valid`.

    Args:
        split: The examples.
        preprocessing: What to cut out of a picture and what to make of it.
        settings: Thread counts, batch size, queue capacities, decoder.
        seed: The seed of the run; order and augmentation follow from it.
        is_training: Whether the stream is for training.
        start_position: The number of examples to leave out at the start. A stream that begins at k * batch size
            continues one that was left after k batches. A function is asked for it by each iterator as it starts, and
            must give one that is k batches from the first that it gave.
        read_file: From a file's name, string [], to its bytes, string [].
        locate: From files' names, string [n], to what `read_file` gets in their place; by default the names.
        engine: What carries out the preprocessing; by default what `choose_engine` returns.
        skipped: The examples to leave out; what is added to them counts in iterators made afterwards. The place of
            one is taken by a copy of another of the same batch that is not `valid`, so that order and batches stay as
            they are. A batch of nothing else has no valid example.

    Returns:
        Dicts with `image`, float32 [batch_size, size, size, 3]; `label`, int32 [batch_size] or int8 [batch_size,
        num_classes]; `index`, int64 [batch_size], the examples' numbers in the split; `valid`, bool [batch_size].

    Raises:
        UserError: If the settings do not fit the split, the preprocessing or the memory, or `preprocessing` has not the
            two methods or they return something else than they should.
        ValueError: If `start_position` is negative.
    """
    if isinstance(start_position, int) and start_position < 0:
        raise ValueError(f"start_position={start_position}: a stream begins at position 0 or later.")
    settings.check(len(split), is_training=is_training, is_sequential=split.is_sequential)
    settings = settings.fitted(is_sequential=split.is_sequential, is_training=is_training)
    # The pipeline runs on the CPU also where a GPU is the default device.
    with tf.device("/CPU:0"):
        engine = engine or choose_engine(preprocessing, settings)
        # One at the least: `unbatch` (TensorFlow 2.21) crashes on rows without elements.
        num_draws = max(getattr(preprocessing, "num_draws", 0), 1)
        if isinstance(split, RecordSplit):
            if read_file is not tf.io.read_file or locate is not None:
                raise UserError(
                    "pipeline.cache: only image files have smaller copies made, and this dataset's pictures lie in "
                    "TFRecord files. Set pipeline.cache=none, or write records of smaller pictures."
                )
            files = record_stream(
                split,
                settings,
                seed=seed,
                is_training=is_training,
                start_position=start_position,
                num_draws=num_draws,
                skipped=skipped,
            )
            label = _labeller(None, settings.batch_size)
        else:
            names = _NameLists(split, settings, seed, is_training, start_position, num_draws, locate, skipped)
            files = _files(names, read_file, settings)
            label = _labeller(split.labels, settings.batch_size)
        batches = engine.batches(files, drop_remainder=is_training)
        image = batches.element_spec[0]
        check_memory(split, settings, image_bytes=image.shape[1:].num_elements() * image.dtype.size)
        batches = batches.map(label, synchronous=True)
        batches = batches.prefetch(settings.queues()["batch"].capacity, name="batch_queue")
        # Reading that branches (smaller copies) goes by the pool, where it must not wait for the engine's calls.
        num_readers = 0 if isinstance(split, RecordSplit) or read_file is tf.io.read_file else settings.readers
        return batches.with_options(_options(engine.num_calls + num_readers))


class _NameLists:
    """The filename queue: what to read, in order, divided among the readers like cards among players."""

    def __init__(
        self,
        split: Split,
        settings: PipelineSettings,
        seed: int,
        is_training: bool,
        start_position: int | Callable[[], int],
        num_draws: int,
        locate: Locate | None,
        skipped: SkippedImages | None,
    ) -> None:
        self._locate = locate
        self._num_examples = len(split)
        # An eager tensor, which functions capture. As a constant it would be written into each graph.
        self._paths = tf.constant(split.paths, tf.string)
        self._seed = seed
        self._shuffle = is_training and settings.shuffle
        self._start = start_position
        self._first = start_position() if callable(start_position) else start_position
        self._batch_size = settings.batch_size
        self._skipped = skipped
        self._stop = np.iinfo(np.int64).max if is_training else len(split)
        self._num_draws = num_draws
        self.num_readers = settings.readers
        share = max(settings.queues()["filename"].capacity // settings.readers, 1)
        self._at_a_time = min(share, _NAMES_AT_A_TIME)
        self._waiting = max(share // self._at_a_time, 1)

    @property
    def element_spec(self) -> tuple[tf.TensorSpec, ...]:
        """Of path, example number and draws."""
        scalars = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
        return *scalars, tf.TensorSpec([self._num_draws], tf.float32)

    @_as_it_is
    def of_reader(self, reader: tf.Tensor) -> tf.data.Dataset:
        """Lists path (string []), example number (int64 []) and draws (float32 [num_draws]) for a reader.

        A copy of example n that takes a skipped one's place has the number -1 - n.
        """
        start = self._start_of(reader)
        positions = tf.data.Dataset.range(start, self._stop, self.num_readers).batch(self._at_a_time)
        names = positions.map(self._look_up, synchronous=True)
        return names.prefetch(self._waiting, name="filename_queue").unbatch()

    def _start_of(self, reader: tf.Tensor) -> tf.Tensor:
        start = self._start
        # Not kept in a variable, as which it would make the readers take turns in deterministic mode. Likewise below.
        return ask(lambda reader: start() + reader, reader, tf.int64, []) if callable(start) else start + reader

    @_as_it_is
    def _look_up(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        index, seeds = self._examples_at(positions)
        number = index
        if self._skipped is not None:
            is_skipped = self._is_skipped(index)
            index, seeds = tf.cond(
                tf.reduce_any(is_skipped),
                lambda: self._replaced(positions, index, seeds, is_skipped),
                lambda: (index, seeds),
            )
            number = tf.where(is_skipped, -1 - index, index)
        paths = tf.gather(self._paths, index)
        if self._locate is not None:
            paths = self._locate(paths)
        return paths, number, uniform_draws(seeds, self._num_draws)

    def _examples_at(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return examples_at(positions, num_examples=self._num_examples, seed=self._seed, shuffle=self._shuffle)

    def _is_skipped(self, index: tf.Tensor) -> tf.Tensor:
        assert self._skipped is not None
        return ask(self._skipped.are_skipped, index, tf.bool, index.shape)

    def _replaced(
        self, positions: tf.Tensor, index: tf.Tensor, seeds: tf.Tensor, is_skipped: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts the first good example of its batch in the place of each skipped one."""
        assert self._skipped is not None
        starts = positions - (positions - self._first) % self._batch_size
        batches = starts[:, tf.newaxis] + tf.range(self._batch_size, dtype=tf.int64)  # [k, batch_size]
        others, other_seeds = self._examples_at(tf.reshape(tf.minimum(batches, self._stop - 1), [-1]))
        is_good = tf.reshape(tf.logical_not(self._is_skipped(others)), tf.shape(batches))
        first_good = tf.argmax(tf.cast(is_good, tf.int32), axis=1, output_type=tf.int32)
        chosen = tf.range(tf.shape(positions)[0]) * self._batch_size + first_good
        # All of a batch may be skipped; it needs some picture all the same.
        anywhere = ask(self._skipped.first_good, index[0], tf.int64, [])
        replacement = tf.where(tf.reduce_any(is_good, axis=1), tf.gather(others, chosen), anywhere)
        return (
            tf.where(is_skipped, replacement, index),
            tf.where(is_skipped[:, tf.newaxis], tf.gather(other_seeds, chosen), seeds),
        )


def _files(names: _NameLists, read_file: ReadFile, settings: PipelineSettings) -> tf.data.Dataset:
    """Reads files, `readers` at a time, and puts their bytes into the read queue in the order of the names."""

    @_as_it_is
    def read(path: tf.Tensor, index: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return read_file(path), index, draws

    @_as_it_is
    def read_in_turn(reader: tf.Tensor) -> tf.Tensor:
        return tf.data.experimental.to_variant(_map_inline(names.of_reader(reader), read))

    # A thread for each reader, which does all its work itself and keeps its share of the read queue. Of a parallel map
    # and a queue behind it each file would go through four threads, which costs a few per cent of decoding it.
    # `Dataset.interleave` is this op with a fixed size of the queue.
    spec = (tf.TensorSpec([], tf.string), *names.element_spec[1:])
    graph = tf.function(read_in_turn, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int64))
    variant = tf.raw_ops.ParallelInterleaveDatasetV4(
        input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.range(names.num_readers)),
        other_arguments=graph.captured_inputs,
        cycle_length=names.num_readers,
        block_length=1,
        buffer_output_elements=-(-settings.queues()["read"].capacity // names.num_readers),
        prefetch_input_elements=0,
        num_parallel_calls=names.num_readers,
        f=graph,
        deterministic="true",
        output_types=[part.dtype for part in spec],
        output_shapes=[part.shape for part in spec],
    )
    return tf.data.experimental.from_variant(variant, spec)


def _branches(graph: Any) -> bool:
    """Tells whether a graph has conditionals or loops, which the executor of `_map_inline` does not take."""
    return any(op.type.removeprefix("Stateless") in ("If", "While", "Case") for op in graph.graph.get_operations())


def _map_inline(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Maps as `Dataset.map` does, but in the thread that asks for the next element, not in one of the pool's.

    Threads of the pool that have no work most of the time go on looking for some, which costs 5 % of the pipeline.
    """
    graph = tf.function(function, autograph=False).get_concrete_function(*dataset.element_spec)
    if _branches(graph):
        return dataset.map(function, synchronous=True)
    spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, graph.structured_outputs)
    variant = tf.raw_ops.MapDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        other_arguments=graph.captured_inputs,
        f=graph,
        output_types=[part.dtype for part in tf.nest.flatten(spec)],
        output_shapes=[part.shape for part in tf.nest.flatten(spec)],
        use_inter_op_parallelism=False,
        force_synchronous=True,
        preserve_cardinality=True,
    )
    return tf.data.experimental.from_variant(variant, spec)


def _labeller(table: np.ndarray | None, batch_size: int) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns what makes dicts of batches; labels are looked up in a table, or come with the example numbers."""
    labels_of = None if table is None else tf.constant(table)

    @_as_it_is
    def label(images: tf.Tensor, index: Any) -> dict[str, tf.Tensor]:
        index, labels = index if labels_of is None else (index, None)
        valid = index >= 0
        index = tf.where(valid, index, -1 - index)  # See `_NameLists.of_reader`.
        if labels_of is not None:
            labels = tf.gather(labels_of, index)
        if index.shape[0] is None:  # Evaluation: the last batch may be short.
            count = tf.shape(index)[0]
            rows = tf.minimum(tf.range(batch_size), count - 1)
            image_shape = [batch_size, *images.shape[1:]]
            images = tf.cond(count < batch_size, lambda: tf.gather(images, rows), lambda: images)
            images = tf.ensure_shape(images, image_shape)
            index, labels = tf.gather(index, rows), tf.gather(labels, rows)
            valid = tf.logical_and(tf.gather(valid, rows), tf.range(batch_size) < count)
        return {"image": images, "label": labels, "index": index, "valid": valid}

    return label


def _options(num_threads: int) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # The model of the autotuner is what the monitor reads. All counts are given, so there is nothing for it to tune; a
    # test holds the pipeline to them. Rewriting the graph would fuse stages or move them.
    options.autotune.enabled = True
    options.experimental_optimization.apply_default_optimizations = False
    # A thread for each call of the engine that may be under way, and none inside an op: m threads keep m cores busy at
    # the most. One thread more would spin now and then in search of work, at a measurable cost.
    options.threading.private_threadpool_size = num_threads
    options.threading.max_intra_op_parallelism = 1
    return options
