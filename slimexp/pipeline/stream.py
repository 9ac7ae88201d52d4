"""The four-queue pipeline itself: from a split's file names to batches.

positions -> [filename queue] -> readers: read bytes + decode -> [read queue] -> threads: preprocess
          -> [prefetch queue] -> batch -> [batch queue]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline.decode import decode_window
from slimexp.pipeline.order import examples_at
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.settings import PipelineSettings, QueueSettings

__all__ = ["build_dataset"]

# Names are looked up for this many positions at a time: calling a graph costs more than what it does for one.
_NAMES_AT_A_TIME = 64

# Besides the readers and threads, two stages run a graph, one call at a time: looking up names and labelling a batch.
_SEQUENTIAL_STAGES = 2


def build_dataset(
    split: Split,
    *,
    preprocessing: PreprocessingLike,
    settings: PipelineSettings,
    seed: int,
    is_training: bool,
    start_position: int = 0,
) -> tf.data.Dataset:
    """Reads, decodes and preprocesses a split's images in parallel and batches them.

    The batches are the same for any number of readers and threads and any queue capacities.

    Training is an endless stream of full batches, which run on across the ends of epochs. Evaluation goes once
    through the file order, and its last batch is filled up with copies of its last example, which are not `valid`.

    Args:
        split: The examples.
        preprocessing: What to cut out of a picture and what to make of it.
        settings: Thread counts, batch size, queue capacities.
        seed: The seed of the run; order and augmentation follow from it.
        is_training: Whether the stream is for training.
        start_position: The number of examples to leave out at the start. A stream that begins at k * batch size
            continues one that was left after k batches.

    Returns:
        Dicts with `image`, float32 [batch_size, size, size, 3]; `label`, int32 [batch_size] or int8 [batch_size,
        num_classes]; `index`, int64 [batch_size], the examples' numbers in the split; `valid`, bool [batch_size].

    Raises:
        UserError: If the settings do not fit the split, or `preprocessing` has not the two methods or they return
            something else than they should.
        ValueError: If `start_position` is negative.
    """
    if start_position < 0:
        raise ValueError(f"start_position={start_position}: a stream begins at position 0 or later.")
    settings.check(len(split), is_training=is_training)
    _check_methods(preprocessing)
    queues = settings.queues()
    # The pipeline runs on the CPU also where a GPU is the default device.
    with tf.device("/CPU:0"):
        names = _names(split, settings, seed, is_training, start_position)
        names = _queue(names, queues["filename"])
        windows = names.map(_reader(preprocessing), num_parallel_calls=settings.readers, deterministic=True)
        windows = _queue(windows, queues["read"])
        images = windows.map(_finisher(preprocessing), num_parallel_calls=settings.threads, deterministic=True)
        _check_image(images.element_spec[0], preprocessing)
        images = _queue(images, queues["prefetch"])
        batches = images.batch(settings.batch_size, drop_remainder=is_training)
        batches = batches.map(_labeller(split.labels, settings.batch_size))
        batches = _queue(batches, queues["batch"])
        return batches.with_options(_options(settings))


def _names(
    split: Split, settings: PipelineSettings, seed: int, is_training: bool, start_position: int
) -> tf.data.Dataset:
    """Lists what to read, in order: path (string []), example number (int64 []) and seed (int64 [2])."""
    num_examples = len(split)
    # An eager tensor, which functions capture. As a constant it would be written into each graph.
    paths = tf.constant(split.paths, tf.string)

    def look_up(positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        index, seeds = examples_at(
            positions, num_examples=num_examples, seed=seed, shuffle=is_training and settings.shuffle
        )
        return tf.gather(paths, index), index, seeds

    stop = np.iinfo(np.int64).max if is_training else num_examples
    return tf.data.Dataset.range(start_position, stop).batch(_NAMES_AT_A_TIME).map(look_up).unbatch()


def _reader(preprocessing: PreprocessingLike) -> Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    def read(path: tf.Tensor, index: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        contents = tf.io.read_file(path)
        window = decode_window(contents, lambda height, width: preprocessing.window(height, width, seed))
        return window, index, seed

    return read


def _finisher(preprocessing: PreprocessingLike) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    size_px = getattr(preprocessing, "size_px", None)

    def finish(window: tf.Tensor, index: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.convert_to_tensor(preprocessing.finish(window, seed))
        # A function wrapped from Python leaves the shape open; then it is tested as the image is made.
        if size_px is not None and not image.shape.is_fully_defined():
            image = tf.ensure_shape(image, [size_px, size_px, 3])
        return image, index

    return finish


def _labeller(labels: np.ndarray, batch_size: int) -> Callable[..., dict[str, tf.Tensor]]:
    labels = tf.constant(labels)

    def label(images: tf.Tensor, index: tf.Tensor) -> dict[str, tf.Tensor]:
        valid = tf.fill(tf.shape(index), True)
        if index.shape[0] is None:  # Evaluation: the last batch may be short.
            count = tf.shape(index)[0]
            rows = tf.minimum(tf.range(batch_size), count - 1)
            image_shape = [batch_size, *images.shape[1:]]
            images = tf.cond(count < batch_size, lambda: tf.gather(images, rows), lambda: images)
            images = tf.ensure_shape(images, image_shape)
            index = tf.gather(index, rows)
            valid = tf.range(batch_size) < count
        return {"image": images, "label": tf.gather(labels, index), "index": index, "valid": valid}

    return label


def _queue(dataset: tf.data.Dataset, queue: QueueSettings) -> tf.data.Dataset:
    """Puts a bounded queue, with a thread that fills it, behind a stage."""
    return dataset.prefetch(queue.capacity, name=f"{queue.name}_queue")


def _options(settings: PipelineSettings) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # Autotuning changes the counts that were asked for, and graph rewriting may fuse stages or move them.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    # A thread for each call that may be under way, so that none waits for another stage's, and no further threads
    # inside an op: n readers and m threads keep n + m cores busy at the most.
    options.threading.private_threadpool_size = settings.readers + settings.threads + _SEQUENTIAL_STAGES
    options.threading.max_intra_op_parallelism = 1
    return options


def _check_methods(preprocessing: PreprocessingLike) -> None:
    for method in ("window", "finish"):
        if not callable(getattr(preprocessing, method, None)):
            raise UserError(
                f"preprocessing._target_ gave a {type(preprocessing).__name__}, which has no method `{method}`. It "
                "needs window(height, width, seed) and finish(image, seed); slimexp.pipeline.preprocessing.base "
                "describes them."
            )


def _check_image(spec: tf.TensorSpec, preprocessing: PreprocessingLike) -> None:
    """Refuses a preprocessing whose images cannot be batched for a network."""
    shape = spec.shape
    is_image = shape.rank == 3 and shape.is_fully_defined()
    if spec.dtype == tf.float32 and is_image:
        return
    raise UserError(
        f"{type(preprocessing).__name__}.finish returns {spec.dtype.name} {shape}; it must return float32 images of a "
        "fixed shape [height, width, channels]. Convert with tf.cast, and give a shape that TensorFlow cannot tell "
        "with tf.ensure_shape."
    )
