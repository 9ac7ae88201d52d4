"""Metrics over a whole evaluation set, fed batch by batch.

Every example counts exactly once, whatever the batch size: rows that only fill up the last batch are marked as not
valid, and the sums are made over all examples in the order of their index, so the same set gives the same numbers.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_recall_curve,
    precision_recall_fscore_support,
)

from slimexp.errors import UserError

__all__ = ["Accumulator"]

TASKS = ("single", "multi")


class Accumulator:
    """Collects logits and labels, and summarizes them.

    For `single`, what is kept of an example is its loss, its label and its best classes; for `multi`, its logits and
    labels (5 bytes an entry), as average precision needs them all.
    """

    def __init__(self, task: str, class_names: Sequence[str], top_k: int = 5, threshold: float = 0.5) -> None:
        """Starts empty.

        Args:
            task: `single` (softmax over the classes) or `multi` (a sigmoid for each label).
            class_names: The C names.
            top_k: For `single`, how many of the best classes may hold the right one in `eval/top{k}`; also how many
                `predictions` returns.
            threshold: For `multi`, the probability in (0, 1) from which on a label counts as predicted.

        Raises:
            UserError: If `top_k` is below 1 or `threshold` out of its range.
        """
        assert task in TASKS, task
        if top_k < 1:
            raise UserError(f"evaluation.top_k={top_k} has to be at least 1.")
        if not 0 < threshold < 1:
            raise UserError(f"evaluation.threshold={threshold} has to lie between 0 and 1.")
        self.task = task
        self.class_names = tuple(class_names)
        self.top_k = top_k
        self.threshold = threshold
        self._least_logit = math.log(threshold / (1 - threshold))
        self._indices: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._logits: list[np.ndarray] = []  # multi
        self._losses: list[np.ndarray] = []  # single
        self._best: list[np.ndarray] = []  # single: classes, best first
        self._scores: list[np.ndarray] = []  # single: their probabilities
        self._nonfinite = 0
        self._table: list[dict[str, Any]] | None = None

    @property
    def num_examples(self) -> int:
        """How many examples have been counted so far."""
        return sum(map(len, self._indices))

    def update(self, logits: np.ndarray, labels: np.ndarray, valid: np.ndarray, indices: np.ndarray) -> None:
        """Adds a batch.

        Args:
            logits: float32 [B, C].
            labels: `single`: integers [B] in 0..C-1. `multi`: int8 [B, C], 1 = positive, -1 = negative, 0 = don't care.
            valid: bool [B]; False for rows that only fill up the batch.
            indices: Integers [B], each example's place in the data set.
        """
        self._table = None
        keep = np.asarray(valid, dtype=bool)
        logits = np.asarray(logits, dtype=np.float32)[keep]
        labels = np.asarray(labels)[keep]
        num_classes = len(self.class_names)
        assert logits.ndim == 2, logits.shape
        assert logits.shape[1] == num_classes, (logits.shape, num_classes)
        self._indices.append(np.asarray(indices, dtype=np.int64)[keep])
        self._nonfinite += int(np.count_nonzero(~np.isfinite(logits).all(axis=1)))
        if self.task == "multi":
            assert labels.shape == logits.shape, (labels.shape, logits.shape)
            self._labels.append(labels.astype(np.int8))
            self._logits.append(logits)
            return
        assert labels.shape == logits.shape[:1], (labels.shape, logits.shape)
        assert ((labels >= 0) & (labels < num_classes)).all(), labels
        rows = np.arange(len(labels))
        wide = logits.astype(np.float64)
        # inf - inf is NaN, which is what the loss of such an example is.
        with np.errstate(invalid="ignore"):
            log_normalizer = _log_sum_exp(wide)
            self._losses.append(log_normalizer - wide[rows, labels])
            # Ties go to the lower class, as in argmax; a logit that is NaN ranks last.
            ranked = np.argsort(np.where(np.isnan(wide), np.inf, -wide), axis=1, kind="stable")
            best = ranked[:, : max(1, min(self.top_k, num_classes))]
            self._scores.append(np.exp(np.take_along_axis(wide, best, axis=1) - log_normalizer[:, None]))
        self._labels.append(labels.astype(np.int64))
        self._best.append(best.astype(np.int64))

    def summarize(self) -> dict[str, float]:
        """Computes the metrics.

        Returns:
            `eval/examples` (exact) and `eval/loss`. For `single` the loss is the mean cross-entropy; and `eval/top1`,
            `eval/top{k}` if k is below the number of classes, `eval/balanced_accuracy` (mean recall of the classes
            that occur). For `multi` the loss is the mean sigmoid cross-entropy over the counted entries, and
            `eval/mean_average_precision` over the labels with a positive (absent if there is none),
            `eval/labels_without_positives`, `eval/counted_entries`, and `eval/precision`, `eval/recall`, `eval/f1` of
            all counted entries taken together at `threshold`. `eval/nonfinite_examples` only if a logit was
            NaN or infinite.

        Raises:
            UserError: If there is nothing to evaluate.
        """
        if not self.num_examples:
            raise UserError(
                "The evaluation set holds no example; look at dataset.eval_list, or dataset.eval_dir for folders."
            )
        order = self._order()
        result: dict[str, float] = {"eval/examples": len(order)}
        if self.task == "single":
            result.update(self._summarize_single(order))
        else:
            result.update(self._summarize_multi(order))
        if self._nonfinite:
            result["eval/nonfinite_examples"] = self._nonfinite
        return result

    def confusion_matrix(self) -> np.ndarray:
        """Counts the examples by class and predicted class, for `single`.

        Returns:
            int64 [C, C]; row = class, column = prediction. The sum is the number of examples.
        """
        assert self.task == "single"
        labels, best = self._concatenated(self._labels), self._concatenated(self._best)
        every_class = np.arange(len(self.class_names))
        if not len(labels):
            return np.zeros((len(every_class),) * 2, dtype=np.int64)
        with _many_classes():
            return confusion_matrix(labels, best[:, 0], labels=every_class).astype(np.int64)

    def per_class(self) -> list[dict[str, Any]]:
        """Returns a table with a row for each class.

        Returns:
            For `single`: `class`, `precision`, `recall`, `f1`, `support` (examples) and `predicted`. For `multi`:
            `class`, `average_precision` (None without positives), `precision`, `recall`, `f1` at `threshold`,
            `counted` (entries), of them `positives` and `negatives`, and `dont_care`. A ratio whose denominator is 0
            is 0.
        """
        if self._table is None:
            self._table = self._per_class_single() if self.task == "single" else self._per_class_multi()
        return [dict(row) for row in self._table]

    def precision_recall(self) -> list[tuple[np.ndarray, np.ndarray] | None]:
        """Returns the curve of each label, for `multi`.

        Returns:
            Per label recall and precision, float64 [n] each, by rising recall; None for a label without positives.
        """
        assert self.task == "multi"
        curves: list[tuple[np.ndarray, np.ndarray] | None] = []
        for truth, logit in self._counted():
            if truth.any():
                precision, recall, _ = precision_recall_curve(truth, logit, drop_intermediate=True)
                curves.append((recall[::-1], precision[::-1]))
            else:
                curves.append(None)
        return curves

    def predictions(self) -> list[dict[str, Any]]:
        """Returns a row for each example, by index.

        Returns:
            `index`, `truth` (a class name; for `multi` the positive labels, a tuple), `dont_care` (for `multi`, the
            labels that are neither, a tuple), and `best`: up to `top_k` pairs of class name and probability.
        """
        order, names = self._order(), self.class_names
        if not len(order):
            return []
        indices, labels = self._concatenated(self._indices)[order], self._concatenated(self._labels)[order]
        if self.task == "single":
            best, scores = self._concatenated(self._best)[order], self._concatenated(self._scores)[order]
        else:
            logits = self._concatenated(self._logits)[order]
            best = np.argsort(np.where(np.isnan(logits), np.inf, -logits), axis=1, kind="stable")[:, : self.top_k]
            scores = (1 + np.tanh(np.take_along_axis(logits, best, axis=1).astype(np.float64) / 2)) / 2
        rows = []
        for position, index in enumerate(indices):
            pairs = [(names[c], float(p)) for c, p in zip(best[position], scores[position], strict=True)]
            row: dict[str, Any] = {"index": int(index), "best": pairs}
            if self.task == "single":
                row["truth"] = names[labels[position]]
            else:
                row["truth"] = tuple(names[c] for c in np.flatnonzero(labels[position] > 0))
                row["dont_care"] = tuple(names[c] for c in np.flatnonzero(labels[position] == 0))
            rows.append(row)
        return rows

    def _order(self) -> np.ndarray:
        indices = self._concatenated(self._indices)
        order = np.argsort(indices, kind="stable")
        assert (np.diff(indices[order]) > 0).all(), "An example was counted twice."
        return order

    def _concatenated(self, parts: list[np.ndarray]) -> np.ndarray:
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, dtype=np.int64)

    def _summarize_single(self, order: np.ndarray) -> dict[str, float]:
        labels, best = self._concatenated(self._labels)[order], self._concatenated(self._best)[order]
        result = {
            "eval/loss": float(np.mean(self._concatenated(self._losses)[order])),
            "eval/top1": float(np.mean(best[:, 0] == labels)),
        }
        if 1 < self.top_k < len(self.class_names):
            result[f"eval/top{self.top_k}"] = float(np.mean((best == labels[:, None]).any(axis=1)))
        recalls = [row["recall"] for row in self.per_class() if row["support"]]
        result["eval/balanced_accuracy"] = float(np.mean(recalls))
        return result

    def _summarize_multi(self, order: np.ndarray) -> dict[str, float]:
        labels = self._concatenated(self._labels)[order]
        logits = self._concatenated(self._logits)[order].astype(np.float64)
        counted = labels != 0
        if not counted.any():
            raise UserError(
                f"All labels of the {len(labels)} evaluated examples are 'don't care' (0), so there is nothing to "
                f"measure; look at dataset.eval_list."
            )
        target, logit = (labels[counted] > 0).astype(np.float64), logits[counted]
        # The stable form of -z log p - (1 - z) log(1 - p). Infinite logits make it NaN.
        with np.errstate(invalid="ignore"):
            losses = np.maximum(logit, 0) - logit * target + np.log1p(np.exp(-np.abs(logit)))
        precision, recall, f1 = _binary_scores(target > 0, logit >= self._least_logit)
        averages = [row["average_precision"] for row in self.per_class()]
        known = [value for value in averages if value is not None]
        result = {"eval/loss": float(np.mean(losses))}
        if known:
            result["eval/mean_average_precision"] = float(np.mean(known))
        return {
            **result,
            "eval/precision": precision,
            "eval/recall": recall,
            "eval/f1": f1,
            "eval/counted_entries": int(counted.sum()),
            "eval/labels_without_positives": len(averages) - len(known),
        }

    def _per_class_single(self) -> list[dict[str, Any]]:
        labels, best = self._concatenated(self._labels), self._concatenated(self._best)
        every_class = np.arange(len(self.class_names))
        counts: np.ndarray
        if not len(labels):  # scikit-learn refuses that.
            precision = recall = f1 = np.zeros(len(every_class))
            support = np.zeros(len(every_class), dtype=np.int64)
            counts = support
        else:
            with _many_classes():
                precision, recall, f1, support = precision_recall_fscore_support(
                    labels, best[:, 0], labels=every_class, average=None, zero_division=0.0
                )
            counts = np.bincount(best[:, 0], minlength=len(every_class))
        return [
            {
                "class": name,
                "precision": float(precision[c]),
                "recall": float(recall[c]),
                "f1": float(f1[c]),
                "support": int(support[c]),
                "predicted": int(counts[c]),
            }
            for c, name in enumerate(self.class_names)
        ]

    def _counted(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields truth and logit of the entries that count, label by label."""
        shape = (-1, len(self.class_names))
        labels = self._concatenated(self._labels).reshape(shape)
        # scikit-learn refuses what is not finite: NaN ranks last, the infinities at the ends.
        logits: np.ndarray = self._concatenated(self._logits).reshape(shape)
        logits = np.nan_to_num(logits, nan=float(np.finfo(np.float32).min))
        for c in range(len(self.class_names)):
            counted = labels[:, c] != 0
            yield labels[counted, c] > 0, logits[counted, c]

    def _per_class_multi(self) -> list[dict[str, Any]]:
        shape = (-1, len(self.class_names))
        labels = self._concatenated(self._labels).reshape(shape)
        predicted = self._concatenated(self._logits).reshape(shape) >= self._least_logit
        # Counted here: scikit-learn takes 4 ms a label for it, and an evaluation may have a thousand.
        hits = (predicted & (labels > 0)).sum(axis=0)
        precisions = hits / np.maximum((predicted & (labels != 0)).sum(axis=0), 1)
        recalls = hits / np.maximum((labels > 0).sum(axis=0), 1)
        rows = []
        for c, (name, (truth, logit)) in enumerate(zip(self.class_names, self._counted(), strict=True)):
            precision, recall = float(precisions[c]), float(recalls[c])
            rows.append(
                {
                    "class": name,
                    "average_precision": float(average_precision_score(truth, logit)) if truth.any() else None,
                    "precision": precision,
                    "recall": recall,
                    "f1": 2 * precision * recall / (precision + recall) if hits[c] else 0.0,
                    "counted": len(truth),
                    "positives": int(truth.sum()),
                    "negatives": int((~truth).sum()),
                    "dont_care": self.num_examples - len(truth),
                }
            )
        return rows


@contextlib.contextmanager
def _many_classes() -> Iterator[None]:
    """Silences scikit-learn's guesses about the number of classes.

    Up to version 1.7 it wonders at the labels of a small evaluation set of many classes whether they are a regression
    target. They are class numbers. And where all examples are of one class it asks for `labels`, which it has.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        warnings.filterwarnings("ignore", "A single label was found", UserWarning)
        yield


def _log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """Returns log(sum(exp(logits))) of each row; shifted by the largest, so that nothing overflows."""
    largest = logits.max(axis=1, initial=-np.inf)
    return largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))


def _binary_scores(truth: np.ndarray, predicted: np.ndarray) -> tuple[float, float, float]:
    """Returns precision, recall and F1 of the positives; 0 where a denominator is."""
    if not len(truth):
        return 0.0, 0.0, 0.0
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, predicted, labels=[True], average=None, zero_division=0.0
    )
    return float(precision[0]), float(recall[0]), float(f1[0])
