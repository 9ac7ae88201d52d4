"""Metrics over two batches, each against what NumPy or scikit-learn says of both together."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
metrics = slim.metrics

RNG = np.random.RandomState(0)
LABELS = RNG.randint(0, 2, [2, 20]).astype(np.float32)
SCORES = np.clip(LABELS * 0.3 + RNG.uniform(0, 0.7, [2, 20]), 0, 1).astype(np.float32)
# Scores that tie, in steps of 0.1.
ROUNDED = np.round(SCORES, 1)
PREDICTED = (SCORES > 0.5).astype(np.float32)
WEIGHTS = RNG.randint(0, 4, [2, 20]).astype(np.float32)


def run(metric, *arrays, update_is_value=True, **kwargs):
    """Feeds each argument's two batches; returns the value in the end. Arguments by name that are pairs are fed too."""
    with tf.Graph().as_default(), v1.Session() as session:
        names = [name for name, value in kwargs.items() if isinstance(value, np.ndarray)]
        batches = [*arrays, *(kwargs[name] for name in names)]
        places = [v1.placeholder(array.dtype, array.shape[1:]) for array in batches]
        kwargs.update(zip(names, places[len(arrays) :], strict=True))
        value, update = metric(*places[: len(arrays)], **kwargs)
        session.run(v1.local_variables_initializer())
        for i in range(2):
            updated = session.run(update, {place: array[i] for place, array in zip(places, batches, strict=True)})
        result = session.run(value)
        if update_is_value:
            np.testing.assert_allclose(updated, result, rtol=1e-6)
        assert session.run(v1.get_collection(v1.GraphKeys.METRIC_VARIABLES))
        return result


def close(value, expected, rtol=1e-5, atol=0.0):
    np.testing.assert_allclose(value, expected, rtol=rtol, atol=atol)


def test_means_and_errors():
    difference = SCORES - LABELS
    close(run(metrics.streaming_mean, SCORES), SCORES.mean())
    close(run(metrics.streaming_mean, SCORES, WEIGHTS), np.average(SCORES, weights=WEIGHTS))
    close(run(metrics.streaming_mean_tensor, SCORES), SCORES.mean(0))
    close(run(metrics.streaming_percentage_less, SCORES, threshold=0.5), (SCORES < 0.5).mean())
    close(run(metrics.streaming_mean_absolute_error, SCORES, LABELS), np.abs(difference).mean())
    close(run(metrics.streaming_mean_squared_error, SCORES, LABELS), (difference**2).mean())
    close(run(metrics.streaming_root_mean_squared_error, SCORES, LABELS), np.sqrt((difference**2).mean()))
    relative = np.abs(difference) / (1 + SCORES)
    close(run(metrics.streaming_mean_relative_error, SCORES, LABELS, 1 + SCORES), relative.mean())
    unit = np.array([[[0.6, 0.8]], [[1.0, 0.0]]], np.float32)
    close(run(metrics.streaming_mean_cosine_distance, unit, unit[::-1], dim=1), 0.4)


def test_counts_and_rates_of_predictions():
    tn, fp, fn, tp = sklearn.metrics.confusion_matrix(LABELS.ravel(), PREDICTED.ravel()).ravel()
    for name, expected in {
        "true_positives": tp,
        "true_negatives": tn,
        "false_positives": fp,
        "false_negatives": fn,
        "accuracy": (tp + tn) / 40,
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
        "false_positive_rate": fp / (fp + tn),
        "false_negative_rate": fn / (fn + tp),
        "mean_iou": (tp / (tp + fp + fn) + tn / (tn + fp + fn)) / 2,
    }.items():
        kwargs = {"num_classes": 2, "update_is_value": False} if name == "mean_iou" else {}
        close(run(getattr(metrics, f"streaming_{name}"), PREDICTED, LABELS, **kwargs), expected)
    assert run(metrics.streaming_false_positive_rate, PREDICTED, np.ones_like(LABELS)) == 0
    close(run(metrics.count, SCORES), 40)
    close(run(metrics.count, SCORES, WEIGHTS), WEIGHTS.sum())


def test_counts_and_rates_at_thresholds():
    thresholds = [0.3, 0.6]
    for i, threshold in enumerate(thresholds):
        above = threshold < SCORES
        positive = LABELS > 0
        tp, fp = (WEIGHTS * (above & positive)).sum(), (WEIGHTS * (above & ~positive)).sum()
        fn, tn = (WEIGHTS * (~above & positive)).sum(), (WEIGHTS * (~above & ~positive)).sum()
        for name, expected in {
            "true_positives": tp,
            "true_negatives": tn,
            "false_positives": fp,
            "false_negatives": fn,
            "precision": tp / (tp + fp),
            "recall": tp / (tp + fn),
            "false_positive_rate": fp / (fp + tn),
            "false_negative_rate": fn / (fn + tp),
        }.items():
            metric = getattr(metrics, f"streaming_{name}_at_thresholds")
            value = run(metric, SCORES, LABELS, thresholds=thresholds, weights=WEIGHTS)
            close(value[i], expected)


