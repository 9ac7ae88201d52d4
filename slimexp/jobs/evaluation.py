"""Evaluation within a job: examples through the network, and what comes of it in numbers, tables and pictures."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from slimexp.config import Config
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.evaluation import (
    Accumulator,
    plot_confusion_matrix,
    plot_learning_curves,
    plot_per_label,
    plot_precision_recall,
    write_csv,
    write_predictions_csv,
)
from slimexp.jobs import build
from slimexp.pipeline import Feed
from slimexp.pipeline.copies.cache import ShrunkCache
from slimexp.tracking import Tracker, read_metrics
from slimexp.tracking.run import METRICS_FILE
from slimexp.training.inference import Inference
from slimexp.training.signals import StopSignals

__all__ = ["Evaluator", "evaluated_split"]

_log = logging.getLogger("slimexp")
# A long evaluation shows how far it is.
_SAY_EVERY_SECS = 30.0
_TABLES = ("per_class.csv", "predictions.csv")


def evaluated_split(config: Config, data: Dataset) -> AnySplit | None:
    """Returns the examples that `evaluation.split` asks for; None if there are none."""
    return data.train if config.evaluation.split.value == "train" else data.eval


class Evaluator:
    """Evaluates a network on one split of a dataset, each example exactly once.

    Args:
        config: Checked.
        data: Where the examples are; if there are none, nothing is evaluated, which is said once.
        inference: The network; its weights are used as they are at the time.
        image_size: In pixels.
        tracker: Gets the metrics, figures and tables.
        signals: A stop is obeyed between two batches.
        cache: Where smaller copies of the photos are kept.

    Attributes:
        last: The last evaluation's results; None before the first.
        metrics: The last evaluation's metrics.
        network_secs, wait_secs, other_secs: What the evaluations so far spent in the network, waiting for batches, and
            on everything else but tables and figures.
    """

    def __init__(
        self,
        config: Config,
        data: Dataset,
        inference: Inference,
        image_size: int,
        tracker: Tracker,
        signals: StopSignals,
        cache: ShrunkCache | None = None,
    ) -> None:
        self._cache = cache
        self._config = config
        self._data = data
        self._split = evaluated_split(config, data)
        self._inference = inference
        self._tracker = tracker
        self._signals = signals
        self._folder = Path(config.run_dir)
        self.last: Accumulator | None = None
        self.metrics: dict[str, float] = {}
        self.network_secs = self.wait_secs = self.other_secs = 0.0
        self._step = 0
        self._settings = build.pipeline_settings(config, batch_size=config.evaluation.batch_size)
        self._preprocessing = build.preprocessing(config, size_px=image_size, is_training=False)
        self._skipped = None if self._split is None else build.skipped_images(config, self._split)
        if self._split is not None:  # Now, not after hours of training.
            self._settings.check(len(self._split), inference.strategy.num_replicas_in_sync, is_training=False)
        else:
            _log.warning(
                "dataset %s has no held-out examples (dataset.eval_list or eval_dir): nothing will be evaluated.",
                data.name,
            )

    def evaluate(self, step: int) -> dict[str, float]:
        """Evaluates now and records the result under `step`.

        Returns:
            The metrics; none without examples.
        """
        split, config = self._split, self._config
        if split is None:
            return {}
        started = time.perf_counter()
        wait_secs, network_secs = self.wait_secs, self.network_secs
        accumulator = Accumulator(
            self._data.task, self._data.class_names, config.evaluation.top_k, config.evaluation.threshold
        )
        feed = Feed(
            split,
            preprocessing=self._preprocessing,
            settings=self._settings,
            seed=config.seed,
            is_training=False,
            strategy=self._inference.strategy,
            check_stop=self._signals.check,
            skipped=self._skipped,
            **build.file_access(self._cache),
        )
        with feed:
            said = started
            for batch in feed:
                self.wait_secs += feed.last_wait_secs
                began = time.perf_counter()
                values = self._inference.step(batch)
                now = time.perf_counter()
                self.network_secs += now - began
                accumulator.update(values["logits"], values["label"], values["valid"], values["index"])
                self._signals.check()
                if now - said >= _SAY_EVERY_SECS:
                    said = now
                    _log.info("Evaluated %d of %d so far.", accumulator.num_examples, len(split))
        self.last, self._step, self.metrics = accumulator, step, accumulator.summarize()
        if not self.is_recorded(step):
            self._tracker.log_metrics(step, self.metrics)
        spent = self.wait_secs - wait_secs + self.network_secs - network_secs
        self.other_secs += time.perf_counter() - started - spent
        return self.metrics

    def is_recorded(self, step: int) -> bool:
        """Tells whether the run has this step's evaluation already."""
        rows = read_metrics(self._folder / METRICS_FILE)
        return any(row.step == step and "eval/loss" in row.metrics for row in rows)

    def summary(self) -> str:
        """Returns the last evaluation in words."""
        if self.last is None or self._split is None:
            return "Not evaluated: there are no held-out examples."
        shown = {key: value for key, value in self.metrics.items() if key != "eval/examples"}
        numbers = "  ".join(
            f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items()
        )
        evaluated = f"Evaluated {self.last.num_examples} of {len(self._split)}"
        if self._split is self._data.train:
            evaluated += " training examples"
        if self._skipped:
            evaluated += f" ({len(self._skipped)} skipped)"
        return f"{evaluated} at step {self._step}: {numbers}"

    def write_report(self) -> None:
        """Draws the figures and writes the tables of the last evaluation, and hands them to the tracker."""
        figures = self._folder / "figures"
        rows = read_metrics(self._folder / METRICS_FILE)
        if len(rows) > 1:
            plot_learning_curves(rows, figures / "learning_curves.png")
        if self.last is not None and self._split is not None:
            table = self.last.per_class()
            if self._data.task == "single":
                matrix = self.last.confusion_matrix()
                plot_confusion_matrix(matrix, self._data.class_names, figures / "confusion_matrix.png")
            else:
                plot_per_label(table, figures / "per_label.png")
                plot_precision_recall(self.last.precision_recall(), table, figures / "precision_recall.png")
            write_csv(self._folder / _TABLES[0], table)
            write_predictions_csv(self._folder / _TABLES[1], self.last.predictions(), self._split.path)
            for name in _TABLES:
                self._tracker.log_artifact(self._folder / name)
        for figure in sorted(figures.glob("*.png")):
            self._tracker.log_artifact(figure, "figures")
