"""A trained network with what belongs to it, for the jobs that use one: from a run, or from any other checkpoint."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.config import Config
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError
from slimexp.jobs import build
from slimexp.jobs.auto import AUTO
from slimexp.jobs.classes import CLASSES_FILE, Classes, read_classes, refuse_other_classes
from slimexp.jobs.notes import warn_about_preprocessing
from slimexp.jobs.of_run import find_run
from slimexp.jobs.record import earlier_run
from slimexp.jobs.restoring import restore_rules
from slimexp.pipeline import PipelineSettings
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus
from slimexp.shown import shown_path
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoint_watch import step_of
from slimexp.training.classifier import Classifier, choose_image_size
from slimexp.training.weights import load_weights

__all__ = ["Trained", "checkpoint_step", "load_trained", "pipeline_settings", "run_tags", "source_tags"]

_log = logging.getLogger("slimexp")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A network with its weights.

    Attributes:
        classifier: The network; its variables have the checkpoint's values.
        classes: What its outputs mean.
        data: The dataset that it was trained on; None if that cannot be read, and the classes are the run's own record.
        without_data: Why not, in words; empty if it can.
        image_size: The images' side in pixels.
        preprocessing: That of evaluation.
        checkpoint: Where the weights are from.
        step: The checkpoint's step; None if it does not say.
        weights: `last`, or `averages` if these are the moving averages.
    """

    classifier: Classifier
    classes: Classes
    data: Dataset | None
    without_data: str
    image_size: int
    preprocessing: Any
    checkpoint: CheckpointFile
    step: int | None
    weights: str


def load_trained(
    config: Config, path: str, *, key: str, strategy: tf.distribute.Strategy, needs_data: bool = False
) -> Trained:
    """Builds the configured network and gives it a checkpoint's weights.

    Args:
        config: Checked; that of the run whose checkpoint it is, where it is a run's.
        path: The checkpoint, or a folder for its latest.
        key: The configuration key of `path`, for messages.
        strategy: Where the variables are to be.
        needs_data: Whether a run's own record of its classes is not enough where its dataset cannot be read.

    Raises:
        UserError: If the checkpoint cannot be read or does not fit, the dataset has other classes, or it cannot be
            read and is needed.
    """
    checkpoint = CheckpointFile(path, key=key)
    network = build.network(config)
    warn_about_preprocessing(config)
    run = find_run(checkpoint.prefix)
    data, without_data = _dataset(config, run, asked=f"{key}={path}", needs_data=needs_data)
    classes = read_classes(run) if data is None else Classes.of(data)
    assert classes is not None
    image_size = choose_image_size(network, config.model.image_size, None if data is None else data.image_side_px)
    preprocessing = build.preprocessing(config, size_px=image_size, is_training=False)
    classifier = build.classifier(config, num_classes=len(classes.names), image_size=image_size)
    with strategy.scope():
        classifier.build()
    averages = load_weights(
        classifier,
        checkpoint,
        use_averages=config.evaluation.use_averages,
        name_map=restore_rules(config).name_map,
        key=key,
    )
    kind = "the moving averages of the weights" if averages else "the weights"
    _log.info("Using %s of %s.", kind, checkpoint.describe())
    weights = "averages" if averages else "last"
    return Trained(
        classifier=classifier,
        classes=classes,
        data=data,
        without_data=without_data,
        image_size=image_size,
        preprocessing=preprocessing,
        checkpoint=checkpoint,
        step=checkpoint_step(checkpoint),
        weights=weights,
    )


def pipeline_settings(config: Config, *, batch_size: int | None = None) -> PipelineSettings:
    """Returns the pipeline's numbers for a job that is too short to measure what `auto` should be: one a core."""
    count = whole_cpus(available_cpus())
    pipeline = config.pipeline
    threads, readers = (count if number == AUTO else number for number in (pipeline.threads, pipeline.readers))
    config = dataclasses.replace(config, pipeline=dataclasses.replace(pipeline, threads=threads, readers=readers))
    return build.pipeline_settings(config, batch_size=batch_size)


def source_tags(trained: Trained) -> dict[str, str]:
    """Returns the tags that lead from a job's run to the run that was trained."""
    checkpoint = trained.checkpoint.prefix
    return {"source.checkpoint": checkpoint, "source.weights": trained.weights, **run_tags(find_run(Path(checkpoint)))}


def run_tags(run: Path | None) -> dict[str, str]:
    """Returns the tags that name the run that was trained; none where a checkpoint belongs to no run."""
    run_id = None if run is None else earlier_run(run).get("run_id")
    return {} if run is None else {"source.run_dir": str(run), **({"source.run_id": run_id} if run_id else {})}


def _dataset(config: Config, run: Path | None, *, asked: str, needs_data: bool) -> tuple[Dataset | None, str]:
    """Loads the dataset for its classes; whether all its files are there does not matter here.

    Returns:
        The dataset, or None and why it cannot be read, where the run has kept a record of its classes.
    """
    option: Any = config.dataset
    if getattr(option, "check_files", None):
        option = dataclasses.replace(option, check_files=False)
    try:
        data = build.dataset(dataclasses.replace(config, dataset=option))
    except (UserError, OSError) as error:
        if run is None or needs_data or read_classes(run) is None:
            raise UserError(
                f"{asked}: the classes are those of the dataset that it was trained on, which cannot be loaded: "
                f"{error}\nAn export (job=export) carries its classes with it."
            ) from error
        reason = str(error).splitlines()[0]
        _log.warning(
            "The dataset cannot be read, so the classes are those of %s/%s: %s", shown_path(run), CLASSES_FILE, reason
        )
        return None, reason
    refuse_other_classes(data, run, asked=asked)
    return data, ""


def checkpoint_step(checkpoint: CheckpointFile) -> int | None:
    """Returns the step that a checkpoint was saved at: as it says itself, else by its name; None if neither does."""
    if "global_step" in checkpoint.variables:
        ((_, value),) = checkpoint.read(["global_step"])
        return int(np.asarray(value))
    return step_of(checkpoint.prefix)
