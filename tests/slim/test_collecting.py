from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim import reference


def test_a_block_holds_what_was_added_within_it():
    with tf.Graph().as_default():
        slim.losses.add_loss(tf.constant(1.0))
        with slim.collected() as own:
            assert own.losses == []
            loss = tf.constant(2.0)
            slim.losses.add_loss(loss)
            assert own.losses == [loss]
            slim.batch_norm(tf.ones([2, 3]))
        slim.losses.add_loss(tf.constant(3.0))
        assert own.losses == [loss]
        assert len(own.update_ops) == 2
        assert own.regularization_losses == []


def test_blocks_nest():
    with tf.Graph().as_default():
        with slim.collected() as outer, slim.collected() as inner:
            slim.losses.add_loss(tf.constant(2.0))
        assert len(outer.losses) == len(inner.losses) == 1


def test_replicas_see_their_own_even_if_they_build_in_turns():
    strategy = reference.two_replicas()
    seen = []

    def replica():
        context = tf.distribute.get_replica_context()
        with slim.collected() as own:
            slim.losses.add_loss(tf.constant(1.0, name="first"))
            # Each replica waits here for the other one.
            context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))
            slim.losses.add_loss(tf.constant(2.0, name="second"))
        seen.append([loss.name for loss in own.losses])
        return tf.add_n(own.losses)

    @tf.function
    def step():
        strategy.run(replica)

    step()
    prefixed = ["replica_1/first:0", "replica_1/second:0"]
    assert sorted(seen) == [["first:0", "second:0"], prefixed]


def test_there_is_nothing_to_collect_eagerly():
    with pytest.raises(RuntimeError, match=r"use it inside a tf\.function"), slim.collected():
        pass
