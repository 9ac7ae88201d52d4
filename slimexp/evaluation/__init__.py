"""How good a model is: metrics over a data set, per-class tables and figures."""

from __future__ import annotations

from slimexp.evaluation.figures import plot_confusion_matrix, plot_learning_curves, plot_per_label
from slimexp.evaluation.metrics import Accumulator
from slimexp.evaluation.names import direction_of, metric_names
from slimexp.evaluation.precision_recall import plot_precision_recall
from slimexp.evaluation.tables import write_confusion_csv, write_csv, write_predictions_csv

__all__ = [
    "Accumulator",
    "direction_of",
    "metric_names",
    "plot_confusion_matrix",
    "plot_learning_curves",
    "plot_per_label",
    "plot_precision_recall",
    "write_confusion_csv",
    "write_csv",
    "write_predictions_csv",
]
