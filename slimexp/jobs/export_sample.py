"""The images that an export is held against evaluation on, with what evaluation says of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from slimexp.config import Config
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Split
from slimexp.errors import UserError
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
# Generated images differ less from each other than photos do: more of them find no more.
_MOST_GENERATED = 8


def take_sample(config: Config, trained: Trained, signals: StopSignals) -> tuple[Sample, str | None]:
    """Takes real images through evaluation's own pipeline and network; generated ones where there are none.

    With `pipeline.decoder=tensorflow`, since a graph has TensorFlow's decoders. The native op, which evaluation takes
    where it can (`auto`), differs from them by 0.001 grey levels on average where a photo is decoded at full size (24
    cut-outs of two photos at 299, 224 and 75 pixels; scores of 359 digits: 0.000006 at most), and by 0.6 to 1.8 where
    it is large enough to be decoded at a smaller scale, since TensorFlow's ops then cut at whole pixels of that.

    Records are taken from the beginning, files from everywhere in the split.

    Args:
        config: Checked.
        trained: The network with its weights and its dataset, of which the held-out examples are taken if there are.
        signals: A stop is obeyed while a batch is waited for.

    Returns:
        The images, and a note where they are generated: why, and how to have real ones taken.

    Raises:
        UserError: If evaluation itself fails on generated images; single bad images are left out.
    """
    data, reason = trained.data, trained.without_data
    if data is not None:
        split = data.eval if data.eval is not None else data.train
        count = min(config.export.check_images, len(split))
        try:
            return _take(config, trained, _spread(split, count), f"{split.name} of {data.name}", count, signals), None
        except UserError as error:
            reason = str(error).splitlines()[0]
    note = (
        "checked on generated images alone, as those of the dataset cannot be read. With the keys that say where they "
        f"are now, e.g. dataset.root=PATH, it is checked on them: {reason}"
    )
    count = min(config.export.check_images, _MOST_GENERATED)
    with tempfile.TemporaryDirectory() as folder:
        split = _generated(Path(folder), trained, count)
        return _take(config, trained, split, "generated", count, signals), note


def _take(
    config: Config, trained: Trained, split: AnySplit, description: str, wanted: int, signals: StopSignals
) -> Sample:
    """Returns the first `wanted` images of a split that can be read, with what evaluation says of them."""
    settings = dataclasses.replace(pipeline_settings(config, batch_size=min(_BATCH, wanted)), decoder="tensorflow")
    inference = Inference(trained.classifier, tf.distribute.OneDeviceStrategy("/cpu:0"))
    images: list[np.ndarray] = []
    logits: list[np.ndarray] = []
    indices: list[np.ndarray] = []
    feed = Feed(
        split,
        preprocessing=trained.preprocessing,
        settings=settings,
        seed=config.seed,
        is_training=False,
        check_stop=signals.check,
        skipped=SkippedImages(split, path=None, max_fraction=1.0),
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
        scores=probabilities(np.concatenate(logits)[:wanted], trained.classes.task),
        paths=[split.path(number) for number in numbers],
        contents=_contents(split, numbers),
        split=description,
    )


def _generated(folder: Path, trained: Trained, count: int) -> Split:
    """Writes images of soft colours and some noise, of several sizes, as JPEG and PNG by turns."""
    random, side = np.random.default_rng(0), trained.image_size
    paths = []
    for number in range(count):
        height, width = (int(side * factor) + 8 for factor in random.uniform(0.8, 2.0, size=2))
        coarse = Image.fromarray(random.integers(0, 256, [4, 4, 3], dtype=np.uint8)).resize((width, height))
        noise = random.normal(0, 10, [height, width, 3])
        pixels = np.clip(np.asarray(coarse, np.float64) + noise, 0, 255).astype(np.uint8)
        path = folder / f"generated-{number}.{'png' if number % 2 else 'jpg'}"
        Image.fromarray(pixels).save(path)
        paths.append(os.fsencode(path))
    num_classes = len(trained.classes.names)
    is_single = trained.classes.task == "single"
    labels = np.zeros([count], np.int32) if is_single else np.zeros([count, num_classes], np.int8)
    return Split("generated", paths, labels, str(folder))


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
