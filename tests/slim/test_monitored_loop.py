from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


def test_hooks_end_it_and_checkpoints_let_it_go_on(tmp_path):
    for end in (2, 3):
        with tf.Graph().as_default():
            w = slim.variable("w", initializer=tf.constant(1.0))
            train_op = slim.training.create_train_op(0.5 * w * w, v1.train.GradientDescentOptimizer(0.5))
            metadata = v1.RunMetadata()
            loss = slim.training.train(
                train_op,
                tmp_path,
                hooks=[v1.train.StopAtStepHook(last_step=end)],
                config=v1.ConfigProto(allow_soft_placement=True),
                run_metadata=metadata,
            )
    assert loss == 0.5 * 0.25**2
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("w") == 0.125


def test_without_a_folder():
    with tf.Graph().as_default():
        w = slim.variable("w", initializer=tf.constant(1.0))
        train_op = slim.training.create_train_op(2.0 * tf.identity(w), v1.train.GradientDescentOptimizer(0.5))
        with pytest.raises(ValueError, match="save_summaries_steps=100 writes files, but logdir is None"):
            slim.training.train(train_op, None)
        with pytest.raises(ValueError, match="save_checkpoint_secs=600 writes files"):
            slim.training.train(train_op, None, save_summaries_steps=None)
        hooks = [v1.train.StopAtStepHook(num_steps=1)]
        loss = slim.training.train(
            train_op, None, chief_only_hooks=hooks, save_summaries_steps=None, save_checkpoint_secs=None
        )
        assert loss == 2.0
