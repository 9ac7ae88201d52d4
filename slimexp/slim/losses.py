"""Losses: each reduces to a scalar, the mean over the elements whose weight is not zero, and joins a collection.

They are those of `tf.compat.v1.losses` under TF-Slim's names and in its order of arguments, predictions first. A weight
per example broadcasts to losses of higher rank: weights [batch] go with losses [batch, labels].

    with slim.arg_scope([slim.losses.add_loss], loss_collection=None):      # losses that do not count
        loss = slim.losses.log_loss(predictions, labels)
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.metric_learning import (
    contrastive_loss,
    lifted_struct_loss,
    npairs_loss,
    npairs_loss_multilabel,
    triplet_semihard_loss,
)
from slimexp.slim.static_shapes import static_sizes

__all__ = [
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "contrastive_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "lifted_struct_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "npairs_loss",
    "npairs_loss_multilabel",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
    "sum_of_squares",
    "triplet_semihard_loss",
]

_losses = tf.compat.v1.losses
_LOSSES = tf.compat.v1.GraphKeys.LOSSES


def compute_weighted_loss(
    losses: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = _LOSSES
) -> Any:
    """Returns the weighted sum of losses divided by the number of elements whose weight is not zero.

    With no such element it is 0, and so is its gradient.

    Args:
        losses: [batch, ...].
        weights: A scalar, or of a shape that broadcasts to the losses' from the left: [batch], [batch, 1], ...
        scope: Name scope of its operations.
        loss_collection: The collection that it joins; None for none.
    """
    losses = tf.convert_to_tensor(losses)
    if (
        isinstance(weights, (int, float))
        and weights == 1
        and losses.shape.is_fully_defined()
        and 0 not in static_sizes(losses)
    ):
        # The same in two operations instead of some twenty.
        with tf.compat.v1.name_scope(scope, "weighted_loss", (losses,)):
            loss = tf.cast(tf.reduce_mean(tf.cast(losses, tf.float32), name="value"), losses.dtype)
    else:
        loss = _losses.compute_weighted_loss(losses, _from_left(weights, losses), scope, loss_collection=None)
    return _added(loss) if loss_collection == _LOSSES else _added(loss, loss_collection=loss_collection)


@add_arg_scope
def add_loss(loss: Any, loss_collection: str | None = _LOSSES) -> None:
    """Puts a scalar that was computed elsewhere into the collection of losses.

    Args:
        loss: The scalar.
        loss_collection: The collection; None for none. An `arg_scope` of `add_loss` sets it for all losses within.
    """
    _losses.add_loss(loss, loss_collection)


def get_losses(scope: str | None = None, loss_collection: str = _LOSSES) -> list[Any]:
    """Returns the losses of the collection, those whose name begins with `scope` if it is given."""
    return list(_losses.get_losses(scope, loss_collection))


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Returns the regularization losses, those whose name begins with `scope` if it is given."""
    return list(_losses.get_regularization_losses(scope))


def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Any:
    """Returns the sum of the regularization losses, 0 if there are none."""
    return _losses.get_regularization_loss(scope, name)


def get_total_loss(add_regularization_losses: bool = True, name: str = "total_loss") -> Any:
    """Returns the sum of all losses of the collection, with the regularization losses unless told otherwise.

    Raises:
        ValueError: If there is no loss.
    """
    losses = get_losses()
    if add_regularization_losses:
        losses += get_regularization_losses()
    if not losses:
        raise ValueError("get_total_loss: no loss was added to this graph.")
    return tf.add_n(losses, name=name)


