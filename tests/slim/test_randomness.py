from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp import slim
from tests.slim import reference


@tf.function
def masks(step, replica=0, seed=0, scopes=("a", "b")):
    """Which of 64 ones each of the dropout layers keeps."""
    with slim.stateless_randomness(seed=seed, step=step, replica=replica):
        return [slim.dropout(tf.ones([64]), scope=scope) for scope in scopes]


def test_the_same_key_gives_the_same_mask_and_any_other_gives_another():
    first, other_layer = (m.numpy() for m in masks(tf.constant(3, tf.int64)))
    assert set(first) == {0.0, 2.0}
    np.testing.assert_array_equal(masks(tf.constant(3, tf.int64))[0], first)
    # Another trace, with the layers in another order: the name is what counts.
    np.testing.assert_array_equal(masks(tf.constant(3, tf.int64), scopes=("b", "a"))[1], first)
    others = [
        other_layer,
        masks(tf.constant(4, tf.int64))[0].numpy(),
        masks(tf.constant(3, tf.int64), replica=1)[0].numpy(),
        masks(tf.constant(3, tf.int64), seed=1)[0].numpy(),
        masks(tf.constant(3, tf.int64), scopes=("a", "a"))[1].numpy(),
    ]
    for other in others:
        assert np.any(other != first)


def test_the_mask_is_a_known_one():
    # Resuming on another machine or version must go on with the same masks: a change here breaks old runs.
    (mask,) = masks(tf.constant(0, tf.int64), scopes=("vgg_16/dropout6",))
    bits = "".join("1" if kept else "0" for kept in mask.numpy())
    assert f"{int(bits, 2):016x}" == "885be6fe4eeb39da"


def test_replicas_draw_their_own():
    strategy = reference.two_replicas()

    @tf.function
    def step():
        def replica():
            with slim.stateless_randomness(seed=0, step=0):
                return slim.dropout(tf.ones([64]))

        return strategy.experimental_local_results(strategy.run(replica))

    a, b = step()
    assert np.any(a.numpy() != b.numpy())


def test_the_step_reaches_into_later_runs_and_outside_dropout_is_stateful():
    @tf.function
    def stateful():
        return slim.dropout(tf.ones([64]))

    assert np.any(stateful().numpy() != stateful().numpy())


def test_the_mask_does_not_depend_on_how_the_mode_is_given():
    @tf.function
    def fn(is_training):
        with slim.stateless_randomness(seed=0, step=3, replica=0):
            return slim.dropout(tf.ones([64]), is_training=is_training, scope="a")

    np.testing.assert_array_equal(fn(tf.constant(True)), masks(tf.constant(3, tf.int64))[0])
    np.testing.assert_array_equal(fn(tf.constant(False)), np.ones(64))