def test_areas_under_curves():
    labels, scores, rounded = LABELS.ravel(), SCORES.ravel(), ROUNDED.ravel()
    exact = sklearn.metrics.roc_auc_score(labels, scores)
    close(run(metrics.streaming_auc, SCORES, LABELS), exact, atol=0.02)
    close(run(metrics.streaming_dynamic_auc, LABELS, SCORES, update_is_value=False), exact)
    weighted = sklearn.metrics.roc_auc_score(labels, rounded, sample_weight=WEIGHTS.ravel())
    close(run(metrics.streaming_dynamic_auc, LABELS, ROUNDED, weights=WEIGHTS, update_is_value=False), weighted)
    precision, recall, _ = sklearn.metrics.precision_recall_curve(labels, rounded)
    area = sklearn.metrics.auc(recall, precision)
    close(run(metrics.streaming_dynamic_auc, LABELS, ROUNDED, curve="PR", update_is_value=False), area)
    by_histogram = run(
        metrics.auc_using_histogram, LABELS > 0, SCORES, score_range=[0, 1], nbins=1000, update_is_value=False
    )
    close(by_histogram, exact, atol=0.01)
    points = run(metrics.streaming_curve_points, LABELS, SCORES, num_thresholds=3)
    close(points[1], [(SCORES > 0.5)[LABELS == 0].mean(), (SCORES > 0.5)[LABELS == 1].mean()])
    close(points[[0, 2]], [[1, 1], [0, 0]], atol=1e-6)


def test_the_confidence_interval_of_an_area():
    value = run(metrics.auc_with_confidence_intervals, LABELS, ROUNDED, alpha=0.9, update_is_value=False)
    assert value.auc == pytest.approx(sklearn.metrics.roc_auc_score(LABELS.ravel(), ROUNDED.ravel()))
    assert 0.5 < value.lower < value.auc < value.upper < 1
    straight = run(
        metrics.auc_with_confidence_intervals, LABELS, ROUNDED, logit_transformation=False, update_is_value=False
    )
    # DeLong by hand: the placements of each class in the other.
    labels, scores = LABELS.ravel(), ROUNDED.ravel()
    above = (scores[labels == 1][:, None] > scores[labels == 0]) + 0.5 * (
        scores[labels == 1][:, None] == scores[labels == 0]
    )
    variance = above.mean(1).var(ddof=1) / above.shape[0] + above.mean(0).var(ddof=1) / above.shape[1]
    close(straight.upper - straight.lower, 2 * 1.959964 * np.sqrt(variance))


def test_points_on_curves():
    labels = np.array([[0, 0, 1], [1, 0, 1]], np.float32)
    scores = np.array([[0.1, 0.6, 0.5], [0.9, 0.3, 0.7]], np.float32)
    # Above 0.65 are two true ones of three; above 0.4 three of four are true.
    assert run(metrics.recall_at_precision, labels, scores, precision=1.0) == pytest.approx(2 / 3)
    assert run(metrics.recall_at_precision, labels, scores, precision=0.74) == 1
    assert run(metrics.recall_at_precision, labels, 1 - scores, precision=0.9, strict_mode=True) == 0
    assert run(metrics.precision_at_recall, labels, scores, target_recall=0.9) == 0.75
    assert run(metrics.precision_at_recall, labels, scores, target_recall=0.5) == 1
    assert run(metrics.precision_at_recall, 0 * labels, scores, target_recall=0.5) == 0
    assert run(metrics.f1_score, labels, scores) == pytest.approx(2 * 0.75 / 1.75)
    assert run(metrics.streaming_sensitivity_at_specificity, scores, labels, specificity=1.0) == pytest.approx(2 / 3)
    assert run(metrics.streaming_specificity_at_sensitivity, scores, labels, sensitivity=1.0) == pytest.approx(2 / 3)


def test_precision_and_recall_at_equal_thresholds():
    value = run(
        metrics.precision_recall_at_equal_thresholds,
        LABELS > 0,
        SCORES,
        weights=WEIGHTS,
        num_thresholds=5,
        update_is_value=False,
    )
    close(value.thresholds, [0, 0.25, 0.5, 0.75, 1])
    above = SCORES[..., None] >= value.thresholds
    positive, weight = (LABELS > 0)[..., None], WEIGHTS[..., None]
    close(value.tp, (weight * (above & positive)).sum((0, 1)))
    close(value.fn, (weight * (~above & positive)).sum((0, 1)))
    close(value.fp, (weight * (above & ~positive)).sum((0, 1)))
    close(value.tn, (weight * (~above & ~positive)).sum((0, 1)))
    close(value.precision, np.divide(value.tp, value.tp + value.fp, where=value.tp + value.fp > 0, out=0 * value.tp))
    close(value.recall, value.tp / value.tp[0])


