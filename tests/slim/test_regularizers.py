from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

WEIGHTS = np.array([[1.0, -2.0], [3.0, 0.0]], np.float32)


def test_penalties():
    weights = tf.constant(WEIGHTS)
    assert float(slim.l1_regularizer(0.5)(weights)) == 3.0
    assert float(slim.l2_regularizer(0.5)(weights)) == 3.5
    assert float(slim.l1_l2_regularizer(0.5, 0.25)(weights)) == 3.0 + 1.75
    assert float(slim.l1_l2_regularizer(0.0, 0.25)(weights)) == 1.75
    assert float(slim.l1_l2_regularizer(0.5, 0.0)(weights)) == 3.0
    both = slim.sum_regularizer([slim.l1_regularizer(0.5), None, slim.l2_regularizer(0.0)])
    assert float(both(weights)) == 3.0


def test_a_scale_of_zero_is_no_penalty():
    assert slim.l1_regularizer(0.0)(WEIGHTS) is None
    assert slim.l2_regularizer(0.0)(WEIGHTS) is None
    assert slim.sum_regularizer([None]) is None
    assert slim.sum_regularizer([slim.l2_regularizer(0.0)])(tf.constant(WEIGHTS)) is None


@pytest.mark.parametrize("make", [slim.l1_regularizer, slim.l2_regularizer])
def test_scales_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match=r"scale cannot be an integer: 1\. Write a float, e\.g\. 1\.0"):
        make(1)
    with pytest.raises(ValueError, match=r"must be 0 or more, got -0\.5"):
        make(-0.5)
    with pytest.raises(ValueError, match="must be 0 or more, got nan"):
        make(float("nan"))


def test_scales_of_both_are_named():
    with pytest.raises(ValueError, match="scale_l1 cannot be an integer"):
        slim.l1_l2_regularizer(1, 0.5)
    with pytest.raises(ValueError, match=r"scale_l2 of a regularizer must be 0 or more"):
        slim.l1_l2_regularizer(0.5, -0.5)


def test_apply_regularization_adds_up_and_collects():
    with tf.Graph().as_default():
        weights = [tf.constant(WEIGHTS), tf.constant(2 * WEIGHTS)]
        total = slim.apply_regularization(slim.l1_regularizer(0.5), weights)
        assert slim.losses.get_regularization_losses() == [total]
        with tf.compat.v1.Session() as session:
            assert session.run(total) == 9.0
        with pytest.raises(ValueError, match="no weights to regularize"):
            slim.apply_regularization(slim.l1_regularizer(0.5))
        with pytest.raises(ValueError, match=r"must return a scalar, not a tensor of shape \(2, 2\)"):
            slim.apply_regularization(tf.abs, weights)
