"""Areas under curves, from every score that there was or from a histogram, and precision and recall at thresholds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from slimexp.slim.metrics.common import collected, flat, flat_weights, metric_scope, metric_variable
from slimexp.slim.metrics.concat import streaming_concat
from slimexp.slim.metrics.operating_points import check_curve

__all__ = [
    "AucWithConfidenceIntervals",
    "PrecisionRecall",
    "auc_using_histogram",
    "auc_with_confidence_intervals",
    "precision_recall_at_equal_thresholds",
    "streaming_dynamic_auc",
]

v1 = tf.compat.v1


class AucWithConfidenceIntervals(NamedTuple):
    """The area under the ROC curve, and the bounds of its confidence interval."""

    auc: Any
    lower: Any
    upper: Any


class PrecisionRecall(NamedTuple):
    """Counts and rates at each threshold."""

    tp: Any
    fp: Any
    tn: Any
    fn: Any
    precision: Any
    recall: Any
    thresholds: Any


def streaming_dynamic_auc(
    labels: Any,
    predictions: Any,
    curve: str = "ROC",
    metrics_collections: Any = (),
    updates_collections: Any = (),
    name: str | None = None,
    weights: Any = None,
) -> tuple[Any, Any]:
    """Computes the exact area under the ROC or precision-recall curve; it keeps all labels and scores in memory.

    It works in graphs only.

    Args:
        labels: 0 or 1, of any shape.
        predictions: Scores of any range, of the same shape.
        curve: `ROC` or `PR`.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.
        weights: Of the labels' shape; None for ones.

    Returns:
        The value, 0 where all labels are the same, and the operation that takes a batch into account.

    Raises:
        ValueError: For another `curve`, or shapes that differ.
    """
    check_curve(curve)
    with metric_scope(name, "dynamic_auc", (labels, predictions, weights)):
        label, score, weight, update_op = _all_scores(labels, predictions, weights)

        order = tf.argsort(score, direction="DESCENDING", stable=True)
        label, score, weight = (tf.gather(x, order) for x in (label, score, weight))
        # A point of the curve for each distinct score: where the next one is another.
        is_last = tf.concat([tf.not_equal(score[1:], score[:-1]), tf.ones_like(score[:1], tf.bool)], 0)
        tp = _with_zero(tf.boolean_mask(tf.cumsum(weight * label), is_last))
        fp = _with_zero(tf.boolean_mask(tf.cumsum(weight * (1 - label)), is_last))
        recall = tf.math.divide_no_nan(tp, tp[-1])
        if curve == "ROC":
            x, y = tf.math.divide_no_nan(fp, fp[-1]), recall
        else:
            # Nothing predicted is nothing wrong: the curve begins at precision 1.
            x, y = recall, tf.where(tp + fp > 0, tf.math.divide_no_nan(tp, tp + fp), tf.ones_like(tp))
        area = tf.reduce_sum((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2)
        both = tf.logical_and(tp[-1] > 0, fp[-1] > 0)
        value = tf.cast(tf.where(both, area, tf.zeros_like(area)), tf.float32)
        return collected(value, update_op, metrics_collections, updates_collections)


def auc_with_confidence_intervals(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    alpha: float = 0.95,
    logit_transformation: bool = True,
    metrics_collections: Any = (),
    updates_collections: Any = (),
    name: str | None = None,
) -> tuple[AucWithConfidenceIntervals, Any]:
    """Computes the area under the ROC curve with a confidence interval; it keeps all labels and scores in memory.

    It works in graphs only.

    The variance is that of DeLong, DeLong and Clarke-Pearson ("Comparing the areas under two or more correlated
    receiver operating characteristic curves", Biometrics 44, 1988), from the share of the other class that each
    example's score exceeds.

    Args:
        labels: 0 or 1, of any shape.
        predictions: Scores of any range, of the same shape.
        weights: How often an example counts, of the labels' shape; None for once.
        alpha: The confidence, in 0..1.
        logit_transformation: Take the interval on the scale of log(auc / (1 - auc)), so that it lies within 0..1.
        metrics_collections: Names of collections for the value.
        updates_collections: Names of collections for the update.
        name: The variable scope.

    Returns:
        The area and its bounds, all 0 where a class has less than one example, and the operation that takes a batch
        into account.

    Raises:
        ValueError: If `alpha` is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"auc_with_confidence_intervals: alpha must be between 0 and 1, got {alpha}.")
    with metric_scope(name, "auc_with_confidence_intervals", (labels, predictions, weights)):
        label, score, weight, update_op = _all_scores(labels, predictions, weights)
        order = tf.argsort(score, stable=True)
        label, score, weight = (tf.gather(x, order) for x in (label, score, weight))
        below = tf.searchsorted(score, score, side="left")
        up_to = tf.searchsorted(score, score, side="right")

        def placed(other: Any) -> Any:
            """Returns for each example the share of the other class with lower scores, ties by halves."""
            cumulated = _with_zero(tf.cumsum(other))
            halves = (tf.gather(cumulated, below) + tf.gather(cumulated, up_to)) / 2
            return tf.math.divide_no_nan(halves, cumulated[-1])

        positive, negative = weight * label, weight * (1 - label)
        auc, positive_variance = _mean_and_its_variance(placed(negative), positive)
        _, negative_variance = _mean_and_its_variance(1 - placed(positive), negative)
        half_width = statistics.NormalDist().inv_cdf((1 + alpha) / 2) * tf.sqrt(positive_variance + negative_variance)
        if logit_transformation:
            inner = tf.logical_and(auc > 0, auc < 1)
            safe = tf.where(inner, auc, tf.fill(tf.shape(auc), tf.constant(0.5, auc.dtype)))
            logit = tf.math.log(safe / (1 - safe))
            half_width = half_width / (safe * (1 - safe))
            lower = tf.where(inner, tf.sigmoid(logit - half_width), auc)
            upper = tf.where(inner, tf.sigmoid(logit + half_width), auc)
        else:
            lower, upper = auc - half_width, auc + half_width
        valid = tf.logical_and(tf.reduce_sum(positive) >= 1, tf.reduce_sum(negative) >= 1)
        values = (tf.cast(tf.where(valid, x, tf.zeros_like(x)), tf.float32) for x in (auc, lower, upper))
        return collected(AucWithConfidenceIntervals(*values), update_op, metrics_collections, updates_collections)


