"""How two series of numbers or classes agree, over all batches: covariance, correlation, Cohen's kappa, accuracy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim.metrics.common import collected, flat_weights, metric_scope, metric_variable
from slimexp.slim.static_shapes import static_sizes

__all__ = ["accuracy", "cohen_kappa", "streaming_covariance", "streaming_pearson_correlation"]

v1 = tf.compat.v1


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Returns the share of elements of one batch where predictions and labels are equal.

    Args:
        predictions: Integers, booleans or strings, of any shape.
        labels: Of the same shape and type.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        name: The name scope.

    Returns:
        The share, a float32 scalar.

    Raises:
        ValueError: If the shapes or types differ, or the type is another.
    """
    predictions, labels = tf.convert_to_tensor(predictions), tf.convert_to_tensor(labels)
    for which, tensor in (("labels", labels), ("predictions", predictions)):
        if not (tensor.dtype.is_integer or tensor.dtype in (tf.bool, tf.string)):
            raise ValueError(f"accuracy: {which} must be integers, booleans or strings, got {tensor.dtype.name}.")
    if predictions.dtype != labels.dtype:
        raise ValueError(
            f"accuracy: predictions are {predictions.dtype.name}, but labels are {labels.dtype.name}; cast one of them."
        )
    predictions.shape.assert_is_compatible_with(labels.shape)
    with v1.name_scope(name, "accuracy", [predictions, labels]):
        correct = tf.reshape(tf.cast(tf.equal(predictions, labels), tf.float32), [-1])
        weight = flat_weights(weights, labels)
        return tf.math.divide_no_nan(tf.reduce_sum(correct * weight), tf.reduce_sum(weight))


