"""Which example stands at which position of the stream, and the seed of its augmentation.

Both are functions of (run seed, epoch, example) alone, so neither thread counts nor a restart can change them.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ["example_seeds", "examples_at", "shuffled", "uniform_draws"]

# 2**64 over the golden ratio, as a signed 64-bit number: its multiples are far apart modulo 2**64, so that small run
# seeds and epochs, or draws, do not meet.
_EPOCH_STRIDE = _DRAW_STRIDE = 0x9E3779B97F4A7C15 - 2**64

# The raw op takes a third seed word; this is what `tf.random.experimental.index_shuffle` sets it to. That function
# itself cannot take a row of seeds for each index (it pads the rows instead of the columns).
_SHUFFLE_FIRST_WORD = 498247692
_SHUFFLE_ROUNDS = 4


def examples_at(positions: tf.Tensor, *, num_examples: int, seed: int, shuffle: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Looks up the examples at some positions of the endless stream.

    Epoch e is the positions `e * num_examples` up to `(e + 1) * num_examples - 1`. It visits each example once, in
    the order `tf.random.experimental.index_shuffle(i, seed=(seed, e), max_index=num_examples - 1)` or, without
    shuffling, in file order.

    Args:
        positions: int64 [k], each at least 0.
        num_examples: Examples in the split, at least 1.
        seed: The seed of the run.
        shuffle: Whether each epoch has an order of its own.

    Returns:
        The example numbers, int64 [k], and a stateless seed for each, int64 [k, 2], keyed by run seed, epoch and
        example.
    """
    positions = tf.convert_to_tensor(positions, tf.int64)
    epoch = positions // num_examples
    index = positions % num_examples
    if shuffle:
        index = shuffled(index, epoch, count=num_examples, seed=seed)
    return index, example_seeds(epoch, index, seed=seed)


def shuffled(index: tf.Tensor, epoch: tf.Tensor, *, count: int, seed: int) -> tf.Tensor:
    """Looks up what stands at some places of an epoch's order: a random one of 0..count - 1, exact and without memory.

    Args:
        index: int64 [k], the places.
        epoch: int64 [k] or [].
        count: How many things are put into an order, at least 1.
        seed: The seed of the run.

    Returns:
        int64 [k].
    """
    epochs = tf.zeros_like(index) + epoch
    words = tf.stack(
        [tf.fill(tf.shape(index), tf.constant(_SHUFFLE_FIRST_WORD, tf.int64)), epochs * 0 + seed, epochs], 1
    )
    return tf.raw_ops.RandomIndexShuffle(
        index=index, seed=words, max_index=tf.constant(count - 1, tf.int64), rounds=_SHUFFLE_ROUNDS
    )


def example_seeds(epoch: tf.Tensor, index: tf.Tensor, *, seed: int) -> tf.Tensor:
    """Returns a stateless seed for each example, int64 [k, 2], from epochs and example numbers, int64 [k] each."""
    # The generators scramble what they are given, so the words need only differ; sums wrap around.
    run = _wrap(seed * _EPOCH_STRIDE)
    return tf.stack([epoch + tf.constant(run, tf.int64), index], axis=1)


def uniform_draws(seeds: tf.Tensor, count: int) -> tf.Tensor:
    """Draws numbers for some examples, each from its own seed.

    They come from a counter-based generator: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014) over seed and
    draw number. TensorFlow's stateless generators take one seed a call, and this is needed for many at once.

    Args:
        seeds: int64 [k, 2], as `examples_at` gives them.
        count: Numbers to draw for each.

    Returns:
        float32 [k, count], uniform in [0, 1), multiples of 2**-24.
    """
    words = tf.bitcast(seeds, tf.uint64)
    state = _scramble(_scramble(words[:, 0]) + words[:, 1])
    strides = tf.constant([(draw + 1) * _DRAW_STRIDE % 2**64 for draw in range(count)], tf.uint64)
    bits = tf.bitwise.right_shift(_scramble(state[:, tf.newaxis] + strides), tf.constant(40, tf.uint64))
    return tf.cast(bits, tf.float32) * 2.0**-24


def _scramble(x: tf.Tensor) -> tf.Tensor:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint64)))
        x = x * tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(31, tf.uint64)))


def _wrap(number: int) -> int:
    """Takes a whole number modulo 2**64, as a signed 64-bit one."""
    return (number + 2**63) % 2**64 - 2**63
