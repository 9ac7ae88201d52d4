"""The job `train`: from a dataset to a trained, evaluated and recorded network."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.config import Config
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.dataset.summary import describe
from slimexp.errors import UserError
from slimexp.jobs import build
from slimexp.jobs.auto import resolve_auto
from slimexp.jobs.classes import record_classes, refuse_other_classes
from slimexp.jobs.diagnosis import diagnose
from slimexp.jobs.evaluation import Evaluator
from slimexp.jobs.keeping import best_keeper, ends_early, evaluate_and_keep, is_due
from slimexp.jobs.lock import exclusive
from slimexp.jobs.notes import (
    moving_averages_note,
    unmoved_statistics_note,
    warn_about_preprocessing,
    warn_about_single_class,
    warn_about_small_copies,
    warn_about_tuned_elsewhere,
)
from slimexp.jobs.of_run import write_resolved
from slimexp.jobs.record import (
    earlier_run,
    log_data,
    recorded,
    resume_step,
    say_what_changed,
)
from slimexp.jobs.restoring import find_checkpoint, restore, say_goes_on
from slimexp.jobs.starting import turn_first_pixels
from slimexp.jobs.targets import call
from slimexp.pipeline import Feed
from slimexp.pipeline.skipping import SkippedImages
from slimexp.pipeline.stats import as_metrics
from slimexp.pipeline.stats import describe as describe_pipeline
from slimexp.tracking import Progress, Tracker
from slimexp.training.best import BestKeeper
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import choose_image_size
from slimexp.training.devices import make_deterministic, make_strategy
from slimexp.training.loop import fit
from slimexp.training.precision import slow_note
from slimexp.training.schedules import Schedule
from slimexp.training.signals import StopSignals
from slimexp.training.trainer import Trainer

__all__ = ["EARLY_STOP_TAG", "count_steps", "make_trainer", "run", "train"]

EARLY_STOP_TAG = "early_stop"

_log = logging.getLogger("slimexp")


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Trains as the configuration says, or goes on where the run in `run_dir` ended.

    Args:
        config: Checked.
        overrides: What the command changed, for the run's name.

    Raises:
        UserError: For what the user can mend; the run is then recorded as FAILED.
        Interrupted: After a signal, once a checkpoint is saved; the run is then recorded as KILLED.
    """
    checkpoints = Checkpoints(Path(config.run_dir) / "checkpoints", max_to_keep=config.trainer.max_to_keep)
    with StopSignals() as signals, exclusive(Path(config.run_dir)):
        earlier = earlier_run(Path(config.run_dir))
        first_step = resume_step(config, checkpoints, earlier)
        with recorded(config, overrides, first_step, earlier, signals) as tracker:
            _log.info("Run folder: %s", config.run_dir)
            train(config, checkpoints, first_step, earlier, tracker, signals)


