"""Batch norm of a frozen layer uses its moving averages and leaves them alone, whatever `is_training` says."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

IMAGES = np.random.RandomState(0).uniform(0, 1, [4, 2, 2, 3]).astype(np.float32)


@pytest.mark.parametrize("is_training", [True, "tensor"])
def test_only_the_frozen_layer_runs_in_inference_mode(is_training):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        training = tf.compat.v1.placeholder_with_default(True, []) if is_training == "tensor" else True
        with slim.frozen_statistics(lambda scope: scope.startswith("body/")):
            with tf.compat.v1.variable_scope("body"):
                frozen = slim.batch_norm(tf.constant(IMAGES), is_training=training, epsilon=0.001, scope="norm")
            assert not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
            free = slim.batch_norm(tf.constant(IMAGES), is_training=training, scope="head")
        updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        assert len(updates) == 2
        outside = slim.batch_norm(tf.constant(IMAGES), is_training=training, scope="body/again")
        session.run(tf.compat.v1.global_variables_initializer())
        # Mean 0 and variance 1 are the initial averages.
        np.testing.assert_allclose(session.run(frozen), IMAGES / np.sqrt(1.001), rtol=1e-5)
        for normalized in session.run([free, outside]):
            np.testing.assert_allclose(normalized.mean((0, 1, 2)), 0, atol=1e-5)


def test_blocks_add_up():
    with (
        slim.frozen_statistics(lambda scope: scope == "a"),
        slim.frozen_statistics(lambda scope: scope == "b"),
        tf.Graph().as_default(),
    ):
        for scope in "abc":
            slim.batch_norm(tf.constant(IMAGES), scope=scope)
        updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        assert len(updates) == 2
