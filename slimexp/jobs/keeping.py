"""Evaluations within training: the best checkpoint is kept, and training ends early when they get no better."""

from __future__ import annotations

import logging
import math
from pathlib import Path

from slimexp.config import Config
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError
from slimexp.evaluation import direction_of, metric_names
from slimexp.jobs.evaluation import Evaluator, evaluated_split
from slimexp.tracking import read_metrics
from slimexp.tracking.run import METRICS_FILE
from slimexp.training.best import BestKeeper
from slimexp.training.trainer import Trainer
from slimexp.validation import nearest

__all__ = ["best_keeper", "ends_early", "evaluate_and_keep", "is_due"]

_log = logging.getLogger("slimexp")


def best_keeper(config: Config, data: Dataset, first_step: int | None) -> BestKeeper | None:
    """Returns what keeps the best checkpoint, if `trainer.keep_best` asks for it.

    Args:
        config: Checked.
        data: What is evaluated on.
        first_step: The checkpoint that the run goes on from; None if it starts anew.

    Raises:
        UserError: If there is no such metric, its direction is not known, or nothing to evaluate on.
    """
    trainer = config.trainer
    if trainer.keep_best is None:
        return None
    metric = trainer.keep_best if "/" in trainer.keep_best else f"eval/{trainer.keep_best}"
    asked = f"trainer.keep_best={trainer.keep_best}"
    names = metric_names(data.task, data.num_classes, config.evaluation.top_k)
    if evaluated_split(config, data) is None:
        raise UserError(f"{asked}: dataset {data.name} has no held-out examples to evaluate on; set dataset.eval_list.")
    if metric not in names:
        raise UserError(
            f"{asked}: an evaluation of {data.task}-label data with {data.num_classes} classes gives "
            f"{', '.join(names)}; the nearest is {nearest(metric, names)}."
        )
    direction = trainer.best_direction.value if trainer.best_direction else direction_of(metric)
    evaluated = None
    if first_step is not None:
        rows = read_metrics(Path(config.run_dir) / METRICS_FILE)
        evaluated = [(row.step, row.metrics[metric]) for row in rows if metric in row.metrics]
    return BestKeeper(
        Path(config.run_dir),
        metric,
        maximize=direction == "maximize",
        patience=trainer.early_stop_patience,
        evaluated=evaluated,
    )


def evaluate_and_keep(
    evaluator: Evaluator, keeper: BestKeeper | None, trainer: Trainer, last_step: int, step: int
) -> None:
    """Evaluates, says the result but for that of the last step, which the job says itself, and keeps the best."""
    metrics = evaluator.evaluate(step)
    if metrics and step < last_step:
        _log.info("%s", evaluator.summary())
    if keeper is not None and metrics:
        # Without a positive there is no average precision.
        keeper.update(step, metrics.get(keeper.metric, math.nan), trainer.state)


def ends_early(keeper: BestKeeper | None) -> bool:
    """Tells whether training is to end since evaluations get no better; says so then."""
    if keeper is None or not keeper.is_exhausted:
        return False
    _log.warning("%s", keeper.explain_stop())
    return True


def is_due(config: Config, evaluator: Evaluator, step: int, last_step: int) -> bool:
    """Tells whether an evaluation was to be made at `step`, and is missing."""
    every = config.trainer.eval_every_steps
    return bool(every) and step % every == 0 and step < last_step and not evaluator.is_recorded(step)
