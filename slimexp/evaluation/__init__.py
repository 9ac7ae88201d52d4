"""How good a model is: metrics over a data set, per-class tables and figures."""

from __future__ import annotations

from slimexp.evaluation.figures import plot_confusion_matrix, plot_learning_curves, plot_per_label
from slimexp.evaluation.metrics import Accumulator
from slimexp.evaluation.tables import write_confusion_csv, write_csv, write_predictions_csv

__all__ = [
    "Accumulator",
    "plot_confusion_matrix",
    "plot_learning_curves",
    "plot_per_label",
    "write_confusion_csv",
    "write_csv",
    "write_predictions_csv",
]
