"""Reads sources that can only be read in sequence: records of TFRecord files, interleaved and shuffled.

names of shards -> readers: records of some files at a time -> shuffle buffer -> parse, check labels -> [read queue]

Every epoch visits each record once, in an order that follows from run seed and epoch alone: the shards in an order of
their own, a fixed number of them open at a time, a block of records from each in turn, and these through a buffer that
keeps `pipeline.queues.read.min_after_dequeue` encoded records back. So neither thread counts nor a restart change it.
A stream that begins within an epoch reads over what comes before, without parsing or decoding it; whole epochs before
cost nothing. At the end of an epoch the buffer runs empty, and fills again for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.pipeline.asking import ask
from slimexp.pipeline.order import example_seeds, shuffled, uniform_draws
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.skipping import SkippedImages

# Looking for Python's `if` on tensors, to rewrite it, takes seconds; here there is none.
_as_it_is = tf.autograph.experimental.do_not_convert

__all__ = ["FILES_AT_A_TIME", "record_numbers", "record_stream"]

# Part of the order, so not to be set: how many shards are open at a time, and how many records come from one in a row.
FILES_AT_A_TIME = 16
_BLOCK = 1
# Its own word beside the run's seed, so that the order within the buffer has nothing to do with that of the shards.
_BUFFER_WORD = 0x5EED


def record_stream(
    split: RecordSplit,
    settings: PipelineSettings,
    *,
    seed: int,
    is_training: bool,
    start_position: int | Callable[[], int] = 0,
    num_draws: int,
    skipped: SkippedImages | None = None,
) -> tf.data.Dataset:
    """Reads a split's records in the order of the stream, into the read queue.

    Args:
        split: The examples.
        settings: Readers, batch size, read queue; fitted to the split, see `PipelineSettings.fitted`.
        seed: The seed of the run.
        is_training: Whether the stream is endless and shuffled, or goes once through the shards.
        start_position: The number of examples to leave out, or a function that gives it to each iterator.
        num_draws: Random numbers for an example.
        skipped: The examples to leave out; see `build_dataset`.

    Returns:
        Elements of the encoded picture, string []; example number, int64 [], and label; draws, float32 [num_draws].
        A copy of example n that takes a skipped one's place has the number -1 - n.
    """
    records = _records(
        split, settings, seed=seed, is_training=is_training, start_position=start_position, skipped=skipped
    )
    # A batch's records at a time: calling a graph costs more than what it does for one. No other number, as a record
    # that cannot be parsed must fail its own batch and none before.
    records = records.batch(settings.batch_size, drop_remainder=is_training)

    placeholder = b"" if skipped is None else _placeholder(split.image_key, split.label)

    @_as_it_is
    def finish(serialized: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor) -> Any:
        number = index
        if skipped is not None:
            is_skipped = ask(skipped.are_skipped, index, tf.bool, index.shape)
            serialized, index, epoch = tf.cond(
                tf.reduce_any(is_skipped),
                lambda: _replaced(serialized, index, epoch, is_skipped, placeholder),
                lambda: (serialized, index, epoch),
            )
            number = tf.where(is_skipped, -1 - index, index)
        contents, labels = _parse(serialized, split.image_key, split.label)
        draws = uniform_draws(example_seeds(epoch, index, seed=seed), num_draws)
        return contents, (number, labels), draws

    examples = records.map(finish, synchronous=True).unbatch()
    room = settings.queues()["read"].capacity - (settings.read_min_after_dequeue or 0)
    return examples.prefetch(room, name="read_queue")


def record_numbers(
    split: RecordSplit,
    settings: PipelineSettings,
    *,
    seed: int,
    is_training: bool,
    start_position: int,
    skipped: SkippedImages | None = None,
) -> tf.data.Dataset:
    """Lists example number and epoch, int64 [] each, of the positions from `start_position` on; records are read."""
    records = _records(
        split, settings, seed=seed, is_training=is_training, start_position=start_position, skipped=skipped
    )
    return records.map(_as_it_is(lambda serialized, index, epoch: (index, epoch)))


def _records(
    split: RecordSplit,
    settings: PipelineSettings,
    *,
    seed: int,
    is_training: bool,
    start_position: int | Callable[[], int],
    skipped: SkippedImages | None,
) -> tf.data.Dataset:
    """Lists record, string [], example number and epoch, int64 [] each, from a position on.

    The skipped records at the end of a shard, which may be damaged from there on, are not read: they are empty strings.
    """
    shuffle = is_training and settings.shuffle
    paths, firsts = tf.constant(split.shards, tf.string), tf.constant(split.firsts)
    num_shards, num_examples = len(split.shards), len(split)
    at_a_time = min(num_shards, FILES_AT_A_TIME)

    @_as_it_is
    def read_shard(place: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
        shard = shuffled(place[tf.newaxis], epoch, count=num_shards, seed=seed)[0] if shuffle else place
        numbers = tf.data.Dataset.range(firsts[shard], firsts[shard + 1])
        records = tf.data.TFRecordDataset(paths[shard])
        if skipped is not None:
            count = ask(skipped.num_to_read, shard, tf.int64, [])
            records = records.take(count).concatenate(tf.data.Dataset.from_tensors(b"").repeat())
        return tf.data.Dataset.zip((records, numbers))

    @_as_it_is
    def read_epoch(epoch: tf.Tensor, start: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.Dataset.range(num_shards).interleave(
            _as_it_is(lambda place: read_shard(place, epoch)),
            cycle_length=at_a_time,
            block_length=_BLOCK,
            num_parallel_calls=min(settings.readers, at_a_time),
            deterministic=True,
        )
        if shuffle and settings.read_min_after_dequeue:
            records = _shuffle(records, settings.read_min_after_dequeue + 1, seed, epoch)
        records = records.skip(tf.maximum(start - epoch * num_examples, 0))
        return records.map(_as_it_is(lambda serialized, index: (serialized, index, epoch)), synchronous=True)

    starts = tf.data.Dataset.range(1).map(_as_it_is(lambda _: _start(start_position)), synchronous=True)
    last_epoch = np.iinfo(np.int64).max if is_training else 1

    @_as_it_is
    def read_from(start: tf.Tensor) -> tf.data.Dataset:
        epochs = tf.data.Dataset.range(start // num_examples, last_epoch)
        return epochs.flat_map(_as_it_is(lambda epoch: read_epoch(epoch, start)))

    return starts.flat_map(read_from)


def _start(position: int | Callable[[], int]) -> tf.Tensor:
    if not callable(position):
        return tf.constant(position, tf.int64)
    return ask(lambda _: position(), tf.constant(0), tf.int64, [])


def _shuffle(records: tf.data.Dataset, buffer_size: int, seed: int, epoch: tf.Tensor) -> tf.data.Dataset:
    """Shuffles through a buffer, by seeds that are these alone: `Dataset.shuffle` mixes in the global one."""
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        buffer_size=tf.constant(buffer_size, tf.int64),
        seed=tf.constant(seed, tf.int64) ^ _BUFFER_WORD,
        seed2=epoch + 1,  # Two zeros would ask for seeds by chance.
        output_types=[tf.string, tf.int64],
        output_shapes=[[], []],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, records.element_spec)


def _parse(serialized: tf.Tensor, image_key: str, label: LabelFormat) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes pictures and labels out of Examples, string [n]; fails on those that have none or wrong ones."""
    dtype = tf.float32 if label.is_float else tf.int64
    picture = tf.io.FixedLenFeature([], tf.string)
    if label.form == "class":
        kind: Any = tf.io.FixedLenFeature([], dtype)
    elif label.form == "indices":
        kind = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    else:
        kind = tf.io.FixedLenFeature([label.num_classes], dtype)
    features = tf.io.parse_example(serialized, {image_key: picture, label.key: kind})
    labels = _labels(features[label.key], label)
    return features[image_key], labels


