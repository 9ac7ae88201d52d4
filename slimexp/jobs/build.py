"""From the configuration to the objects that a job works with; nothing is trained or recorded here."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from slimexp.config import Config, check_steps
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.dataset.summary import class_counts
from slimexp.errors import UserError
from slimexp.jobs.targets import call, locate
from slimexp.pipeline import PipelineSettings
from slimexp.pipeline.copies.cache import ShrunkCache
from slimexp.pipeline.skipping import FILE_NAME, SkippedImages
from slimexp.pipeline.steps import Step, SteppedPreprocessing, load_op
from slimexp.training.classifier import Classifier

__all__ = [
    "batch_norm_decay",
    "check_targets",
    "classifier",
    "dataset",
    "file_access",
    "loss_settings",
    "pipeline_settings",
    "preprocessing",
    "shrunk_cache",
    "skipped_images",
]


# What a dataset's option says about reading it, which is not for the function that loads it.
_OF_PIPELINE = ("flip", "crop_area_min", "on_bad_image", "max_bad_fraction", "exif")


def check_targets(config: Config) -> None:
    """Looks up every `_target_`, so that a wrong one is known before any work starts."""
    for group in ("dataset", "preprocessing", "optimizer", "learning_rate"):
        option = getattr(config, group)
        locate(f"{group}._target_", option["_target_"] if isinstance(option, dict) else option._target_)
    network(config)
    _steps(config, is_training=True)


def network(config: Config) -> Any:
    """Returns the network function."""
    return locate("model.network._target_", config.model.network["_target_"])


def dataset(config: Config) -> Dataset:
    """Loads what the examples are; no image is read."""
    option = config.dataset
    further = {}
    target = option["_target_"] if isinstance(option, dict) else option._target_
    takes = inspect.signature(locate("dataset._target_", target)).parameters
    if _of_dataset(config, "on_bad_image", "error") == "skip":
        further = {key: True for key in ("allow_empty_files", "allow_damaged_shards") if key in takes}
    loaded = call("dataset", option, ignore=_OF_PIPELINE, **further)
    if not isinstance(loaded, Dataset):
        raise UserError(f"dataset._target_: returned a {type(loaded).__name__}; it must be a slimexp.dataset.Dataset.")
    return loaded


def preprocessing(config: Config, *, size_px: int, is_training: bool) -> Any:
    """Returns the preprocessing for training or for evaluation, with the steps around it that are due then."""
    ignore = ("name", "steps")
    made = call("preprocessing", config.preprocessing, ignore=ignore, size_px=size_px, is_training=is_training)
    steps = _steps(config, is_training=is_training)
    return SteppedPreprocessing(made, steps) if steps else made


def _steps(config: Config, *, is_training: bool) -> list[Step]:
    """Finds the functions and ops of `preprocessing.steps`."""
    option = config.preprocessing
    options = option.get("steps", []) if isinstance(option, dict) else option.steps
    check_steps(options)  # The keys of a user's own preprocessing have not been looked at.
    steps = []
    for number, option in enumerate(options):
        key = f"preprocessing.steps[{number}]"
        kind = next(kind for kind in ("_target_", "numpy", "library") if kind in option)
        name = option[kind]
        if kind == "library":
            function = load_op(key, name, option["op"])
            name = f"{option['op']} of {name}"
        else:
            function = locate(f"{key}.{kind}", name)
        own = {kind, "at", "when", "num_draws", *(["op"] if kind == "library" else [])}
        step = Step(
            key,
            function,
            {key: value for key, value in option.items() if key not in own},
            is_numpy=kind == "numpy",
            at=option.get("at", "finished"),
            num_draws=option.get("num_draws", 0),
            name=name,
        )
        # Evaluation draws nothing, unless it is told to.
        when = option.get("when", "training" if step.num_draws else "always")
        if is_training or when == "always":
            steps.append(step)
    return steps


def pipeline_settings(config: Config, *, batch_size: int | None = None) -> PipelineSettings:
    """Returns the pipeline's numbers, with another batch size if one is given."""
    pipeline = config.pipeline
    capacities = {
        f"{f.name}_capacity": getattr(pipeline.queues, f.name).capacity for f in dataclasses.fields(pipeline.queues)
    }
    return PipelineSettings(
        threads=pipeline.threads,
        readers=pipeline.readers,
        batch_size=batch_size or pipeline.batch_size,
        shuffle=pipeline.shuffle,
        decoder=pipeline.decoder.value,
        exif=_of_dataset(config, "exif", "apply") == "apply",
        scaled_decode=pipeline.scaled_decode,
        read_min_after_dequeue=pipeline.queues.read.min_after_dequeue,
        **capacities,
    )


