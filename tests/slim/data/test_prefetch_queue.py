from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim.data import records

v1 = tf.compat.v1


def numbers(limit):
    """A tensor that counts, and ends."""
    return v1.train.limit_epochs(v1.train.range_input_producer(limit, num_epochs=1, shuffle=False).dequeue())


@pytest.mark.parametrize("num_threads", [1, 3])
def test_it_holds_what_it_is_given(num_threads):
    with tf.Graph().as_default():
        number = numbers(20)
        queue = slim.prefetch_queue.prefetch_queue([number, 2 * number], capacity=4, num_threads=num_threads)
        with records.running() as run:
            read = records.everything(run, queue.dequeue())
    assert sorted(int(a) for a, _ in read) == list(range(20))
    assert all(b == 2 * a for a, b in read)


def test_dictionaries_and_the_fill():
    with tf.Graph().as_default():
        queue = slim.prefetch_queue.prefetch_queue({"b": numbers(3), "a": tf.constant("x")}, capacity=4)
        element = queue.dequeue()
        assert set(element) == {"a", "b"}
        fills = [summary.op.name for summary in v1.get_collection(v1.GraphKeys.SUMMARIES)]
        assert "prefetch_queue/fraction_of_4_full" in fills
        with records.running() as run:
            assert [int(e["b"]) for e in records.everything(run, element)] == [0, 1, 2]


def test_sizes_may_differ_with_dynamic_pad():
    with tf.Graph().as_default():
        ragged = tf.zeros([numbers(3)])
        with pytest.raises(ValueError, match="shape"):
            slim.prefetch_queue.prefetch_queue([ragged])
        queue = slim.prefetch_queue.prefetch_queue([ragged], dynamic_pad=True, name="own")
        element = queue.dequeue()
        assert element.shape.as_list() == [None]
        with records.running() as run:
            assert [e.shape for e in records.everything(run, element)] == [(0,), (1,), (2,)]
