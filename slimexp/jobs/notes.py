"""What a run is warned of: settings that do not go together, and statistics that evaluation cannot rely on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.config import Config
from slimexp.dataset.split import Dataset
from slimexp.jobs import build
from slimexp.jobs.benchmark_result import describe_place
from slimexp.pipeline.copies.cache import explain_short_side
from slimexp.sweep.tuned import measured_elsewhere

__all__ = [
    "moving_averages_note",
    "unmoved_statistics_note",
    "warn_about_preprocessing",
    "warn_about_single_class",
    "warn_about_small_copies",
    "warn_about_tuned_elsewhere",
]

_log = logging.getLogger("slimexp")


def warn_about_preprocessing(config: Config) -> None:
    """Warns if the preprocessing is not the one that the network was designed for."""
    chosen: Any = config.preprocessing
    name = chosen.get("name") if isinstance(chosen, dict) else chosen.name
    if config.model.preprocessing not in (None, name):
        _log.warning(
            "preprocessing=%s: %s was designed for preprocessing=%s; published checkpoints of it expect that.",
            name,
            config.model.name,
            config.model.preprocessing,
        )


def warn_about_tuned_elsewhere(config: Config, num_images: int, image_size: int) -> None:
    """Warns if `pipeline=tuned` was measured on another machine, or for other data or another network."""
    place = describe_place(config, num_images, image_size)
    warning = measured_elsewhere(config.pipeline.name, place, sys.argv)
    if warning:
        _log.warning("%s", warning)


def warn_about_single_class(data: Dataset) -> None:
    """Warns if there is but one class: every answer is right then, and the loss 0 from the beginning."""
    if data.task == "single" and data.num_classes == 1:
        _log.warning(
            "dataset %s has one class, %r: there is nothing to tell apart, and the loss is always 0. Add images of "
            "other classes, or take dataset.task=multi, where an image may be of none.",
            data.name,
            data.class_names[0],
        )


def warn_about_small_copies(config: Config, preprocessing: Any) -> None:
    """Warns if the cache's smaller copies of photos are too small for what is cut out of them."""
    short_side = config.pipeline.cache_short_side
    size_px = getattr(preprocessing, "size_px", None)
    if size_px is None:
        return
    draws = np.random.default_rng(0).random((100, max(getattr(preprocessing, "num_draws", 0), 1)), np.float32)
    side = tf.constant(short_side)
    windows = np.array([preprocessing.window(side, side, tf.constant(row)) for row in draws])
    warning = explain_short_side(short_side, size_px=size_px, window_sides=windows[:, 2:].min(axis=1))
    if warning:
        _log.warning("%s", warning)


def moving_averages_note(config: Config, last_step: int) -> str | None:
    """Returns a note for a run that is too short for its batch norm's moving averages to settle."""
    decay = build.batch_norm_decay(config)
    # A checkpoint's averages have settled.
    if decay is None or decay**last_step <= 0.1 or config.restore.checkpoint is not None:
        return None
    return (
        f"model.batch_norm_decay={decay:g} over {last_step} steps: the moving averages of batch norm are still "
        f"{100 * decay**last_step:.0f} % initial value at the end, so evaluation looks worse than training. Train "
        "longer, or lower the decay (0.9 settles in about 50 steps)."
    )


def unmoved_statistics_note(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> str | None:
    """Returns a note if batch norm's statistics are those of before the steps that were made.

    Args:
        before: From `Trainer.statistics`, before the first step.
        after: From the same, after the last.
    """
    unmoved = [name for name in before if np.array_equal(before[name], after[name])]
    if not unmoved:
        return None
    return (
        f"{len(unmoved)} of {len(before)} moving statistics of batch norm did not move in training, first "
        f"{unmoved[0]}: evaluation goes by what they were at the start. Does the network hand is_training on to its "
        "batch_norm layers, and leave their updates_collections as they are?"
    )
