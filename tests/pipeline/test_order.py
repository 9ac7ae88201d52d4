from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp.pipeline.order import examples_at, uniform_draws


def look_up(positions: list[int] | range, *, n: int = 10, seed: int = 3, shuffle: bool = True) -> tuple:
    indices, seeds = examples_at(np.array(positions), num_examples=n, seed=seed, shuffle=shuffle)
    return indices.numpy().tolist(), seeds.numpy()


def test_each_epoch_is_another_permutation() -> None:
    first, second = look_up(range(10))[0], look_up(range(10, 20))[0]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert look_up(range(10), seed=4)[0] != first


def test_the_order_is_that_of_index_shuffle() -> None:
    def public(position: int) -> int:
        index = tf.constant(position % 10, tf.int64)
        seed = tf.constant([3, position // 10], tf.int64)
        return int(tf.random.experimental.index_shuffle(index, seed=seed, max_index=tf.constant(9, tf.int64)))

    positions = [0, 7, 9, 10, 19, 1234]
    assert look_up(positions)[0] == [public(position) for position in positions]


def test_without_shuffling_the_order_is_the_files() -> None:
    assert look_up([0, 1, 9, 10, 25], shuffle=False)[0] == [0, 1, 9, 0, 5]


def test_a_single_example_and_far_positions() -> None:
    assert look_up([0, 1, 2], n=1)[0] == [0, 0, 0]
    (far,), _ = look_up([10**15], n=1_000_003)
    assert 0 <= far < 1_000_003


def test_seeds_differ_by_run_epoch_and_example() -> None:
    seeds = [tuple(row) for run in (0, 1, 2) for row in look_up(range(50), seed=run)[1]]
    assert len(set(seeds)) == 150
    # The same example in the same epoch has the same seed, wherever the look-up began.
    indices, whole = look_up(range(10, 20))
    assert (look_up([13])[1][0] == whole[3]).all()
    assert whole[3][1] == indices[3]


def test_extreme_run_seeds_wrap_around() -> None:
    indices, seeds = look_up(range(4), seed=2**63 - 1)
    assert len(set(indices)) == 4
    assert seeds.dtype == np.int64


def test_draws_are_uniform_and_independent() -> None:
    _, seeds = examples_at(np.arange(20_000), num_examples=500, seed=3, shuffle=True)
    draws = uniform_draws(seeds, 8).numpy()
    assert draws.dtype == np.float32
    assert draws.min() >= 0
    assert draws.max() < 1
    # 20,000 draws: the mean of a column is off by 0.002, a correlation by 0.007 (standard deviations).
    assert np.abs(draws.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(draws.std(axis=0) - 12**-0.5).max() < 0.01
    assert np.abs(np.corrcoef(draws.T) - np.eye(8)).max() < 0.035
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.035
    assert np.abs(np.histogram(draws[:, 0], 10, (0, 1))[0] - 2000).max() < 200


def test_draws_are_those_of_the_python_twin() -> None:
    def scramble(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    def draw(first: int, second: int, number: int) -> float:
        state = scramble((scramble(first % 2**64) + second) % 2**64)
        return (scramble((state + (number + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 40) / 2**24

    found = uniform_draws(tf.constant([[-5, 6], [7, 0]], tf.int64), 3).numpy()
    assert found.tolist() == [[draw(-5, 6, n) for n in range(3)], [draw(7, 0, n) for n in range(3)]]


def test_the_same_inside_a_dataset() -> None:
    dataset = tf.data.Dataset.range(20).batch(20)
    dataset = dataset.map(lambda p: examples_at(p, num_examples=10, seed=3, shuffle=True))
    ((indices, seeds),) = list(dataset)
    expected = look_up(range(20))
    assert indices.numpy().tolist() == expected[0]
    assert (seeds.numpy() == expected[1]).all()