def softmax_cross_entropy(
    logits: Any, onehot_labels: Any, weights: Any = 1.0, label_smoothing: float = 0, scope: str | None = None
) -> Any:
    """Adds the cross-entropy between a distribution over classes and the softmax of logits.

    Args:
        logits: [batch, classes].
        onehot_labels: [batch, classes], each row a distribution.
        weights: A scalar, [batch] or [batch, 1].
        label_smoothing: In 0..1; takes that share of the labels and spreads it over all classes (Szegedy et al.,
            arXiv 1512.00567, section 7).
        scope: Name scope of its operations.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: If the shapes differ.
    """
    weights = _as_weights(weights)
    if weights.shape.rank == 2 and static_sizes(weights)[1] in (1, None):
        weights = tf.squeeze(weights, [1])
    return _added(
        _losses.softmax_cross_entropy(onehot_labels, logits, weights, label_smoothing, scope, loss_collection=None)
    )


def sparse_softmax_cross_entropy(logits: Any, labels: Any, weights: Any = 1.0, scope: str | None = None) -> Any:
    """Adds the cross-entropy between class numbers and the softmax of logits.

    Args:
        logits: [batch, classes].
        labels: Integers [batch] (or [batch, 1]), each in 0..classes - 1.
        weights: A scalar, [batch] or [batch, 1].
        scope: Name scope of its operations.

    Returns:
        The loss, a scalar.
    """
    return _added(_losses.sparse_softmax_cross_entropy(labels, logits, weights, scope, loss_collection=None))


def sigmoid_cross_entropy(
    logits: Any, multi_class_labels: Any, weights: Any = 1.0, label_smoothing: float = 0, scope: str | None = None
) -> Any:
    """Adds the cross-entropy between labels that hold each on its own and the sigmoid of logits.

    Args:
        logits: [batch, labels].
        multi_class_labels: [batch, labels], in 0..1.
        weights: A scalar, [batch], or [batch, labels], where 0 leaves an entry out of the mean.
        label_smoothing: In 0..1; moves labels that far towards 1/2.
        scope: Name scope of its operations.

    Returns:
        The loss, a scalar.
    """
    logits = tf.convert_to_tensor(logits)
    weights = _from_left(weights, logits)
    return _added(
        _losses.sigmoid_cross_entropy(multi_class_labels, logits, weights, label_smoothing, scope, loss_collection=None)
    )


def mean_squared_error(predictions: Any, labels: Any, weights: Any = 1.0, scope: str | None = None) -> Any:
    """Adds the mean of `(predictions - labels) ** 2`.

    Args:
        predictions: Of any shape.
        labels: Of the same shape.
        weights: A scalar, or of a shape that broadcasts to the predictions' from the left.
        scope: Name scope of its operations.

    Returns:
        The loss, a scalar.
    """
    predictions = tf.convert_to_tensor(predictions)
    weights = _from_left(weights, predictions)
    return _added(_losses.mean_squared_error(labels, predictions, weights, scope, loss_collection=None))


# What it was called at first; the value was the mean then, too.
sum_of_squares = mean_squared_error


def absolute_difference(predictions: Any, labels: Any, weights: Any = 1.0, scope: str | None = None) -> Any:
    """Adds the mean of `abs(predictions - labels)`; the arguments are those of `mean_squared_error`."""
    predictions = tf.convert_to_tensor(predictions)
    weights = _from_left(weights, predictions)
    return _added(_losses.absolute_difference(labels, predictions, weights, scope, loss_collection=None))


def log_loss(predictions: Any, labels: Any, weights: Any = 1.0, epsilon: float = 1e-7, scope: str | None = None) -> Any:
    """Adds the mean of `-labels * log(predictions) - (1 - labels) * log(1 - predictions)`.

    Args:
        predictions: Probabilities, of any shape.
        labels: In 0..1, of the same shape.
        weights: A scalar, or of a shape that broadcasts to the predictions' from the left.
        epsilon: Added inside both logarithms.
        scope: Name scope of its operations.

    Returns:
        The loss, a scalar.
    """
    predictions = tf.convert_to_tensor(predictions)
    weights = _from_left(weights, predictions)
    return _added(_losses.log_loss(labels, predictions, weights, epsilon, scope, loss_collection=None))


