"""The job `evaluate`: a checkpoint's weights on a whole split: metrics, tables, figures, predictions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slimexp.config import Config
from slimexp.dataset.split import Dataset
from slimexp.dataset.summary import describe
from slimexp.errors import UserError
from slimexp.jobs import build
from slimexp.jobs.auto import resolve_auto
from slimexp.jobs.classes import refuse_other_classes
from slimexp.jobs.evaluation import Evaluator, evaluated_split
from slimexp.jobs.following import follow
from slimexp.jobs.lock import exclusive
from slimexp.jobs.notes import warn_about_preprocessing
from slimexp.jobs.of_run import find_run
from slimexp.jobs.record import earlier_run, log_data, recorded, refuse_other_job
from slimexp.jobs.restoring import restore_rules
from slimexp.jobs.starting import turn_first_pixels
from slimexp.jobs.trained import checkpoint_step, run_tags
from slimexp.tracking import Tracker
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.classifier import Classifier, choose_image_size
from slimexp.training.devices import make_deterministic, make_strategy
from slimexp.training.inference import Inference
from slimexp.training.signals import StopSignals
from slimexp.training.weights import load_weights

__all__ = ["evaluate", "run"]

_KEY = "evaluation.checkpoint"
_log = logging.getLogger("slimexp")
# Of more classes the table on the screen shows the worst; the file has all.
_SHOWN = 20


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Evaluates the checkpoint that `evaluation.checkpoint` names; with `evaluation.follow`, each one that comes.

    Args:
        config: Checked; that of the run whose checkpoint it is, where it is a run's.
        overrides: What the command changed, for the run's name.

    Raises:
        UserError: If the checkpoint cannot be read or does not fit, or an image cannot be read; the run is then
            recorded as FAILED.
        Interrupted: After a signal, at once; the run is then recorded as KILLED.
    """
    folder = Path(config.run_dir)
    folder.mkdir(parents=True, exist_ok=True)  # Within the folder of the run that was trained.
    with StopSignals() as signals, exclusive(folder):
        refuse_other_job(config, earlier_run(folder))
        with recorded(config, overrides, None, {}, signals) as tracker:
            evaluate(config, tracker, signals)


def evaluate(config: Config, tracker: Tracker, signals: StopSignals) -> Evaluator:
    """Builds the network, gives it the weights, evaluates, and says where the results are.

    Args:
        config: Checked.
        tracker: Records the evaluation.
        signals: A stop is obeyed at once.

    Returns:
        What evaluated, with its last results.
    """
    if config.evaluation.checkpoint is None:
        raise UserError(
            f"{_KEY}=null: say what to evaluate: run_dir=FOLDER for a run of job=train, or {_KEY}=PATH of a checkpoint."
        )
    place = Path(config.evaluation.checkpoint)
    source = find_run(place)
    first = None if config.evaluation.follow else CheckpointFile(place, key=_KEY)
    build.check_targets(config)
    warn_about_preprocessing(config)
    strategy = make_strategy()  # Before TensorFlow is in use.
    if config.trainer.deterministic:
        make_deterministic(config.seed)
    turn_first_pixels(config.run_dir)
    data = build.dataset(config)
    _log.info("%s", describe(data))
    refuse_other_classes(data, source, asked=f"{_KEY}={place}")
    split = evaluated_split(config, data)
    if split is None:
        raise UserError(
            f"evaluation.split=eval: dataset {data.name} has no held-out examples (dataset.eval_list or eval_dir). "
            "Name some, or take evaluation.split=train for those that were learned from."
        )
    log_data(tracker, data)
    record = {} if source is None else earlier_run(source)
    tracker.set_tags(run_tags(source))
    image_size = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
    preprocessing = build.preprocessing(config, size_px=image_size, is_training=False)
    config = resolve_auto(config, split, preprocessing, tracker, record, check_stop=signals.check)

    classifier = build.classifier(config, num_classes=data.num_classes, image_size=image_size)
    with strategy.scope():
        classifier.build()
    inference = Inference(classifier, strategy)
    evaluator = Evaluator(config, data, inference, image_size, tracker, signals, build.shrunk_cache(config))

    if first is not None:
        step = _load(config, classifier, first, tracker)
        evaluator.evaluate(step)
        evaluator.write_report()
    else:
        _follow(config, place, source, classifier, evaluator, tracker, signals)
    signals.hold()
    _print_result(config, data, evaluator, tracker)
    return evaluator


def _load(config: Config, classifier: Classifier, checkpoint: CheckpointFile, tracker: Tracker) -> int:
    """Gives the network the weights of a checkpoint; returns the checkpoint's step."""
    rules = restore_rules(config)
    averages = load_weights(
        classifier, checkpoint, use_averages=config.evaluation.use_averages, name_map=rules.name_map, key=_KEY
    )
    kind = "the moving averages of the weights" if averages else "the weights"
    _log.info("Evaluating %s of %s.", kind, checkpoint.describe())
    tracker.set_tags({"source.checkpoint": checkpoint.prefix, "source.weights": "averages" if averages else "last"})
    return checkpoint_step(checkpoint) or 0


def _follow(
    config: Config,
    place: Path,
    source: Path | None,
    classifier: Classifier,
    evaluator: Evaluator,
    tracker: Tracker,
    signals: StopSignals,
) -> None:
    """Evaluates each checkpoint of a run that is training as it comes; the report is that of the last one so far."""
    folder = place / "checkpoints" if source == place else place
    if folder.with_name(f"{folder.name}.index").exists():
        raise UserError(f"evaluation.follow=true {_KEY}={place}: is one checkpoint; name the folder that they come to.")
    for _, prefix in follow(folder, source, timeout_secs=config.evaluation.timeout_secs, check_stop=signals.check):
        try:
            checkpoint = CheckpointFile(prefix, key=_KEY)
            step = _load(config, classifier, checkpoint, tracker)
        except UserError:
            if Path(f"{prefix}.index").exists():
                raise
            _log.warning("%s was deleted (trainer.max_to_keep) before it could be evaluated.", prefix)
            continue
        evaluator.evaluate(step)
        _log.info("%s", evaluator.summary())
        evaluator.write_report()
    if evaluator.last is None:
        raise UserError(
            f"evaluation.follow=true: the run in {source or place} has ended, and {folder} has no checkpoint."
        )


def _print_result(config: Config, data: Dataset, evaluator: Evaluator, tracker: Tracker) -> None:
    assert evaluator.last is not None
    rows = evaluator.last.per_class()
    if data.task == "multi":
        good = "average_precision"
        columns = ["class", "average_precision", "precision", "recall", "f1", "positives", "counted"]
    else:
        good = "f1"
        columns = ["class", "precision", "recall", "f1", "support", "predicted"]
    shown = rows
    if len(rows) > _SHOWN:
        measured = [row for row in rows if row[good] is not None]
        shown = sorted(measured, key=lambda row: row[good])[:_SHOWN]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if column == "class" else "right", no_wrap=True)
    for row in shown:
        table.add_row(*(_cell(row[column]) for column in columns))
    console = Console(markup=False, highlight=False)
    console.print()
    console.print(table)
    if len(shown) < len(rows):
        print(f"... the worst {len(shown)} of {len(rows)}; per_class.csv has all.")
    lines = [
        "",
        evaluator.summary(),
        f"Results:     {config.run_dir} (per_class.csv, predictions.csv, figures)",
    ]
    if tracker.run_id:
        lines.append(f"MLflow run:  {tracker.run_id} in experiment {config.tracking.experiment}")
        lines.append(f"Compare:     {tracker.ui_command}")
    print("\n".join(lines), flush=True)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
