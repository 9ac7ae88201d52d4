from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


def test_queues_run_within_the_block_and_no_longer():
    before = set(threading.enumerate())
    with tf.Graph().as_default(), v1.Session() as session:
        (value,) = v1.train.slice_input_producer([tf.range(3)], shuffle=False)
        with slim.queues.QueueRunners(session):
            assert [session.run(value) for _ in range(4)] == [0, 1, 2, 0]
            with pytest.raises(slim.queues.NestedQueueRunnerError, match="running already"):  # noqa: SIM117
                with slim.queues.QueueRunners(session):
                    pass
    assert [t for t in threading.enumerate() if t not in before and t.is_alive()] == []
    # Free again, also after a failure.
    with tf.Graph().as_default(), v1.Session() as session:
        (value,) = v1.train.slice_input_producer([tf.range(3)], shuffle=False)
        with pytest.raises(KeyError), slim.queues.QueueRunners(session):
            raise KeyError
    with v1.Session(graph=tf.Graph()) as session, slim.queues.QueueRunners(session):
        pass


def test_an_error_in_a_queue_is_raised():
    with tf.Graph().as_default(), v1.Session() as session:
        path = v1.train.string_input_producer(["nowhere.jpg"], shuffle=False).dequeue()
        batch = v1.train.batch([tf.io.read_file(path)], 1, shapes=[[]])
        with pytest.raises(tf.errors.OpError, match=r"nowhere\.jpg|is closed"), slim.queues.QueueRunners(session):
            session.run(batch)