def hinge_loss(logits: Any, labels: Any, scope: str | None = None) -> Any:
    """Returns `max(0, 1 - sign * logits)` for each element, sign being 1 for label 1 and -1 for label 0.

    As in TF-Slim it is neither reduced nor collected: pass it to `compute_weighted_loss`.

    Args:
        logits: Of any shape.
        labels: 0 or 1, of the same shape.
        scope: Name scope of its operations.

    Returns:
        The losses, shaped as the logits.
    """
    return _losses.hinge_loss(labels, logits, scope=scope, loss_collection=None, reduction=_losses.Reduction.NONE)


def mean_pairwise_squared_error(predictions: Any, labels: Any, weights: Any = 1.0, scope: str | None = None) -> Any:
    """Adds the squared error of the differences between all pairs of an example's elements.

    With d = predictions - labels it is the mean of `(d_i - d_j) ** 2` over all i and j, i = j included, of an example
    (twice the scale-invariant error of Eigen et al., arXiv 1406.2283, section 3.2), and the **sum** over the examples.
    Both are as in TF-Slim; `tf.compat.v1.losses` leaves out i = j.

    Args:
        predictions: [batch, ...].
        labels: Of the same shape.
        weights: A scalar or [batch], possibly with dimensions of 1 after it.
        scope: Name scope of its operations.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: If the shapes differ.
    """
    with tf.compat.v1.name_scope(scope, "mean_pairwise_squared_error", [predictions, labels, weights]):
        predictions = tf.cast(predictions, tf.float32)
        labels = tf.cast(labels, tf.float32)
        predictions.shape.assert_is_compatible_with(labels.shape)
        weights = tf.cast(_as_weights(weights), tf.float32)
        if weights.shape.rank != 0:
            weights = tf.reshape(weights, [tf.shape(predictions)[0]])
        difference = tf.reshape(predictions - labels, [tf.shape(predictions)[0], -1])
        # The mean over pairs of (d_i - d_j)^2 is twice the variance.
        loss = tf.reduce_sum(2 * tf.math.reduce_variance(difference, 1) * weights, name="value")
    return _added(loss)


def cosine_distance(
    predictions: Any,
    labels: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    dim: int | None = None,
) -> Any:
    """Adds the mean of `1 - sum(predictions * labels)` along an axis; both have length 1 along it.

    Args:
        predictions: Of any shape.
        labels: Of the same shape.
        axis: The axis along which the cosine is taken.
        weights: A scalar, or of a shape that broadcasts to the distances' from the left.
        scope: Name scope of its operations.
        dim: The older name of `axis`.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: If none or both of `axis` and `dim` are given.
    """
    if (axis is None) == (dim is None):
        raise ValueError(f"cosine_distance: give axis (or dim, its older name), got axis={axis} and dim={dim}.")
    axis = dim if axis is None else axis
    predictions = tf.convert_to_tensor(predictions)
    weights = _from_left(weights, predictions)
    return _added(_losses.cosine_distance(labels, predictions, axis, weights, scope, loss_collection=None))


def _added(loss: Any, **kwargs: Any) -> Any:
    # Through the decorated function, so that a scope of it has its way; nothing is collected eagerly.
    add_loss(loss, **kwargs)
    return loss


def _as_weights(weights: Any) -> Any:
    if weights is None:
        raise ValueError("The weights of a loss must not be None; the default is 1.0.")
    return weights if tf.is_tensor(weights) else tf.convert_to_tensor(weights, tf.float32)


def _from_left(weights: Any, losses: Any) -> Any:
    """Returns the weights with dimensions of 1 appended up to the rank of the losses; scalars as they are."""
    weights = _as_weights(weights)
    rank, wanted = weights.shape.rank, losses.shape.rank
    if not rank:
        return weights
    if wanted is None:
        raise ValueError(
            f"Weights of shape {weights.shape} need to know the rank of what they weight, but its shape is unknown; "
            "set it with set_shape or tf.ensure_shape."
        )
    if rank >= wanted:
        return weights
    return tf.reshape(weights, tf.concat([tf.shape(weights), [1] * (wanted - rank)], 0))
