"""Checkpoints of `slim.learning.train`, of a Saver and of the trainer are one format: each reads the others'."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp import slim
from slimexp.training.checkpoints import Checkpoints

v1 = tf.compat.v1


def build():
    images = tf.ones([2, 4])
    logits = slim.fully_connected(images, 3, normalizer_fn=slim.batch_norm, scope="fc")
    slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding([0, 1], 3))
    return slim.learning.create_train_op(slim.losses.get_total_loss(), v1.train.MomentumOptimizer(0.1, 0.9))


def train(folder, number_of_steps):
    with tf.Graph().as_default():
        slim.learning.train(build(), folder, number_of_steps=number_of_steps)


def restored(path):
    """The variables of a graph after a Saver restored them."""
    with tf.Graph().as_default(), v1.Session() as session:
        build()
        v1.train.Saver().restore(session, str(path))
        return session.run({v.op.name: v for v in slim.get_variables()})


def assert_equal(values, others):
    assert sorted(values) == sorted(others)
    for name, value in values.items():
        np.testing.assert_array_equal(value, others[name], err_msg=name)


def test_a_saver_and_the_trainer_read_what_slim_saves(tmp_path):
    train(tmp_path, 2)
    values = Checkpoints(tmp_path).load(2)
    assert {"fc/weights", "fc/BatchNorm/moving_mean", "fc/weights/Momentum", "global_step"} < set(values)
    assert_equal(restored(tmp_path / "model.ckpt-2"), values)


def test_a_saver_and_slim_read_what_the_trainer_saves(tmp_path):
    train(tmp_path / "slim", 1)
    values = Checkpoints(tmp_path / "slim").load(1)
    values.update({"fc/weights": np.full([4, 3], 0.25, np.float32), "global_step": np.int64(7)})
    ours = Checkpoints(tmp_path / "ours")
    ours.save(7, values)
    assert_equal(restored(ours.prefix(7)), values)
    train(tmp_path / "ours", 8)
    assert ours.latest_step() == 8
    assert ours.load(8)["global_step"] == 8
    # One step of rate 0.1 does not go far.
    np.testing.assert_allclose(ours.load(8)["fc/weights"], 0.25, atol=0.1)
