from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_what_is_kept_is_scaled(session):
    ones = np.ones([100, 100], np.float32)
    value = session.run(slim.dropout(ones, keep_prob=0.8, seed=1))
    assert set(np.unique(value)) == {0.0, np.float32(1.25)}
    # 10 000 draws: a standard deviation of the share is 0.004.
    assert abs((value > 0).mean() - 0.8) < 0.02


def test_noise_shape_drops_whole_channels(session):
    value = session.run(slim.dropout(tf.ones([2, 3, 3, 50]), noise_shape=[2, 1, 1, 50]))
    assert np.all(value == value[:, :1, :1, :])
    assert set(np.unique(value)) == {0.0, 2.0}


def test_outside_of_training_nothing_changes(session):
    inputs = tf.ones([3])
    out = slim.dropout(inputs, is_training=False, outputs_collections="out", scope="d")
    assert out is not inputs
    np.testing.assert_array_equal(session.run(out), [1, 1, 1])
    assert list(slim.utils.convert_collection_to_dict("out")) == ["d"]


def test_tensors_for_mode_and_probability(session):
    mode, keep = v1.placeholder(tf.bool, []), v1.placeholder(tf.float32, [])
    out = slim.dropout(tf.ones([100]), keep_prob=keep, is_training=mode)
    assert set(np.unique(session.run(out, {mode: True, keep: 0.5}))) == {0.0, 2.0}
    assert set(np.unique(session.run(out, {mode: False, keep: 0.5}))) == {1.0}


@pytest.mark.parametrize("keep_prob", [0, -0.5, 1.5])
def test_probabilities_it_refuses(keep_prob):
    with pytest.raises(ValueError, match=f"keep_prob={keep_prob} must be greater than 0 and at most 1"):
        slim.dropout(tf.ones([3]), keep_prob)
