"""Losses of embeddings: alike examples are to lie near each other, others apart.

They return a scalar and join no collection, as in TF-Slim; pass it to `slim.losses.add_loss` to have it counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = [
    "contrastive_loss",
    "lifted_struct_loss",
    "npairs_loss",
    "npairs_loss_multilabel",
    "triplet_semihard_loss",
]


def contrastive_loss(labels: Any, embeddings_anchor: Any, embeddings_positive: Any, margin: float = 1.0) -> Any:
    """Returns the contrastive loss of pairs.

    R. Hadsell, S. Chopra, Y. LeCun: Dimensionality reduction by learning an invariant mapping, CVPR 2006, equation 4
    (twice that).

    Args:
        labels: 1 where the two of a pair are alike, else 0, [batch].
        embeddings_anchor: float32 [batch, dimensions]; of length 1 for a margin to mean the same for all.
        embeddings_positive: Of the same shape.
        margin: How far apart pairs that are not alike should be.
    """
    squared = tf.reduce_sum(tf.math.squared_difference(embeddings_anchor, embeddings_positive), 1)
    alike = tf.cast(labels, squared.dtype)
    missing = tf.maximum(margin - _sqrt(squared), 0)
    return tf.reduce_mean(alike * squared + (1 - alike) * missing**2, name="contrastive_loss")


def triplet_semihard_loss(labels: Any, embeddings: Any, margin: float = 1.0) -> Any:
    """Returns the triplet loss with the nearest negative that is farther than the positive, or else the farthest one.

    F. Schroff, D. Kalenichenko, J. Philbin: FaceNet, arXiv 1503.03832, section 3.2.

    Args:
        labels: Class numbers, [batch].
        embeddings: float32 [batch, dimensions], of length 1.
        margin: How much farther than a positive a negative should be, as squared distance.
    """
    distance = _squared_distances(embeddings)
    alike = _alike(labels)
    infinity = tf.constant(float("inf"), distance.dtype)
    # [anchor, positive, negative]
    negative = tf.where(alike, infinity, distance)[:, tf.newaxis, :]
    farther = tf.where(negative > distance[:, :, tf.newaxis], negative, infinity)
    nearest_farther = tf.reduce_min(farther, 2)
    farthest = tf.reduce_max(tf.where(alike, -infinity, distance), 1, keepdims=True)
    chosen = tf.where(tf.math.is_finite(nearest_farther), nearest_farther, farthest)
    positive = tf.cast(tf.linalg.set_diag(alike, tf.zeros_like(alike[0])), distance.dtype)
    # An anchor without any negative has farthest = -inf: it counts as 0.
    loss = tf.where(tf.math.is_finite(chosen), tf.maximum(margin + distance - chosen, 0), 0)
    return tf.math.divide_no_nan(tf.reduce_sum(loss * positive), tf.reduce_sum(positive), name="triplet_semihard_loss")


def npairs_loss(
    labels: Any, embeddings_anchor: Any, embeddings_positive: Any, reg_lambda: float = 0.002, print_losses: bool = False
) -> Any:
    """Returns the n-pairs loss: the cross-entropy of finding one's own pair by the product of embeddings.

    K. Sohn: Improved deep metric learning with multi-class n-pair loss objective, NIPS 2016, section 3.2.

    Args:
        labels: Class numbers, [batch].
        embeddings_anchor: float32 [batch, dimensions], not of length 1.
        embeddings_positive: Of the same shape.
        reg_lambda: The factor of the embeddings' squared length; a quarter of it for either, as in TF-Slim.
        print_losses: Print both parts whenever the loss is computed.
    """
    return _npairs(
        tf.cast(_alike(labels), tf.float32), embeddings_anchor, embeddings_positive, reg_lambda, print_losses
    )


def npairs_loss_multilabel(
    sparse_labels: Sequence[Any],
    embeddings_anchor: Any,
    embeddings_positive: Any,
    reg_lambda: float = 0.002,
    print_losses: bool = False,
) -> Any:
    """Returns the n-pairs loss where examples are the more alike the more labels they have in common.

    Args:
        sparse_labels: For each example a `tf.SparseTensor` [labels], or one of [1, labels], with 1 for those it has.
        embeddings_anchor: float32 [batch, dimensions], not of length 1.
        embeddings_positive: Of the same shape.
        reg_lambda: The factor of the embeddings' squared length; a quarter of it for either, as in TF-Slim.
        print_losses: Print both parts whenever the loss is computed.
    """
    rows = [tf.reshape(tf.sparse.to_dense(tf.sparse.reorder(row)), [-1]) for row in sparse_labels]
    labels = tf.cast(tf.stack(rows), tf.float32)
    in_common = tf.linalg.matmul(labels, labels, transpose_b=True)
    return _npairs(in_common, embeddings_anchor, embeddings_positive, reg_lambda, print_losses)


def lifted_struct_loss(labels: Any, embeddings: Any, margin: float = 1.0) -> Any:
    """Returns the lifted structured loss: each positive pair against all negatives of either example.

    H. O. Song, Y. Xiang, S. Jegelka, S. Savarese: Deep metric learning via lifted structured feature embedding,
    arXiv 1511.06452, equation 4.

    Args:
        labels: Class numbers, [batch].
        embeddings: float32 [batch, dimensions], not of length 1.
        margin: How far apart examples of different classes should be.
    """
    distance = _sqrt(_squared_distances(embeddings))
    alike = _alike(labels)
    minus_infinity = tf.constant(float("-inf"), distance.dtype)
    # log(sum(exp(margin - distance))) over the negatives of one example, and then of both of a pair.
    of_one = tf.reduce_logsumexp(tf.where(alike, minus_infinity, margin - distance), 1)
    of_both = tf.reduce_logsumexp(tf.stack(tf.meshgrid(of_one, of_one, indexing="ij")), 0)
    upper = tf.linalg.band_part(tf.ones_like(distance), 0, -1) - tf.eye(tf.shape(distance)[0])
    positive = upper * tf.cast(alike, distance.dtype)
    # Without negatives it is log(0), which the maximum makes 0.
    loss = tf.maximum(tf.where(tf.math.is_finite(of_both), of_both + distance, 0), 0) ** 2
    return tf.math.divide_no_nan(tf.reduce_sum(loss * positive), 2 * tf.reduce_sum(positive), name="lifted_struct_loss")


def _npairs(alike: Any, anchor: Any, positive: Any, reg_lambda: float, print_losses: bool) -> Any:
    targets = alike / tf.reduce_sum(alike, 1, keepdims=True)
    similarity = tf.linalg.matmul(anchor, positive, transpose_b=True)
    entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(tf.stop_gradient(targets), similarity))
    lengths = [tf.reduce_mean(tf.reduce_sum(x**2, 1)) for x in (anchor, positive)]
    penalty = 0.25 * reg_lambda * tf.add_n(lengths)
    prints = [tf.print("regularization loss:", penalty, "cross-entropy:", entropy)] if print_losses else []
    with tf.control_dependencies([op for op in prints if op is not None]):
        return tf.add(entropy, penalty, name="npairs_loss")


def _alike(labels: Any) -> Any:
    labels = tf.reshape(labels, [-1, 1])
    return tf.equal(labels, tf.transpose(labels))


def _squared_distances(embeddings: Any) -> Any:
    lengths = tf.reduce_sum(embeddings**2, 1)
    products = tf.linalg.matmul(embeddings, embeddings, transpose_b=True)
    squared = tf.maximum(lengths[:, tf.newaxis] + lengths - 2 * products, 0)
    # What rounding leaves of the distance to oneself would count under a square root.
    return tf.linalg.set_diag(squared, tf.zeros_like(lengths))


def _sqrt(squared: Any) -> Any:
    # The gradient of a root at 0 is infinite, and would be NaN after a product with 0.
    is_zero = squared <= 0
    return tf.where(is_zero, tf.zeros_like(squared), tf.sqrt(tf.where(is_zero, tf.ones_like(squared), squared)))
