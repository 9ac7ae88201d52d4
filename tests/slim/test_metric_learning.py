from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
losses = slim.losses

# Two classes on a line, at 0 and 1 and at 3 and 5; their distances can be read off.
POINTS = np.array([[0.0], [1.0], [3.0], [5.0]], np.float32)
LABELS = np.array([0, 0, 1, 1])


def run(build, points=POINTS):
    """Returns the loss and its gradient, which must be finite."""
    with tf.Graph().as_default(), v1.Session() as session:
        tensor = tf.constant(points)
        loss = build(tensor)
        assert losses.get_losses() == []
        value, gradient = session.run([loss, *tf.gradients(loss, tensor)])
        assert np.isfinite(gradient).all()
        return value


def test_contrastive_loss():
    other = np.array([[0.0], [3.0], [3.5], [5.0]], np.float32)
    # Alike at distances 0 and 2, not alike at 0.5 and 0.
    value = run(lambda x: losses.contrastive_loss([1, 1, 0, 0], x, other))
    np.testing.assert_allclose(value, (0 + 4 + 0.25 + 1) / 4)


def test_triplet_loss():
    # Squared distances to the positive and the chosen negative: 1 9, 1 4, 4 9 (of 9 and 4), 4 16.
    value = run(lambda x: losses.triplet_semihard_loss(LABELS, x, margin=6.0))
    np.testing.assert_allclose(value, (0 + 3 + 1 + 0) / 4)
    # All alike: there is no negative.
    assert run(lambda x: losses.triplet_semihard_loss(0 * LABELS, x)) == 0


def test_lifted_structured_loss():
    margin = 4.0
    negatives = np.exp(margin - np.abs(POINTS[:2] - POINTS[2:].T))
    of_pairs = [np.log(negatives.sum()) + 1, np.log(negatives.sum()) + 2]
    value = run(lambda x: losses.lifted_struct_loss(LABELS, x, margin))
    np.testing.assert_allclose(value, np.square(of_pairs).sum() / 4, rtol=1e-5)
    assert run(lambda x: losses.lifted_struct_loss(0 * LABELS, x)) == 0


def test_pairs_loss(capfd):
    positive = np.array([[1.0], [0.5], [-1.0], [0.0]], np.float32)
    logits = POINTS @ positive.T
    log_softmax = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    penalty = 0.25 * 0.1 * (np.mean(POINTS**2) + np.mean(positive**2))
    alike = np.kron(np.eye(2), np.full([2, 2], 0.5))
    expected = -(alike * log_softmax).sum(1).mean() + penalty
    value = run(lambda x: losses.npairs_loss(LABELS, x, positive, reg_lambda=0.1, print_losses=True))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert "cross-entropy:" in capfd.readouterr().err

    def multilabel(x):
        rows = [tf.SparseTensor([[label]], [1.0], [2]) for label in LABELS]
        return losses.npairs_loss_multilabel(rows, x, positive, reg_lambda=0.1)

    np.testing.assert_allclose(run(multilabel), expected, rtol=1e-5)