def train(
    config: Config,
    checkpoints: Checkpoints,
    first_step: int | None,
    earlier: Mapping[str, Any],
    tracker: Tracker,
    signals: StopSignals,
) -> None:
    """Builds everything, trains, evaluates, and says where the results are.

    Args:
        config: Checked.
        checkpoints: Those of the run's folder.
        first_step: The checkpoint to go on from; None to start anew.
        earlier: What `run.json` says of the run that goes on.
        tracker: Records the run.
        signals: Obeyed between two steps.
    """
    build.check_targets(config)
    strategy = make_strategy(config.trainer.strategy.value, config.trainer.num_clones)  # Before TensorFlow is in use.
    warn_about_preprocessing(config)
    pretrained = find_checkpoint(config) if first_step is None else None
    if config.trainer.deterministic:
        make_deterministic(config.seed)
    turn_first_pixels(config.run_dir)
    data = build.dataset(config)
    _log.info("%s", describe(data))
    warn_about_single_class(data)
    if first_step is not None:
        refuse_other_classes(data, Path(config.run_dir), asked=f"run_dir={config.run_dir}")
    data_fingerprint = log_data(tracker, data)

    image_size = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
    warn_about_tuned_elsewhere(config, len(data.train), image_size)
    preprocessing = build.preprocessing(config, size_px=image_size, is_training=True)
    config = resolve_auto(config, data.train, preprocessing, tracker, earlier, check_stop=signals.check)
    record_classes(Path(config.run_dir), data, tracker)
    write_resolved(config, image_size=image_size, task=data.task)
    settings = build.pipeline_settings(config)
    replicas = strategy.num_replicas_in_sync
    settings.check(len(data.train), replicas, is_training=True, is_sequential=data.train.is_sequential)
    last_step = count_steps(config, len(data.train))
    trainer = make_trainer(config, data, image_size, last_step, strategy)
    _log.info("%s", _resolved(config, trainer, image_size, last_step, len(data.train)))
    if pretrained is not None:
        restore(config, trainer, pretrained, tracker)
    if slow := slow_note(config.trainer.precision.value):
        _log.warning("%s", slow)
    note = moving_averages_note(config, last_step)
    if note:
        _log.warning("%s", note)
    keeper = best_keeper(config, data, first_step)

    if first_step is not None:
        say_what_changed(config, earlier, data_fingerprint)
        trainer.restore(checkpoints.load(first_step))
        _log.info("Going on from the checkpoint of step %d.", first_step)
        say_goes_on(config, first_step)
        if first_step >= last_step:
            _log.warning(
                "The run is at step %d, and trainer asks for %d: nothing is left to train. Raise trainer.max_steps to "
                "go on.",
                first_step,
                last_step,
            )
    cache = build.shrunk_cache(config)
    if cache is not None:
        warn_about_small_copies(config, preprocessing)
    evaluator = Evaluator(config, data, trainer.inference, image_size, tracker, signals, cache)
    evaluate = functools.partial(evaluate_and_keep, evaluator, keeper, trainer, last_step)
    should_end = functools.partial(ends_early, keeper)
    skipped = build.skipped_images(config, data.train)
    feed = Feed(
        data.train,
        preprocessing=preprocessing,
        settings=settings,
        seed=config.seed,
        is_training=True,
        start_position=trainer.step * settings.batch_size,
        strategy=strategy,
        check_stop=signals.check,
        skipped=skipped,
        **build.file_access(cache),
    )
    tracker.set_tags({"pipeline.decoder": feed.decoder})
    if first_step and is_due(config, evaluator, first_step, last_step):
        evaluate(first_step)  # The run was stopped between the checkpoint and this.
    statistics = trainer.statistics()
    began_at = trainer.step
    with feed, Progress(last_step, trainer.step, settings.batch_size) as progress:
        fit(
            trainer,
            feed,
            last_step=last_step,
            log_every_steps=config.trainer.log_every_steps,
            save_every_steps=config.trainer.save_every_steps,
            eval_every_steps=config.trainer.eval_every_steps,
            meter=progress,
            log=functools.partial(_log_step, tracker, progress, feed, skipped),
            save=lambda step: _save(checkpoints, trainer, step),
            evaluate=evaluate,
            should_end=should_end,
            name_examples=functools.partial(_name_examples, data.train),
            signals=signals,
        )
    if cache is not None:
        _log.info("%s", cache.summary())
    found = diagnose(config, feed.monitor.total() if feed.monitor is not None else None, tracker)
    evaluator.write_report()
    signals.hold()
    results = [evaluator.summary()]
    if keeper is not None and keeper.is_exhausted:
        tracker.set_tags({EARLY_STOP_TAG: keeper.explain_stop()})
    if note:
        results.append(note)
    if overflow := trainer.overflow_note():
        _log.warning("%s", overflow)
    elif trainer.step > began_at and (unmoved := unmoved_statistics_note(statistics, trainer.statistics())):
        _log.warning("%s", unmoved)
    if found.bottleneck != "unknown":
        results.append(str(found))
    _say_where_everything_is(config, checkpoints, keeper, results, tracker)


def count_steps(config: Config, num_examples: int) -> int:
    """Returns the run's last step: `trainer.max_steps` or `trainer.epochs`, whichever comes first."""
    trainer = config.trainer
    steps = [] if trainer.max_steps is None else [trainer.max_steps]
    if trainer.epochs is not None:
        steps.append(max(math.ceil(trainer.epochs * num_examples / config.pipeline.batch_size), 1))
    return min(steps)