def precision_recall_at_equal_thresholds(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> tuple[PrecisionRecall, Any]:
    """Computes precision and recall at evenly spaced thresholds, in time that does not depend on their number.

    Args:
        labels: bool, of any shape.
        predictions: Scores in 0..1, floating point, of the same shape. At a threshold those not below it are predicted.
        weights: A scalar, or of a shape that broadcasts to the labels'; None for ones.
        num_thresholds: How many thresholds, from 0 to 1; None for 201.
        use_locking: Lock the counts while they are added to.
        name: The variable scope.

    Returns:
        Counts and rates, each [num_thresholds] of the type of the predictions, and the operation that takes a batch
        into account.

    Raises:
        ValueError: If labels or predictions have another type, their shapes differ, or `num_thresholds` is below 2.
    """
    predictions, labels = tf.convert_to_tensor(predictions), tf.convert_to_tensor(labels)
    if labels.dtype != tf.bool or not predictions.dtype.is_floating:
        raise ValueError(
            "precision_recall_at_equal_thresholds: labels must be bool and predictions floating point, got "
            f"{labels.dtype.name} and {predictions.dtype.name}."
        )
    predictions.shape.assert_is_compatible_with(labels.shape)
    num_thresholds = 201 if num_thresholds is None else num_thresholds
    if num_thresholds < 2:
        raise ValueError(
            f"precision_recall_at_equal_thresholds: num_thresholds must be 2 or more, got {num_thresholds}."
        )
    dtype = predictions.dtype
    with metric_scope(name, "precision_recall_at_equal_thresholds", (labels, predictions, weights)):
        checks = [
            tf.debugging.assert_greater_equal(predictions, tf.cast(0, dtype), "predictions must be in [0, 1]"),
            tf.debugging.assert_less_equal(predictions, tf.cast(1, dtype), "predictions must be in [0, 1]"),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            score = flat(predictions, dtype)
        weight = flat_weights(weights, predictions, tf.float64)
        # Buckets between thresholds, so that one sum per bucket is enough for all of them; in float64, as the counts
        # of millions of pixels exceed what float32 can count by ones.
        bucket = tf.cast(tf.floor(score * tf.cast(num_thresholds - 1, dtype)), tf.int32)
        positive = flat(labels, tf.float64)
        with v1.variable_scope("variables"):
            tp_buckets = metric_variable([num_thresholds], tf.float64, "tp_buckets")
            fp_buckets = metric_variable([num_thresholds], tf.float64, "fp_buckets")
        in_batch = [
            tf.math.unsorted_segment_sum(weight * of_class, bucket, num_thresholds)
            for of_class in (positive, 1 - positive)
        ]
        update_op = tf.group(
            *(
                buckets.assign_add(more, use_locking=bool(use_locking))
                for buckets, more in zip((tp_buckets, fp_buckets), in_batch, strict=True)
            ),
            name="update_op",
        )
        tp = tf.cumsum(tf.identity(tp_buckets), reverse=True)
        fp = tf.cumsum(tf.identity(fp_buckets), reverse=True)
        values = PrecisionRecall(
            tp,
            fp,
            fp[0] - fp,
            tp[0] - tp,
            tf.math.divide_no_nan(tp, tp + fp),
            tf.math.divide_no_nan(tp, tp[0]),
            tf.linspace(tf.constant(0.0, tf.float64), 1.0, num_thresholds),
        )
        return PrecisionRecall(*(tf.cast(value, dtype) for value in values)), update_op


def auc_using_histogram(
    boolean_labels: Any,
    scores: Any,
    score_range: Sequence[float],
    nbins: int = 100,
    collections: Any = None,
    check_shape: bool = True,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the area under the ROC curve from histograms of the scores of both classes.

    Args:
        boolean_labels: bool, [batch].
        scores: [batch].
        score_range: The lowest and the highest score; others count as these.
        nbins: The number of bins; the more, the better the approximation.
        collections: Names of more collections for the histograms.
        check_shape: Check that both are vectors of one length.
        name: The variable scope.

    Returns:
        The value, NaN where a class is missing, and the operation that takes a batch into account.

    Raises:
        ValueError: If the shapes are known to be others.
    """
    boolean_labels, scores = tf.convert_to_tensor(boolean_labels), tf.convert_to_tensor(scores)
    with metric_scope(name, "auc_using_histogram", (boolean_labels, scores)):
        if check_shape:
            boolean_labels.shape.assert_has_rank(1)
            scores.shape.assert_has_rank(1)
            boolean_labels.shape.assert_is_compatible_with(scores.shape)
        low, high = (tf.cast(bound, scores.dtype) for bound in score_range)
        updates, shares = [], []
        for which, name_ in ((boolean_labels, "hist_true"), (tf.logical_not(boolean_labels), "hist_false")):
            variable = metric_variable([nbins], tf.float32, name_)
            if collections:
                v1.add_to_collections(collections, variable)
            histogram = tf.histogram_fixed_width(tf.boolean_mask(scores, which), [low, high], nbins, tf.int32)
            updates.append(variable.assign_add(tf.cast(histogram, tf.float32)))
            counts = tf.identity(variable)
            shares.append(counts / tf.reduce_sum(counts))
        true, false = shares
        # P(score of a true one > score of a false one), where those in one bin count by halves.
        value = tf.reduce_sum(true * (tf.cumsum(false, exclusive=True) + false / 2))
        return value, tf.group(*updates)


def _all_scores(labels: Any, predictions: Any, weights: Any) -> tuple[Any, Any, Any, Any]:
    """Keeps labels, scores and weights of all batches; returns them, float64 [n], and the update."""
    predictions, labels = tf.convert_to_tensor(predictions), tf.convert_to_tensor(labels)
    predictions.shape.assert_is_compatible_with(labels.shape)
    one = tf.cast(1, labels.dtype)
    # Not by tf.debugging.assert_less_equal, which fails while the graph is built where labels are constant.
    checks = [
        tf.debugging.Assert(tf.reduce_all(labels <= one), ["labels must be 0 or 1, at least one is >1"]),
        tf.debugging.Assert(tf.reduce_all(labels >= one - one), ["labels must be 0 or 1, at least one is <0"]),
    ]
    with tf.control_dependencies(checks):
        checked = flat(labels, tf.float64)
    label, update_labels = streaming_concat(checked, name="concat_labels")
    score, update_scores = streaming_concat(flat(predictions, tf.float64), name="concat_preds")
    updates = [update_labels, update_scores]
    if weights is None:
        weight = tf.ones_like(label)
    else:
        weights = tf.convert_to_tensor(weights)
        weights.shape.assert_is_compatible_with(labels.shape)
        weight, update_weights = streaming_concat(flat(weights, tf.float64), name="concat_weights")
        updates.append(update_weights)
    return label, score, weight, tf.group(*updates)


def _with_zero(values: Any) -> Any:
    return tf.concat([tf.zeros([1], values.dtype), values], 0)


def _mean_and_its_variance(values: Any, weights: Any) -> tuple[Any, Any]:
    total = tf.reduce_sum(weights)
    mean = tf.math.divide_no_nan(tf.reduce_sum(weights * values), total)
    spread = tf.math.divide_no_nan(tf.reduce_sum(weights * (values - mean) ** 2), tf.maximum(total - 1, 0))
    return mean, tf.math.divide_no_nan(spread, total)
