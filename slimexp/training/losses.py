"""The loss of a classification network on one replica's batch: main and auxiliary heads, by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from slimexp import slim

__all__ = ["add_classification_losses"]

AUX_LOGITS = "AuxLogits"


def add_classification_losses(
    logits: tf.Tensor,
    end_points: Mapping[str, tf.Tensor],
    labels: tf.Tensor,
    *,
    name: str,
    label_smoothing: float = 0.0,
    aux_weight: float = 0.4,
    class_weights: Sequence[float] | None = None,
    valid: tf.Tensor | None = None,
) -> None:
    """Adds the losses of the main head and, where the network has one, of the auxiliary head to the collection.

    Softmax: the mean over the examples of nonzero weight. Sigmoid: target `max(label, 0)`, weight `abs(label)`, the
    mean over the entries that count; don't-care entries (label 0) give exactly no gradient, and a batch of nothing else
    has loss 0.

    Args:
        logits: float32 [B, C].
        end_points: The network's; `AuxLogits`, float32 [B, C], gets the weight `aux_weight` (0.4 in TF-Slim's script).
        labels: Softmax: int32 [B], in 0..C - 1. Sigmoid: int8 [B, C], 1, -1 or 0.
        name: `softmax` or `sigmoid`.
        label_smoothing: In [0, 1): softmax targets move that share towards 1 / C, sigmoid targets towards 1 / 2.
        aux_weight: The auxiliary head's weight; 0 leaves it out.
        class_weights: One weight >= 0 a class, of the examples of that class (softmax) or of that label (sigmoid).
        valid: bool [B], which examples count; None: all. The others have weight 0: no loss, and no gradient.
    """
    heads = [(logits, 1.0)]
    if aux_weight and AUX_LOGITS in end_points:
        heads.append((end_points[AUX_LOGITS], aux_weight))
    scale = None if class_weights is None else tf.constant(list(class_weights), tf.float32)
    counts = tf.ones([tf.shape(labels)[0]]) if valid is None else tf.cast(valid, tf.float32)
    for head, head_weight in heads:
        if name == "softmax":
            weights = head_weight * (counts if scale is None else counts * tf.gather(scale, labels))
            targets = tf.one_hot(labels, head.shape[-1])
            slim.losses.softmax_cross_entropy(head, targets, weights=weights, label_smoothing=label_smoothing)
        else:
            counted = tf.cast(tf.abs(labels), tf.float32) * counts[:, tf.newaxis]
            weights = head_weight * (counted if scale is None else counted * scale)
            targets = tf.cast(tf.maximum(labels, 0), tf.float32)
            slim.losses.sigmoid_cross_entropy(head, targets, weights=weights, label_smoothing=label_smoothing)