def streaming_covariance(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the unbiased covariance of predictions and labels (graph mode).

    Batches are joined by the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
    computing sample variances", 1979), which does not cancel where values are far from 0.

    Args:
        predictions: Of any shape.
        labels: Of the same shape.
        weights: How often an element counts, of a shape that broadcasts to the labels'; None for once.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, NaN for less than two elements, and the operation that takes a batch into account.
    """
    with metric_scope(name, "covariance", (predictions, labels, weights)):
        predictions = tf.cast(predictions, tf.float32)
        labels = tf.cast(labels, tf.float32)
        predictions.shape.assert_is_compatible_with(labels.shape)
        names = ("count", "mean_prediction", "mean_label", "comoment")
        variables = [metric_variable([], tf.float32, name) for name in names]
        count, mean_prediction, mean_label, comoment = (tf.identity(variable) for variable in variables)

        weight = flat_weights(weights, labels)
        x, y = tf.reshape(predictions, [-1]), tf.reshape(labels, [-1])
        batch_count = tf.reduce_sum(weight)
        batch_x = tf.math.divide_no_nan(tf.reduce_sum(x * weight), batch_count)
        batch_y = tf.math.divide_no_nan(tf.reduce_sum(y * weight), batch_count)
        batch_comoment = tf.reduce_sum((x - batch_x) * (y - batch_y) * weight)

        new_count = count + batch_count
        share = tf.math.divide_no_nan(batch_count, new_count)
        apart = (batch_x - mean_prediction) * (batch_y - mean_label)
        new_values = (
            new_count,
            mean_prediction + (batch_x - mean_prediction) * share,
            mean_label + (batch_y - mean_label) * share,
            comoment + batch_comoment + apart * count * share,
        )
        # All computed from the old values before any is replaced.
        with tf.control_dependencies(new_values):
            updates = [variable.assign(new) for variable, new in zip(variables, new_values, strict=True)]
        with tf.control_dependencies(updates):
            update_op = _unbiased(tf.identity(new_values[3]), tf.identity(new_values[0]), "update_op")
        return collected(_unbiased(comoment, count, "covariance"), update_op, metrics_collections, updates_collections)


def _unbiased(comoment: Any, count: Any, name: str) -> Any:
    # The inner where keeps the quotient finite where it is not used.
    quotient = comoment / tf.where(count > 1, count - 1, 1.0)
    return tf.where(count > 1, quotient, float("nan"), name=name)


def streaming_pearson_correlation(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes Pearson's correlation coefficient of predictions and labels, in -1..1 (graph mode).

    The arguments are those of `streaming_covariance`.
    """
    with metric_scope(name, "pearson_r", (predictions, labels, weights)):
        cov, cov_update = streaming_covariance(predictions, labels, weights, name="covariance")
        var_x, var_x_update = streaming_covariance(predictions, predictions, weights, name="variance_predictions")
        var_y, var_y_update = streaming_covariance(labels, labels, weights, name="variance_labels")
        value = tf.divide(cov, tf.sqrt(var_x) * tf.sqrt(var_y), name="pearson_r")
        update_op = tf.divide(cov_update, tf.sqrt(var_x_update) * tf.sqrt(var_y_update), name="update_op")
        return collected(value, update_op, metrics_collections, updates_collections)


def cohen_kappa(
    labels: Any,
    predictions_idx: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes Cohen's kappa: how far classes agree beyond chance, 1 for wholly and 0 for not at all (graph mode).

    Args:
        labels: Class numbers, [batch] or [batch, 1].
        predictions_idx: Of the same shape.
        num_classes: The number of classes.
        weights: Of the labels' shape; None for ones.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The value, NaN where it is not defined, and the operation that takes a batch into account.

    Raises:
        RuntimeError: If executed eagerly.
        ValueError: If a shape is another, or `num_classes` is below 2.
    """
    if tf.executing_eagerly():
        raise RuntimeError("cohen_kappa keeps its counts in a graph: build it inside `with tf.Graph().as_default():`.")
    if num_classes < 2:
        raise ValueError(f"cohen_kappa: num_classes must be 2 or more, got {num_classes}.")
    with metric_scope(name, "cohen_kappa", (labels, predictions_idx, weights)):
        labels = _vector("labels", labels)
        predictions = _vector("predictions_idx", predictions_idx)
        labels.shape.assert_is_compatible_with(predictions.shape)
        names = ("po", "pe_row", "pe_col")
        agreeing, rows, columns = (metric_variable([num_classes], tf.float64, name) for name in names)

        weight = tf.ones(tf.shape(labels), tf.float64)
        if weights is not None:
            weight = tf.cast(_vector("weights", weights), tf.float64)
            weight.shape.assert_is_compatible_with(labels.shape)
        by_label = tf.math.unsorted_segment_sum(weight, labels, num_classes)
        by_prediction = tf.math.unsorted_segment_sum(weight, predictions, num_classes)
        agree = tf.cast(tf.equal(labels, predictions), tf.float64)
        both = tf.math.unsorted_segment_sum(weight * agree, labels, num_classes)

        def kappa(agreeing: Any, rows: Any, columns: Any, *, name: str) -> Any:
            total = tf.reduce_sum(rows)
            by_chance = tf.reduce_sum(rows * columns) / total
            return tf.divide(tf.reduce_sum(agreeing) - by_chance, total - by_chance, name=name)

        value = kappa(tf.identity(agreeing), tf.identity(rows), tf.identity(columns), name="value")
        updated = (agreeing.assign_add(both), rows.assign_add(by_label), columns.assign_add(by_prediction))
        update_op = kappa(*map(tf.identity, updated), name="update_op")
        return collected(value, update_op, metrics_collections, updates_collections)


def _vector(name: str, tensor: Any) -> Any:
    tensor = tf.convert_to_tensor(tensor)
    if name != "weights":
        tensor = tf.cast(tensor, tf.int64)
    if tensor.shape.rank == 2 and static_sizes(tensor)[1] in (1, None):
        tensor = tf.squeeze(tensor, [1])
    if tensor.shape.rank not in (1, None):
        raise ValueError(f"cohen_kappa: {name} must be of shape [batch] or [batch, 1], got {tensor.shape}.")
    return tensor