def make_trainer(
    config: Config,
    data: Dataset,
    image_size: int,
    last_step: int,
    strategy: tf.distribute.Strategy,
    schedule: Schedule | None = None,
) -> Trainer:
    """Puts network, loss, schedule and optimizer together; a schedule that is given replaces the configured one."""
    if config.evaluation.use_averages == "true" and config.trainer.moving_average_decay is None:
        raise UserError(
            "evaluation.use_averages=true: training keeps no averages with trainer.moving_average_decay=null. Set "
            "that, e.g. to 0.9999, or leave evaluation.use_averages auto."
        )
    schedule = schedule or call(
        "learning_rate",
        config.learning_rate,
        ignore=("name",),
        steps_per_epoch=len(data.train) / config.pipeline.batch_size,
        total_steps=last_step,
    )
    if not isinstance(schedule, Schedule):
        raise UserError(
            f"learning_rate._target_: made a {type(schedule).__name__}; it must be a subclass of "
            "slimexp.training.schedules.Schedule."
        )
    return Trainer(
        build.classifier(config, num_classes=data.num_classes, image_size=image_size),
        make_optimizer=lambda rate: call("optimizer", config.optimizer, rate, ignore=("name",)),
        schedule=schedule,
        loss=build.loss_settings(config, data),
        strategy=strategy,
        clip_gradient_norm=config.trainer.clip_gradient_norm,
        gradient_multipliers=config.trainer.gradient_multipliers,
        check_numerics=config.trainer.check_numerics,
        seed=config.seed,
        trainable_scopes=config.restore.trainable_scopes,
        moving_average_decay=config.trainer.moving_average_decay,
        evaluate_averages=config.evaluation.use_averages != "false",
        precision=config.trainer.precision.value,
    )


def _log_step(
    tracker: Tracker,
    progress: Progress,
    feed: Feed,
    skipped: SkippedImages | None,
    step: int,
    values: dict[str, float],
) -> None:
    stats = feed.monitor.interval() if feed.monitor is not None else None
    note = describe_pipeline(stats) if stats is not None else None
    rates = progress.report(step, loss=values["loss"], learning_rate=values["learning_rate"], note=note)
    metrics = {f"train/{key}": value for key, value in {**values, **rates}.items()}
    if stats is not None:
        metrics.update(as_metrics(stats))
    if skipped is not None:
        metrics["pipeline/skipped_images"] = len(skipped)
    tracker.log_metrics(step, metrics)


def _save(checkpoints: Checkpoints, trainer: Trainer, step: int) -> None:
    checkpoints.save(step, trainer.state())
    _log.info("Saved the checkpoint of step %d.", step)


def _name_examples(split: AnySplit, indices: np.ndarray) -> str:
    return "\n".join(f"  {split.origin(int(i))}: {split.path(int(i))!r}" for i in indices)


def _resolved(config: Config, trainer: Trainer, image_size: int, last_step: int, num_examples: int) -> str:
    """Says what was made of the settings."""
    batch_size = config.pipeline.batch_size
    replicas = trainer.strategy.num_replicas_in_sync
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    per_replica = batch_size // replicas
    epochs = last_step * batch_size / num_examples
    trained, frozen = trainer.num_parameters()
    function = trainer.classifier.network
    return (
        f"Network: {function.__module__}.{function.__qualname__}, images of {image_size} x {image_size}, "
        f"{trained:,} parameters to train{f', {frozen:,} frozen' if frozen else ''}.\n"
        f"Batches: {batch_size} images = {per_replica} x {replicas} {'replicas' if replicas > 1 else 'replica'} on the "
        f"{device}; "
        f"{config.pipeline.readers} readers, {config.pipeline.threads} preprocessing threads.\n"
        f"Steps: to {last_step}, which is {epochs:.1f} epochs of {num_examples} images.\n"
        f"Learning rate: {trainer.schedule.describe()}."
    )


def _say_where_everything_is(
    config: Config, checkpoints: Checkpoints, keeper: BestKeeper | None, results: Sequence[str], tracker: Tracker
) -> None:
    lines = ["", *results, f"Run folder:  {config.run_dir}"]
    step = checkpoints.latest_step()
    if step is not None:
        lines.append(f"Checkpoint:  {checkpoints.prefix(step)}")
    if keeper is not None:
        lines.append(keeper.describe())
    if tracker.run_id:
        lines.append(f"MLflow run:  {tracker.run_id} in experiment {config.tracking.experiment}")
        lines.append(f"Compare:     {tracker.ui_command}")
    print("\n".join(lines), flush=True)