def test_agreement():
    pair = np.cov(SCORES.ravel() + 1000, LABELS.ravel())
    close(run(metrics.streaming_covariance, SCORES + 1000, LABELS), pair[0, 1], rtol=1e-3)
    correlation = np.corrcoef(SCORES.ravel(), LABELS.ravel())[0, 1]
    close(run(metrics.streaming_pearson_correlation, SCORES, LABELS), correlation)
    weighted = np.cov(SCORES.ravel(), LABELS.ravel(), fweights=WEIGHTS.ravel().astype(int))[0, 1]
    close(run(metrics.streaming_covariance, SCORES, LABELS, weights=WEIGHTS), weighted)
    assert np.isnan(run(metrics.streaming_covariance, SCORES[:, :1], LABELS[:, :1], weights=0 * WEIGHTS[:, :1]))
    classes, predicted = RNG.randint(0, 3, [2, 2, 20])
    kappa = sklearn.metrics.cohen_kappa_score(classes.ravel(), predicted.ravel())
    close(run(metrics.cohen_kappa, classes, predicted, num_classes=3), kappa)
    with tf.Graph().as_default(), v1.Session() as session:
        close(session.run(metrics.accuracy(classes, predicted)), (classes == predicted).mean())
        assert session.run(metrics.accuracy([1, 2], [1, 3], weights=[3.0, 1.0])) == 0.75


def test_classes_with_the_highest_scores():
    scores = np.array([[[0.1, 0.2, 0.7], [0.5, 0.4, 0.1]], [[0.3, 0.6, 0.1], [0.2, 0.3, 0.5]]], np.float32)
    classes = np.array([[2, 2], [0, 2]])
    close(run(metrics.streaming_recall_at_k, scores, classes, k=1), 0.5)
    close(run(metrics.streaming_recall_at_k, scores, classes, k=2), 0.75)
    labels = classes[..., None].astype(np.int64)
    top = np.argsort(-scores, -1)[..., :2].astype(np.int64)
    close(run(metrics.streaming_sparse_recall_at_k, scores, labels, k=2), 0.75)
    close(run(metrics.streaming_sparse_precision_at_k, scores, labels, k=2), 3 / 8)
    close(run(metrics.streaming_sparse_precision_at_top_k, top, labels), 3 / 8)
    close(run(metrics.streaming_sparse_precision_at_top_k, top, labels, class_id=0), 1 / 2)
    close(run(metrics.sparse_recall_at_top_k, labels, top), 0.75)
    # The label's place is 1, none, 2 and 1.
    for metric, arguments in (
        (metrics.streaming_sparse_average_precision_at_k, (scores, labels)),
        (metrics.streaming_sparse_average_precision_at_top_k, (top, labels)),
    ):
        kwargs = {"k": 2} if arguments[0] is scores else {}
        close(run(metric, *arguments, **kwargs), (1 + 0 + 0.5 + 1) / 4)
        weights = np.array([[1, 0], [2, 1]], np.float32)
        close(run(metric, *arguments, weights=weights, **kwargs), (1 + 2 * 0.5 + 1) / 4)


def test_average_precision_of_sparse_labels():
    with tf.Graph().as_default(), v1.Session() as session:
        # Example 0 has labels 1 and 3, example 1 has 0.
        labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 3, 0], tf.int64), [2, 2])
        value, update = metrics.streaming_sparse_average_precision_at_top_k([[3, 2, 1], [1, 2, 3]], labels)
        session.run(v1.local_variables_initializer())
        close(session.run(update), (1 + 2 / 3) / 2 / 2)
        close(session.run(value), (1 + 2 / 3) / 2 / 2)


def test_values_of_all_batches():
    close(run(metrics.streaming_concat, SCORES, update_is_value=False), SCORES.ravel())
    close(run(metrics.streaming_concat, SCORES, max_size=25, update_is_value=False), SCORES.ravel()[:25])
    images = np.arange(12.0).reshape(2, 2, 3)
    close(run(metrics.streaming_concat, images, axis=-1, update_is_value=False), np.concatenate(images, 1))


def test_aggregates():
    pairs = {"a": (1, 2), "b": (3, 4)}
    assert metrics.aggregate_metrics(*pairs.values()) == ([1, 3], [2, 4])
    assert metrics.aggregate_metric_map(pairs) == ({"a": 1, "b": 3}, {"a": 2, "b": 4})


