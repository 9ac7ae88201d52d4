"""Evaluation within a job: the held-out examples through the network, and what comes of it in numbers and pictures."""

from __future__ import annotations

import logging
from pathlib import Path

from slimexp.config import Config
from slimexp.dataset.split import Dataset
from slimexp.evaluation import (
    Accumulator,
    plot_confusion_matrix,
    plot_learning_curves,
    plot_per_label,
    write_csv,
    write_predictions_csv,
)
from slimexp.jobs import build
from slimexp.pipeline import Feed
from slimexp.pipeline.copies.cache import ShrunkCache
from slimexp.tracking import Tracker, read_metrics
from slimexp.tracking.tracker import METRICS_FILE
from slimexp.training.signals import StopSignals
from slimexp.training.trainer import Trainer

__all__ = ["Evaluator"]

_log = logging.getLogger("slimexp")


class Evaluator:
    """Evaluates a trainer's network on the dataset's held-out examples, each exactly once.

    Args:
        config: Checked.
        data: Its `eval` split may be missing; then nothing is evaluated, which is said once.
        trainer: Its weights are used as they are at the time.
        image_size: In pixels.
        last_step: The run's last step, whose result the job itself says.
        tracker: Gets the metrics, figures and tables.
        signals: A stop is obeyed between two batches.
        cache: Where smaller copies of the photos are kept.
    """

    def __init__(
        self,
        config: Config,
        data: Dataset,
        trainer: Trainer,
        image_size: int,
        last_step: int,
        tracker: Tracker,
        signals: StopSignals,
        cache: ShrunkCache | None = None,
    ) -> None:
        self._cache = cache
        self._config = config
        self._data = data
        self._trainer = trainer
        self._last_step = last_step
        self._tracker = tracker
        self._signals = signals
        self._folder = Path(config.run_dir)
        self._last: Accumulator | None = None
        self._summary: dict[str, float] = {}
        self._step = 0
        self._settings = build.pipeline_settings(config, batch_size=config.evaluation.batch_size)
        self._preprocessing = build.preprocessing(config, size_px=image_size, is_training=False)
        self._skipped = None if data.eval is None else build.skipped_images(config, data.eval)
        if data.eval is not None:  # Now, not after hours of training.
            self._settings.check(len(data.eval), trainer.strategy.num_replicas_in_sync, is_training=False)
        else:
            _log.warning(
                "dataset %s has no held-out examples (dataset.eval_list or eval_dir): nothing will be evaluated.",
                data.name,
            )

    def evaluate(self, step: int) -> None:
        """Evaluates now and records the result under `step`."""
        split = self._data.eval
        if split is None:
            return
        config = self._config
        accumulator = Accumulator(self._data.task, self._data.class_names, config.evaluation.top_k)
        feed = Feed(
            split,
            preprocessing=self._preprocessing,
            settings=self._settings,
            seed=config.seed,
            is_training=False,
            strategy=self._trainer.strategy,
            check_stop=self._signals.check,
            skipped=self._skipped,
            **build.file_access(self._cache),
        )
        with feed:
            for batch in feed:
                values = self._trainer.evaluation_step(batch)
                accumulator.update(values["logits"], values["label"], values["valid"], values["index"])
                self._signals.check()
        self._last, self._step, self._summary = accumulator, step, accumulator.summarize()
        if not self._recorded(step):
            self._tracker.log_metrics(step, self._summary)
        if step < self._last_step:
            _log.info("%s", self.summary())

    def is_due(self, step: int) -> bool:
        """Tells whether an evaluation was to be made at `step`, and is missing."""
        every = self._config.trainer.eval_every_steps
        return bool(every) and step % every == 0 and step < self._last_step and not self._recorded(step)

    def summary(self) -> str:
        """Returns the last evaluation in words."""
        if self._last is None or self._data.eval is None:
            return "Not evaluated: there are no held-out examples."
        shown = {key: value for key, value in self._summary.items() if key != "eval/examples"}
        numbers = "  ".join(
            f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items()
        )
        evaluated = f"Evaluated {self._last.num_examples} of {len(self._data.eval)}"
        if self._skipped:
            evaluated += f" ({len(self._skipped)} skipped)"
        return f"{evaluated} at step {self._step}: {numbers}"

    def write_report(self) -> None:
        """Draws the figures and writes the tables of the last evaluation, and hands them to the tracker."""
        figures = self._folder / "figures"
        rows = read_metrics(self._folder / METRICS_FILE)
        if rows:
            plot_learning_curves(rows, figures / "learning_curves.png")
        if self._last is not None and self._data.eval is not None:
            if self._data.task == "single":
                matrix = self._last.confusion_matrix()
                plot_confusion_matrix(matrix, self._data.class_names, figures / "confusion_matrix.png")
            else:
                plot_per_label(self._last.per_class(), figures / "per_label.png")
            write_csv(self._folder / "per_class.csv", self._last.per_class())
            write_predictions_csv(self._folder / "predictions.csv", self._last.predictions(), self._data.eval.path)
            for name in ("per_class.csv", "predictions.csv"):
                self._tracker.log_artifact(self._folder / name)
        for figure in sorted(figures.glob("*.png")):
            self._tracker.log_artifact(figure, "figures")

    def _recorded(self, step: int) -> bool:
        """Tells whether the run has this step's evaluation already: it went on from here with nothing left to train."""
        rows = read_metrics(self._folder / METRICS_FILE)
        return any(row.step == step and "eval/loss" in row.metrics for row in rows)