def _labels(values: Any, label: LabelFormat) -> tf.Tensor:
    """Checks and converts labels; which is wrong, and how, is for `explain_records` to say."""
    if label.form in ("class", "indices"):
        values = values - label.offset
        flat = values.flat_values if label.form == "indices" else values
        allowed = tf.logical_and(flat >= 0, flat < label.num_classes)
    else:
        allowed = tf.logical_or(tf.abs(values) == 1 if label.form == "signed" else values == 1, values == 0)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(allowed), ["a label is not allowed"])]):
        if label.form == "class":
            return tf.cast(values, tf.int32)
        if label.form == "indices":
            rows = tf.stack([values.value_rowids(), values.flat_values], axis=1)
            shape = tf.stack([values.nrows(), tf.constant(label.num_classes, tf.int64)])
            positive = tf.scatter_nd(rows, tf.ones_like(values.flat_values), shape) > 0
            labels = tf.where(positive, tf.constant(1, tf.int8), tf.constant(-1, tf.int8))
        elif label.form == "binary":
            labels = tf.cast(2 * values - 1, tf.int8)
        else:
            labels = tf.cast(values, tf.int8)
    return tf.ensure_shape(labels, [None, label.num_classes])


def _replaced(
    serialized: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor, is_skipped: tf.Tensor, placeholder: bytes
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Puts the first good record of a batch in the place of each skipped one."""
    first_good = tf.argmin(tf.cast(is_skipped, tf.int32), output_type=tf.int32)
    rows = tf.where(is_skipped, first_good, tf.range(tf.shape(index)[0]))
    # All of a batch may be skipped; it needs some record all the same.
    serialized = tf.where(tf.reduce_all(is_skipped), placeholder, tf.gather(serialized, rows))
    return serialized, tf.gather(index, rows), tf.gather(epoch, rows)


def _placeholder(image_key: str, label: LabelFormat) -> bytes:
    """Makes a record with a picture and a label that is allowed."""
    with tf.init_scope():
        picture = tf.io.encode_jpeg(tf.zeros([64, 64, 3], tf.uint8)).numpy()
    numbers = {"class": [label.offset], "indices": []}.get(label.form, [0] * label.num_classes)
    example = tf.train.Example()
    example.features.feature[image_key].bytes_list.value.append(picture)
    feature = example.features.feature[label.key]
    (feature.float_list if label.is_float else feature.int64_list).value.extend(numbers)
    return example.SerializeToString()