def test_collections_and_scopes():
    with tf.Graph().as_default():
        for name in metrics.__all__:
            metric = getattr(metrics, name)
            parameters = inspect.signature(metric).parameters if callable(metric) else {}
            if "metrics_collections" not in parameters or {"labels", "predictions"} - set(parameters):
                continue
            extra = {"normalizer": tf.ones([4]), "dim": 0, "num_classes": 2, "thresholds": [0.5], "k": 1}
            extra.update({"sensitivity": 0.5, "specificity": 0.5, "precision": 0.5, "target_recall": 0.5})
            shape = [4, 2] if "k" in parameters else [4]
            value, update = metric(
                labels=tf.zeros([4], tf.int64 if {"k", "num_classes"} & set(parameters) else tf.float32),
                predictions=tf.zeros(shape),
                metrics_collections=["values"],
                updates_collections=["updates"],
                name=f"scope_{name}",
                **{key: argument for key, argument in extra.items() if key in parameters},
            )
            assert v1.get_collection_ref("values")[-1] is value, name
            assert v1.get_collection_ref("updates")[-1] is update, name
            assert all(v.op.name.startswith(f"scope_{name}/") for v in slim.get_local_variables()), name
            v1.get_default_graph().clear_collection(v1.GraphKeys.LOCAL_VARIABLES)


def test_what_they_refuse():
    with tf.Graph().as_default(), v1.Session() as session:
        one = tf.ones([3])
        with pytest.raises(ValueError, match="curve must be either ROC or PR, PRC unknown"):
            metrics.streaming_curve_points(one, one, curve="PRC")
        with pytest.raises(ValueError, match="alpha must be between 0 and 1, got 95"):
            metrics.auc_with_confidence_intervals(one, one, alpha=95)
        with pytest.raises(ValueError, match=r"labels must be bool .* got float32 and float32"):
            metrics.precision_recall_at_equal_thresholds(one, one)
        with pytest.raises(ValueError, match="num_thresholds must be 2 or more, got 1"):
            metrics.precision_recall_at_equal_thresholds(one > 0, one, num_thresholds=1)
        with pytest.raises(ValueError, match=r"precision must be in 0\.\.1, got 2"):
            metrics.recall_at_precision(one, one, precision=2)
        with pytest.raises(ValueError, match=r"target_recall must be in 0\.\.1, got -1"):
            metrics.precision_at_recall(one, one, target_recall=-1)
        with pytest.raises(ValueError, match="num_classes must be 2 or more, got 1"):
            metrics.cohen_kappa(one, one, 1)
        with pytest.raises(ValueError, match=r"labels must be of shape \[batch\] or \[batch, 1\], got \(3, 2\)"):
            metrics.cohen_kappa(tf.ones([3, 2]), one, 3)
        with pytest.raises(ValueError, match="predictions are int32, but labels are int64"):
            metrics.accuracy([1], tf.constant([1], tf.int64))
        with pytest.raises(ValueError, match="labels must be integers, booleans or strings, got float32"):
            metrics.accuracy([1], one[:1])
        with pytest.raises(ValueError, match="give at least one pair"):
            metrics.aggregate_metrics()
        with pytest.raises(ValueError, match="the rank of the values must be known"):
            metrics.streaming_concat(v1.placeholder(tf.float32))
        with pytest.raises(ValueError, match=r"axis must be in -1\.\.0 for values of rank 1, got 1"):
            metrics.streaming_concat(one, axis=1)
        with pytest.raises(ValueError, match="all dimensions but 0 must be known"):
            metrics.streaming_concat(v1.placeholder(tf.float32, [2, None]))
        with pytest.raises(ValueError, match="The last dimension of top_k_predictions, k, must be known"):
            metrics.streaming_sparse_average_precision_at_top_k(v1.placeholder(tf.int64, [2, None]), [[1], [2]])
        with pytest.raises(ValueError, match=r"have shapes \(2,\) and \(2, 1\)"):
            metrics.streaming_sparse_average_precision_at_top_k([1, 2], [[1], [2]])
        _, update = metrics.streaming_dynamic_auc([0, 2], [0.1, 0.2])
        session.run(v1.local_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="labels must be 0 or 1, at least one is >1"):
            session.run(update)
        scores = v1.placeholder(tf.float32, [1])
        _, update = metrics.streaming_curve_points([1], scores)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"predictions must be in \[0, 1\]"):
            session.run(update, {scores: [2.0]})
    with pytest.raises(RuntimeError, match="keeps its counts in a graph"):
        metrics.cohen_kappa([0], [0], 2)
