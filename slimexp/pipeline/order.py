"""Which example stands at which position of the stream, and the seed of its augmentation.

Both are functions of (run seed, epoch, example) alone, so neither thread counts nor a restart can change them.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ["examples_at", "fold_in"]

# 2**64 over the golden ratio, as a signed 64-bit number, and a second odd constant (the first multiplier of
# SplitMix64; Steele, Lea and Flood, 2014): multiples of either are far apart modulo 2**64, so that small run seeds,
# epochs and draw numbers do not meet.
_EPOCH_STRIDE = 0x9E3779B97F4A7C15 - 2**64
_DRAW_STRIDE = 0xBF58476D1CE4E5B9 - 2**64

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
        words = tf.stack(
            [tf.fill(tf.shape(epoch), tf.constant(_SHUFFLE_FIRST_WORD, tf.int64)), tf.zeros_like(epoch) + seed, epoch],
            axis=1,
        )
        index = tf.raw_ops.RandomIndexShuffle(
            index=index,
            seed=words,
            max_index=tf.constant(num_examples - 1, tf.int64),
            rounds=_SHUFFLE_ROUNDS,
        )
    # The generators scramble what they are given, so the words need only differ; sums wrap around.
    run = _wrap(seed * _EPOCH_STRIDE)
    return index, tf.stack([epoch + tf.constant(run, tf.int64), index], axis=1)


def fold_in(seed: tf.Tensor, draw: int) -> tf.Tensor:
    """Derives the seed of one of an example's random draws.

    Args:
        seed: int64 [2], the example's seed.
        draw: A number that no other draw for the example uses.

    Returns:
        int64 [2], for `tf.random.stateless_uniform` and its kind.
    """
    return seed + tf.constant([_wrap(draw * _DRAW_STRIDE), 0], tf.int64)


def _wrap(number: int) -> int:
    """Takes a whole number modulo 2**64, as a signed 64-bit one."""
    return (number + 2**63) % 2**64 - 2**63
