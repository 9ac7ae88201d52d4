"""What a run leaves behind: metrics.jsonl, the MLflow store, where its code came from, and the progress shown."""

from __future__ import annotations

from slimexp.tracking.metrics_file import MetricsRow, columns, read_metrics, truncate_after
from slimexp.tracking.progress import Progress
from slimexp.tracking.tracker import PARENT_RUN_TAG, Tracker

__all__ = ["PARENT_RUN_TAG", "MetricsRow", "Progress", "Tracker", "columns", "read_metrics", "truncate_after"]
