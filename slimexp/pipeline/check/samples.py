"""Some of a split's images as the network gets them, made by the real pipeline and made fit to be shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Split
from slimexp.pipeline.feed import Feed
from slimexp.pipeline.images.pillow_decode import decode_in_python
from slimexp.pipeline.preprocessing.base import PreprocessingLike, WindowPreprocessing
from slimexp.pipeline.record_faults import read_pictures
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.skipping import SkippedImages
from slimexp.pipeline.steps import inner_of

__all__ = ["Sample", "Shower", "take_samples"]

_LEVELS = (0.0, 100.0, 200.0)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One image.

    Attributes:
        index: The example's number in the split.
        image: uint8 [height, width, 3], what the network gets, as far as it can be shown.
        original: uint8 [h, w, 3], the whole picture it was made of, made smaller.
        label: int32 [] or int8 [num_classes].
    """

    index: int
    image: np.ndarray
    original: np.ndarray
    label: np.ndarray


class Shower:
    """Turns finished images back into colours of 0..255.

    Attributes:
        is_stretched: Whether the preprocessing's scale is not known or differs from image to image: then each image's
            least value is shown as black and its greatest as white.
    """

    def __init__(self, preprocessing: PreprocessingLike) -> None:
        """Finds out what a preprocessing makes of a colour value."""
        scale_and_offset = _scale_and_offset(inner_of(preprocessing))
        self.is_stretched = scale_and_offset is None
        self._scale: np.ndarray
        self._offset: np.ndarray
        self._scale, self._offset = scale_and_offset or (np.ones(3), np.zeros(3))

    def show(self, image: np.ndarray) -> np.ndarray:
        """Returns uint8 [height, width, 3].

        Args:
            image: float32 [height, width, channels], of three channels or one.
        """
        image = np.nan_to_num(np.asarray(image, np.float64))
        if image.shape[-1] != 3:
            image = np.repeat(image[..., :1], 3, axis=-1)
        if self.is_stretched:
            low, high = image.min(), image.max()
            values = (image - low) * (255 / max(high - low, 1e-12))
        else:
            values = (image - self._offset) / self._scale
        return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _scale_and_offset(preprocessing: PreprocessingLike) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns factor and summand of each channel, float64 [3]; None if it is not as simple as that."""
    if isinstance(preprocessing, WindowPreprocessing):
        return np.full(3, preprocessing.scale, np.float64), np.broadcast_to(preprocessing.offset, [3]).astype(
            np.float64
        )
    side = getattr(preprocessing, "size_px", None) or 32
    draws = tf.fill([max(getattr(preprocessing, "num_draws", 0), 1)], 0.5)
    try:
        made = [
            np.asarray(preprocessing.finish(tf.fill([side, side, 3], tf.constant(int(level), tf.uint8)), draws))
            for level in _LEVELS
        ]
        middle = np.array([image[image.shape[0] // 2, image.shape[1] // 2] for image in made], np.float64)
    except Exception:  # A class of the user's own may want something else; its own faults were told before.
        return None
    if middle.shape[1] != 3:
        middle = np.repeat(middle[:, :1], 3, axis=1)
    scale = (middle[2] - middle[0]) / (_LEVELS[2] - _LEVELS[0])
    is_straight = np.allclose(middle[1] - middle[0], scale * (_LEVELS[1] - _LEVELS[0]), rtol=1e-3)
    return (scale, middle[0]) if is_straight and (np.abs(scale) > 1e-9).all() else None


def take_samples(
    split: AnySplit,
    *,
    is_sound: np.ndarray,
    preprocessing: PreprocessingLike,
    settings: PipelineSettings,
    seed: int,
    is_training: bool,
    count: int,
    original_px: int,
    check_stop: Callable[[], None] = lambda: None,
    **file_access: Any,
) -> list[Sample]:
    """Makes some images by the pipeline.

    For training they are the first that a run of this seed and batch size would see; for evaluation ones that the seed
    chooses, or of records the first. Examples that are not sound are left out.

    Args:
        split: The examples.
        is_sound: bool [n].
        preprocessing: That of training or of evaluation.
        settings: The pipeline's.
        seed: The seed of the run.
        is_training: Whether to go through the split as training does.
        count: How many to make, if there are so many.
        original_px: The most pixels that the longer side of `original` has.
        check_stop: Called a few times a second; what it raises ends it.
        file_access: Where the files' bytes come from, see `Feed`.
    """
    indices = np.flatnonzero(is_sound)
    if not count or not len(indices):
        return []
    numbers = np.arange(len(split))
    if not is_training and isinstance(split, Split):
        numbers = np.sort(np.random.default_rng(seed).permutation(indices)[:count])
        split = _part(split, numbers)
        is_sound = np.ones(len(numbers), bool)
    skipped = None
    if not is_sound.all():
        skipped = SkippedImages(split, path=None, max_fraction=1.0)
        skipped.leave_out(np.flatnonzero(~is_sound).tolist(), "not sound")
    settings = dataclasses.replace(settings, batch_size=min(settings.batch_size, len(split)))
    taken: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    feed = Feed(
        split,
        preprocessing=preprocessing,
        settings=settings,
        seed=seed,
        is_training=is_training,
        # One device is enough, whatever the strategy.
        strategy=tf.distribute.get_strategy(),
        skipped=skipped,
        check_stop=check_stop,
        **file_access,
    )
    with feed:
        for _ in range(-(-len(split) // settings.batch_size)):
            batch = {key: value.numpy() for key, value in next(feed).items()}
            for row in np.flatnonzero(batch["valid"]):
                taken.setdefault(int(batch["index"][row]), (batch["image"][row], batch["label"][row]))
            if len(taken) >= count:
                break
    shower = Shower(preprocessing)
    chosen = list(taken)[:count]
    originals = _originals(split, chosen, exif=settings.exif, most_px=original_px)
    return [
        Sample(int(numbers[index]), shower.show(taken[index][0]), originals[index], np.asarray(taken[index][1]))
        for index in chosen
    ]


def _part(split: Split, numbers: np.ndarray) -> Split:
    lines = None if split.lines is None else split.lines[numbers]
    return Split(split.name, [split.paths[n] for n in numbers], split.labels[numbers], split.source, lines)


def _originals(split: AnySplit, indices: Sequence[int], *, exif: bool, most_px: int) -> dict[int, np.ndarray]:
    """Decodes whole pictures, uint8 [h, w, 3], and makes them smaller."""
    pictures = read_pictures(split, indices) if isinstance(split, RecordSplit) else {}
    originals = {}
    for index in indices:
        contents = pictures.get(index, b"")
        if isinstance(split, Split):
            with open(split.paths[index], "rb") as file:
                contents = file.read()
        assert isinstance(contents, bytes), contents
        image = Image.fromarray(decode_in_python(contents, exif=exif))
        image.thumbnail((most_px, most_px))
        originals[index] = np.asarray(image)
    return originals
