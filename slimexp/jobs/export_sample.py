"""The real images that an export is held against evaluation on, with what evaluation says of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.config import Config
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Split
from slimexp.export.check import Sample
from slimexp.export.decoding import FORMATS
from slimexp.export.scoring import probabilities
from slimexp.jobs.trained import Trained, pipeline_settings
from slimexp.pipeline import Feed
from slimexp.pipeline.images.formats import identify
from slimexp.pipeline.record_faults import read_pictures
from slimexp.pipeline.skipping import SkippedImages
from slimexp.training.inference import Inference
from slimexp.training.signals import StopSignals

__all__ = ["take_sample"]

# The sample goes through in batches of this size.
_BATCH = 8


def take_sample(config: Config, trained: Trained, signals: StopSignals) -> Sample:
    """Takes real images through evaluation's own pipeline and network.

    With `pipeline.decoder=tensorflow`, since a graph has TensorFlow's decoders. The native op, which evaluation takes
    where it can (`auto`), differs from them by 0.001 grey levels on average where a photo is decoded at full size (24
    cut-outs of two photos at 299, 224 and 75 pixels; scores of 359 digits: 0.000006 at most), and by 0.6 to 1.8 where
    it is large enough to be decoded at a smaller scale, since TensorFlow's ops then cut at whole pixels of that.

    Records are taken from the beginning, files from everywhere in the split.

    Args:
        config: Checked.
        trained: The network with its weights and its dataset, of which the held-out examples are taken if there are.
        signals: A stop is obeyed while a batch is waited for.

    Raises:
        UserError: If a file is not there, or none is an image that can be read; single bad images are left out.
    """
    data = trained.data
    split = data.eval if data.eval is not None else data.train
    wanted = min(config.export.check_images, len(split))
    chosen = _spread(split, wanted)
    settings = dataclasses.replace(pipeline_settings(config, batch_size=min(_BATCH, wanted)), decoder="tensorflow")
    inference = Inference(trained.classifier, tf.distribute.OneDeviceStrategy("/cpu:0"))
    images: list[np.ndarray] = []
    logits: list[np.ndarray] = []
    indices: list[np.ndarray] = []
    feed = Feed(
        chosen,
        preprocessing=trained.preprocessing,
        settings=settings,
        seed=config.seed,
        is_training=False,
        check_stop=signals.check,
        skipped=SkippedImages(chosen, path=None, max_fraction=1.0),
    )
    with feed, contextlib.suppress(StopIteration):
        while sum(len(numbers) for numbers in indices) < wanted:
            batch = next(feed)
            values = inference.step(batch)
            valid = values["valid"]
            images.append(batch["image"].numpy()[valid])
            logits.append(values["logits"][valid])
            indices.append(values["index"][valid])
    numbers = np.concatenate(indices)[:wanted].tolist()
    return Sample(
        images=np.concatenate(images)[:wanted],
        scores=probabilities(np.concatenate(logits)[:wanted], data.task),
        paths=[chosen.path(number) for number in numbers],
        contents=_contents(chosen, numbers),
        split=f"{split.name} of {data.name}",
    )


def _spread(split: AnySplit, count: int) -> AnySplit:
    """Returns some examples from everywhere in the split; of records, which are read in sequence, all."""
    if not isinstance(split, Split):
        return split
    places = np.unique(np.linspace(0, len(split) - 1, count).round().astype(np.int64))
    return Split(
        split.name,
        [split.paths[place] for place in places],
        split.labels[places],
        split.source,
        None if split.lines is None else split.lines[places],
    )


def _contents(split: AnySplit, numbers: Sequence[int]) -> list[bytes | None]:
    """Reads the files, or records; None for what no graph can decode."""
    if isinstance(split, RecordSplit):
        pictures = read_pictures(split, numbers)
        found: list[Any] = [pictures[number] for number in numbers]
    else:
        found = [Path(os.fsdecode(split.paths[number])).read_bytes() for number in numbers]
    return [content if isinstance(content, bytes) and identify(content) in FORMATS else None for content in found]
