from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]], np.float32)
LABELS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], np.float32)


def run(build):
    """Builds in a graph and returns the value, after checking that the result was collected if it is a loss."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loss = build()
        if loss.shape.rank == 0:
            assert slim.losses.get_losses() == [loss]
        return session.run(loss)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def test_softmax_cross_entropy():
    each = -(LABELS * log_softmax(LOGITS)).sum(1)
    value = run(lambda: slim.losses.softmax_cross_entropy(LOGITS, LABELS))
    np.testing.assert_allclose(value, each.mean(), rtol=1e-6)
    value = run(lambda: slim.losses.softmax_cross_entropy(LOGITS, LABELS, weights=[0.0, 2.0]))
    np.testing.assert_allclose(value, 2 * each[1], rtol=1e-6)
    smooth = LABELS * 0.9 + 0.1 / 3
    value = run(lambda: slim.losses.softmax_cross_entropy(LOGITS, LABELS, label_smoothing=0.1))
    np.testing.assert_allclose(value, -(smooth * log_softmax(LOGITS)).sum(1).mean(), rtol=1e-6)
    value = run(lambda: slim.losses.sparse_softmax_cross_entropy(LOGITS, np.array([0, 2])))
    np.testing.assert_allclose(value, each.mean(), rtol=1e-6)


def test_sigmoid_cross_entropy_counts_the_entries_with_a_weight():
    each = np.log1p(np.exp(LOGITS)) - LABELS * LOGITS
    value = run(lambda: slim.losses.sigmoid_cross_entropy(LOGITS, LABELS))
    np.testing.assert_allclose(value, each.mean(), rtol=1e-6)
    weights = np.array([[1, 0, 1], [0, 0, 0]], np.float32)
    value = run(lambda: slim.losses.sigmoid_cross_entropy(LOGITS, LABELS, weights))
    np.testing.assert_allclose(value, each[0, [0, 2]].mean(), rtol=1e-6)
    value = run(lambda: slim.losses.sigmoid_cross_entropy(LOGITS, LABELS, weights=[1.0, 0.0]))
    np.testing.assert_allclose(value, each[0].mean(), rtol=1e-6)
    assert run(lambda: slim.losses.sigmoid_cross_entropy(LOGITS, LABELS, 0 * weights)) == 0
    smooth = np.log1p(np.exp(LOGITS)) - (LABELS * 0.8 + 0.1) * LOGITS
    value = run(lambda: slim.losses.sigmoid_cross_entropy(LOGITS, LABELS, label_smoothing=0.2))
    np.testing.assert_allclose(value, smooth.mean(), rtol=1e-6)


def test_an_entry_without_weight_has_exactly_no_gradient():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        logits = tf.constant(LOGITS)
        loss = slim.losses.sigmoid_cross_entropy(logits, LABELS, np.zeros_like(LABELS))
        (gradient,) = tf.gradients(loss, [logits])
        np.testing.assert_array_equal(session.run(gradient), np.zeros_like(LOGITS))


def test_losses_of_differences():
    difference = LOGITS - LABELS
    value = run(lambda: slim.losses.mean_squared_error(LOGITS, LABELS))
    np.testing.assert_allclose(value, (difference**2).mean(), rtol=1e-6)
    assert slim.losses.sum_of_squares is slim.losses.mean_squared_error
    value = run(lambda: slim.losses.absolute_difference(LOGITS, LABELS, weights=[0.0, 1.0]))
    np.testing.assert_allclose(value, np.abs(difference[1]).mean(), rtol=1e-6)
    pairs = [(d[i] - d[j]) ** 2 for d in difference for i in range(3) for j in range(3)]
    value = run(lambda: slim.losses.mean_pairwise_squared_error(LOGITS, LABELS))
    np.testing.assert_allclose(value, 2 * np.mean(pairs), rtol=1e-5)


def test_log_hinge_and_cosine():
    p = np.array([[0.9, 0.2, 0.5]], np.float32)
    value = run(lambda: slim.losses.log_loss(p, LABELS[:1]))
    np.testing.assert_allclose(value, -np.mean(np.log([0.9, 0.8, 0.5])), rtol=1e-5)
    value = run(lambda: slim.losses.hinge_loss(LOGITS, LABELS))
    np.testing.assert_allclose(value, [[0, 0, 1.5], [1, 4, 3]])
    unit = LOGITS / np.linalg.norm(LOGITS, axis=1, keepdims=True)
    value = run(lambda: slim.losses.cosine_distance(unit, LABELS, axis=1))
    np.testing.assert_allclose(value, (1 - (unit * LABELS).sum(1)).mean(), rtol=1e-6)
    value = run(lambda: slim.losses.cosine_distance(unit, LABELS, dim=1, weights=[1.0, 0.0]))
    np.testing.assert_allclose(value, 1 - unit[0, 0], rtol=1e-6)
    with pytest.raises(ValueError, match=r"give axis .* got axis=None and dim=None"):
        slim.losses.cosine_distance(unit, LABELS)


def test_totals():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with pytest.raises(ValueError, match="no loss was added to this graph"):
            slim.losses.get_total_loss()
        assert session.run(slim.losses.get_regularization_loss()) == 0
        slim.losses.add_loss(tf.constant(1.0, name="mine/loss"))
        slim.losses.compute_weighted_loss([2.0, 4.0, 9.0], [1.0, 1.0, 0.0])
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES, tf.constant(0.5))
        assert len(slim.losses.get_losses()) == 2
        assert len(slim.losses.get_losses("mine")) == 1
        assert session.run(slim.losses.get_total_loss()) == 4.5
        assert session.run(slim.losses.get_total_loss(add_regularization_losses=False)) == 4.0
        assert session.run(slim.losses.get_regularization_loss()) == 0.5


def test_weights_that_cannot_be_placed_and_collections_of_a_scope():
    with tf.Graph().as_default():
        unknown = tf.compat.v1.placeholder(tf.float32)
        with pytest.raises(ValueError, match=r"Weights of shape \(2,\) need to know the rank of what they weight"):
            slim.losses.mean_squared_error(unknown, unknown, [1.0, 2.0])
        with pytest.raises(ValueError, match="must not be None; the default is"):
            slim.losses.mean_squared_error(LOGITS, LABELS, None)
        with slim.arg_scope([slim.losses.add_loss], loss_collection="mine"):
            loss = slim.losses.log_loss(LABELS, LABELS)
        assert slim.losses.get_losses() == []
        assert slim.losses.get_losses(loss_collection="mine") == [loss]