def shrunk_cache(config: Config) -> ShrunkCache | None:
    """Returns the cache of smaller copies that the configuration asks for, if it does."""
    pipeline = config.pipeline
    if pipeline.cache.value == "none":
        return None
    return ShrunkCache(pipeline.cache_dir, short_side=pipeline.cache_short_side, max_bytes=pipeline.cache_max_bytes)


def skipped_images(config: Config, split: AnySplit) -> SkippedImages | None:
    """Returns what keeps count of a split's bad images, if these are to be skipped."""
    if _of_dataset(config, "on_bad_image", "error") == "error":
        return None
    max_fraction = _of_dataset(config, "max_bad_fraction", 0.01)
    return SkippedImages(split, path=Path(config.run_dir) / FILE_NAME, max_fraction=max_fraction)


def _of_dataset(config: Config, key: str, default: Any) -> Any:
    """Returns a value of the dataset's option; a user's own may lack it."""
    option = config.dataset
    value = option.get(key, default) if isinstance(option, dict) else getattr(option, key)
    return value.value if isinstance(value, enum.Enum) else value


def file_access(cache: ShrunkCache | None) -> dict[str, Any]:
    """Returns the arguments that tell a `Feed` where files' bytes come from."""
    return {} if cache is None else {"read_file": cache.read, "locate": cache.locate}


def classifier(config: Config, *, num_classes: int, image_size: int) -> Classifier:
    """Returns the network with its settings; its variables are created later, by the trainer."""
    network_args = {key: value for key, value in config.model.network.items() if key != "_target_"}
    if config.model.dropout_keep_prob is not None:
        network_args["dropout_keep_prob"] = config.model.dropout_keep_prob
    return Classifier(
        network(config),
        num_classes=num_classes,
        image_size=image_size,
        weight_decay=config.model.weight_decay,
        batch_norm_decay=config.model.batch_norm_decay,
        network_args=network_args,
        seed=config.seed,
    )


def batch_norm_decay(config: Config) -> float | None:
    """Returns the decay of the moving averages, the network's own where none is set; None without batch norm."""
    if config.model.batch_norm_decay is not None:
        return config.model.batch_norm_decay
    arg_scope = getattr(network(config), "arg_scope", None)
    parameter = arg_scope and inspect.signature(arg_scope).parameters.get("batch_norm_decay")
    return parameter.default if parameter else None


def loss_settings(config: Config, data: Dataset) -> dict[str, Any]:
    """Returns the arguments of `add_classification_losses` for a dataset.

    Raises:
        UserError: If the loss does not fit the dataset's task, or the class weights its number of classes.
    """
    fitting = {"single": "softmax", "multi": "sigmoid"}[data.task]
    name = config.loss.name.value
    if name not in ("auto", fitting):
        raise UserError(
            f"loss.name={name}: dataset {data.name} has {data.task}-label examples; they need loss={fitting} (or auto)."
        )
    return {
        "name": fitting,
        "label_smoothing": config.loss.label_smoothing,
        "aux_weight": config.loss.aux_weight,
        "class_weights": _class_weights(config.loss.class_weights, data),
    }


def _class_weights(asked: Any, data: Dataset) -> list[float] | None:
    if asked is None:
        return None
    if asked == "balanced":
        if data.task == "multi":
            raise UserError(
                "loss.class_weights=balanced: only single-label datasets have one class an image to balance by; "
                "for multi-label ones give a list of one weight a label."
            )
        if data.train.labels is None:
            raise UserError(
                "loss.class_weights=balanced: the labels of records are known only as they are read; give a list of "
                "one weight a class."
            )
        # n / (classes * count), as scikit-learn's `balanced`: the mean weight over the examples is 1.
        counts = np.maximum(class_counts(data.train, data.num_classes), 1)
        return [float(weight) for weight in len(data.train) / (data.num_classes * counts)]
    if len(asked) != data.num_classes:
        raise UserError(
            f"loss.class_weights={asked}: {len(asked)} weights for {data.num_classes} classes; give one a class."
        )
    return [float(weight) for weight in asked]
