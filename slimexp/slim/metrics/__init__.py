"""Metrics over all batches of an evaluation, under TF-Slim's names (graph mode).

Most return a pair: the value so far, and the operation that takes a batch into account. See `slim.evaluation`.

They keep their counts in local variables of a graph, so they work in graphs only, not inside `tf.function`s.
"""

from __future__ import annotations

from slimexp.slim.metrics.aggregate import (
    aggregate_metric_map,
    aggregate_metrics,
)
from slimexp.slim.metrics.agreement import (
    accuracy,
    cohen_kappa,
    streaming_covariance,
    streaming_pearson_correlation,
)
from slimexp.slim.metrics.concat import (
    count,
    streaming_concat,
)
from slimexp.slim.metrics.curves import (
    AucWithConfidenceIntervals,
    PrecisionRecall,
    auc_using_histogram,
    auc_with_confidence_intervals,
    precision_recall_at_equal_thresholds,
    streaming_dynamic_auc,
)
from slimexp.slim.metrics.operating_points import (
    f1_score,
    precision_at_recall,
    recall_at_precision,
    streaming_auc,
    streaming_curve_points,
    streaming_sensitivity_at_specificity,
    streaming_specificity_at_sensitivity,
)
from slimexp.slim.metrics.ranking import (
    sparse_recall_at_top_k,
    streaming_recall_at_k,
    streaming_sparse_average_precision_at_k,
    streaming_sparse_average_precision_at_top_k,
    streaming_sparse_precision_at_k,
    streaming_sparse_precision_at_top_k,
    streaming_sparse_recall_at_k,
)
from slimexp.slim.metrics.streaming import (
    streaming_accuracy,
    streaming_false_negatives,
    streaming_false_positives,
    streaming_mean,
    streaming_mean_absolute_error,
    streaming_mean_cosine_distance,
    streaming_mean_iou,
    streaming_mean_relative_error,
    streaming_mean_squared_error,
    streaming_mean_tensor,
    streaming_percentage_less,
    streaming_precision,
    streaming_recall,
    streaming_root_mean_squared_error,
    streaming_true_negatives,
    streaming_true_positives,
)
from slimexp.slim.metrics.thresholds import (
    streaming_false_negative_rate,
    streaming_false_negative_rate_at_thresholds,
    streaming_false_negatives_at_thresholds,
    streaming_false_positive_rate,
    streaming_false_positive_rate_at_thresholds,
    streaming_false_positives_at_thresholds,
    streaming_precision_at_thresholds,
    streaming_recall_at_thresholds,
    streaming_true_negatives_at_thresholds,
    streaming_true_positives_at_thresholds,
)

__all__ = [
    "AucWithConfidenceIntervals",
    "PrecisionRecall",
    "accuracy",
    "aggregate_metric_map",
    "aggregate_metrics",
    "auc_using_histogram",
    "auc_with_confidence_intervals",
    "cohen_kappa",
    "count",
    "f1_score",
    "precision_at_recall",
    "precision_recall_at_equal_thresholds",
    "recall_at_precision",
    "sparse_recall_at_top_k",
    "streaming_accuracy",
    "streaming_auc",
    "streaming_concat",
    "streaming_covariance",
    "streaming_curve_points",
    "streaming_dynamic_auc",
    "streaming_false_negative_rate",
    "streaming_false_negative_rate_at_thresholds",
    "streaming_false_negatives",
    "streaming_false_negatives_at_thresholds",
    "streaming_false_positive_rate",
    "streaming_false_positive_rate_at_thresholds",
    "streaming_false_positives",
    "streaming_false_positives_at_thresholds",
    "streaming_mean",
    "streaming_mean_absolute_error",
    "streaming_mean_cosine_distance",
    "streaming_mean_iou",
    "streaming_mean_relative_error",
    "streaming_mean_squared_error",
    "streaming_mean_tensor",
    "streaming_pearson_correlation",
    "streaming_percentage_less",
    "streaming_precision",
    "streaming_precision_at_thresholds",
    "streaming_recall",
    "streaming_recall_at_k",
    "streaming_recall_at_thresholds",
    "streaming_root_mean_squared_error",
    "streaming_sensitivity_at_specificity",
    "streaming_sparse_average_precision_at_k",
    "streaming_sparse_average_precision_at_top_k",
    "streaming_sparse_precision_at_k",
    "streaming_sparse_precision_at_top_k",
    "streaming_sparse_recall_at_k",
    "streaming_specificity_at_sensitivity",
    "streaming_true_negatives",
    "streaming_true_negatives_at_thresholds",
    "streaming_true_positives",
    "streaming_true_positives_at_thresholds",
]
