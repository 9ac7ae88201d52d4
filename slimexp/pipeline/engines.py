"""The preprocessing threads: from the bytes of files to batches of finished images, by TensorFlow's ops or our own.

Both engines decode only the window that the preprocessing chooses, mirror, resize, distort and scale alike.
"""

from __future__ import annotations

import abc
import functools
import itertools
import logging
from collections.abc import Callable
from typing import cast

import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.images.decode import decode_window
from slimexp.pipeline.native import build, ops
from slimexp.pipeline.preprocessing.base import PreprocessingLike, WindowPreprocessing
from slimexp.pipeline.settings import PipelineSettings
from slimexp.pipeline.steps import SteppedPreprocessing, inner_of

__all__ = ["Engine", "NativeEngine", "TensorFlowEngine", "choose_engine", "image_maker"]

_log = logging.getLogger("slimexp")

MakeImage = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Engine(abc.ABC):
    """What stands between the read queue and the batches.

    Attributes:
        num_calls: Graph calls of the engine that may be under way at once.
        pool: The name under which the native op counts what its threads do; None for TensorFlow's ops.
    """

    num_calls: int
    pool: str | None = None

    @abc.abstractmethod
    def batches(self, files: tf.data.Dataset, *, drop_remainder: bool) -> tf.data.Dataset:
        """Makes batches of images.

        Args:
            files: Bytes (string []), example number (int64 []), which may have more beside it, and draws (float32
                [num_draws]).
            drop_remainder: Whether to leave out a last batch that is not full.

        Returns:
            Images, float32 [batch_size, size, size, 3], and example numbers, int64 [batch_size], with what came beside.
        """


class TensorFlowEngine(Engine):
    """Makes each image by a call of TensorFlow's ops, `threads` at a time, and collects them into batches."""

    def __init__(self, make_image: MakeImage, settings: PipelineSettings) -> None:
        self._make_image = make_image
        self._settings = settings
        self.num_calls = settings.threads

    def batches(self, files: tf.data.Dataset, *, drop_remainder: bool) -> tf.data.Dataset:
        """See the base class."""

        def finish(contents: tf.Tensor, index: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self._make_image(contents, draws), index

        images = files.map(finish, num_parallel_calls=self._settings.threads, deterministic=True)
        images = images.prefetch(self._settings.queues()["prefetch"].capacity, name="prefetch_queue")
        return images.batch(self._settings.batch_size, drop_remainder=drop_remainder)


class NativeEngine(Engine):
    """Makes a batch by one call of the native op, whose own `threads` threads write the images into their places.

    So the prefetch queue is the batches in the making: as many as its capacity holds, two at the least, so that the
    threads find work while a batch waits for its last image. What the op leaves (other formats, damaged files, CMYK) is
    made by TensorFlow's ops.

    Steps of the user's own run behind it, image by image, in `threads` calls at a time.
    """

    _numbers = itertools.count()

    def __init__(
        self,
        preprocessing: WindowPreprocessing,
        make_image: MakeImage,
        settings: PipelineSettings,
        step: MakeImage | None = None,
    ) -> None:
        """Takes what makes the images.

        Args:
            preprocessing: Says in numbers what the op does.
            make_image: Does the same by TensorFlow's ops, from bytes and draws.
            settings: Threads, batch size, queue capacities.
            step: From a finished image and draws to another one.
        """
        self._preprocessing = preprocessing
        self._make_image = make_image
        self._settings = settings
        self._step = step
        self._batches_at_once = max(settings.queues()["prefetch"].capacity // settings.batch_size, 2)
        self.num_calls = self._batches_at_once + (settings.threads if step else 0)
        self.pool = f"slimexp {next(self._numbers)}"

    def batches(self, files: tf.data.Dataset, *, drop_remainder: bool) -> tf.data.Dataset:
        """See the base class."""
        batch_size, threads = self._settings.batch_size, self._settings.threads
        finish = tf.autograph.experimental.do_not_convert(self._finish)
        made = files.batch(batch_size, drop_remainder=drop_remainder).map(
            finish, num_parallel_calls=self._batches_at_once, deterministic=True
        )
        if self._step is None:
            return made
        # Image by image, so that a step that takes its time has all threads. Measured against all by TensorFlow's ops,
        # with the step among them: 1.16 times the images for each second of processor time, for all that
        # taking batches apart costs (`scripts/measure_steps.py`).
        images = made.unbatch().map(self._apply_step, num_parallel_calls=threads, deterministic=True)
        return images.batch(batch_size, drop_remainder=drop_remainder)

    @tf.autograph.experimental.do_not_convert
    def _apply_step(self, image: tf.Tensor, index: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        assert self._step is not None
        return self._step(image, draws), index

    def _finish(self, contents: tf.Tensor, index: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, ...]:
        if self._step is None:
            return self._make(contents, draws), index
        return self._make(contents, draws[:, : max(self._preprocessing.num_draws, 1)]), index, draws

    def _make(self, contents: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        preprocessing = self._preprocessing
        sizes, orientations = ops.read_headers(contents, exif=self._settings.exif)
        # What has no size here is left by the op, whatever its window is.
        height, width = tf.unstack(tf.maximum(sizes, 1), axis=1)
        windows = preprocessing.window(height, width, draws)
        flips = preprocessing.flips(draws)
        images, done = ops.decode_windows(
            contents,
            windows,
            orientations,
            tf.fill(tf.shape(contents), False) if flips is None else flips,
            preprocessing.colors(draws),
            scale=preprocessing.scale,
            offset=preprocessing.offset,
            size_px=preprocessing.size_px,
            threads=self._settings.threads,
            pool=self.pool,
            color_orders=preprocessing.color_orders,
        )
        return tf.cond(tf.reduce_all(done), lambda: images, lambda: self._complete(images, done, contents, draws))

    def _complete(self, images: tf.Tensor, done: tf.Tensor, contents: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        rows = tf.where(~done)[:, 0]

        def make(row: tf.Tensor) -> tf.Tensor:
            return self._make_image(contents[row], draws[row])

        made = tf.map_fn(make, rows, fn_output_signature=tf.TensorSpec(images.shape[1:], tf.float32))
        return tf.tensor_scatter_nd_update(images, rows[:, tf.newaxis], made)


def choose_engine(preprocessing: PreprocessingLike, settings: PipelineSettings) -> Engine:
    """Returns the engine that `settings.decoder` asks for.

    Raises:
        UserError: If the preprocessing cannot be used, or the native op is asked for and cannot be had.
    """
    _check_methods(preprocessing)
    make_image = image_maker(preprocessing, settings)
    _check_image(make_image, preprocessing)
    if settings.decoder == "tensorflow":
        return TensorFlowEngine(make_image, settings)
    reason = _why_not_native(preprocessing, settings)
    if reason is None and isinstance(preprocessing, SteppedPreprocessing):
        inner = cast(WindowPreprocessing, preprocessing.inner)
        return NativeEngine(inner, image_maker(inner, settings), settings, preprocessing.apply_finished)
    if reason is None:
        return NativeEngine(cast(WindowPreprocessing, preprocessing), make_image, settings)
    if settings.decoder == "native":
        raise UserError(f"pipeline.decoder=native is refused: {reason} Leave it at auto, or set it to tensorflow.")
    _say_once(f"pipeline.decoder=auto: TensorFlow's ops, as {reason}")
    return TensorFlowEngine(make_image, settings)


@functools.cache
def _say_once(message: str) -> None:
    _log.info("%s", message)


def _why_not_native(preprocessing: PreprocessingLike, settings: PipelineSettings) -> str | None:
    if isinstance(preprocessing, SteppedPreprocessing):
        early = next((step for step in preprocessing.steps if step.at == "decoded"), None)
        if early is not None:
            return f"{early.stage} has at=decoded, and the native op decodes and resizes in one go."
    preprocessing = inner_of(preprocessing)
    kind = type(preprocessing)
    if (
        not isinstance(preprocessing, WindowPreprocessing)
        or getattr(preprocessing.finish, "__func__", None) is not WindowPreprocessing.finish
    ):
        return (
            "the native op does what a WindowPreprocessing says in numbers (vgg, inception, none), and "
            f"{kind.__name__} is none."
        )
    if not _takes_many(preprocessing):
        return f"{kind.__name__}.window takes one picture at a time; the native op needs it to take many."
    if not settings.scaled_decode:
        return "pipeline.scaled_decode=false, and the native op always decodes large photos at a reduced size."
    library, reason = build.ensure(_log)
    return None if library is not None else f"{reason}"


def _takes_many(preprocessing: WindowPreprocessing) -> bool:
    """Tells whether `window` is written for many pictures at once, as a subclass of the user's may not be."""
    sizes = tf.constant([[64, 48], [48, 64], [64, 64]])
    draws = tf.zeros([3, max(preprocessing.num_draws, 1)])
    try:
        windows = preprocessing.window(sizes[:, 0], sizes[:, 1], draws)
        one_by_one = [preprocessing.window(size[0], size[1], row) for size, row in zip(sizes, draws, strict=True)]
        return bool(tf.reduce_all(windows == tf.stack(one_by_one)))
    except (ValueError, TypeError, tf.errors.OpError):
        return False


def image_maker(preprocessing: PreprocessingLike, settings: PipelineSettings) -> MakeImage:
    """Returns the function that turns a file's bytes and an example's draws into a finished image."""
    size_px = getattr(preprocessing, "size_px", None)
    # Others may count on the window's pixels one by one.
    shrink_to_px = size_px if isinstance(inner_of(preprocessing), WindowPreprocessing) else None

    def make_image(contents: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        window = decode_window(
            contents,
            lambda height, width: preprocessing.window(height, width, draws),
            exif=settings.exif,
            size_px=shrink_to_px,
            scaled=settings.scaled_decode,
        )
        image = tf.convert_to_tensor(preprocessing.finish(window, draws))
        # A function wrapped from Python leaves the shape open; then it is tested as the image is made.
        if size_px is not None and not image.shape.is_fully_defined():
            image = tf.ensure_shape(image, [size_px, size_px, 3])
        return image

    # Rewriting Python's `if` takes seconds, and only a preprocessing of the user's own may need it.
    return tf.autograph.experimental.do_not_convert(make_image) if _is_ours(preprocessing) else make_image


def _is_ours(preprocessing: PreprocessingLike) -> bool:
    return type(preprocessing).__module__.startswith("slimexp.pipeline.preprocessing.")


def _check_methods(preprocessing: PreprocessingLike) -> None:
    preprocessing = inner_of(preprocessing)
    for method in ("window", "finish"):
        if not callable(getattr(preprocessing, method, None)):
            raise UserError(
                f"preprocessing._target_ gave a {type(preprocessing).__name__}, which has no method `{method}`. It "
                "needs window(height, width, draws) and finish(image, draws); slimexp.pipeline.preprocessing.base "
                "describes them."
            )


def _check_image(make_image: MakeImage, preprocessing: PreprocessingLike) -> None:
    """Refuses a preprocessing whose images cannot be batched for a network."""
    if _is_ours(preprocessing):  # Then it is known, and building the graph once less takes a third of a second less.
        return
    draws = tf.TensorSpec([max(getattr(preprocessing, "num_draws", 0), 1)], tf.float32)
    spec = tf.function(make_image).get_concrete_function(tf.TensorSpec([], tf.string), draws).outputs[0]
    shape = spec.shape
    is_image = shape.rank == 3 and shape.is_fully_defined()
    if spec.dtype == tf.float32 and is_image:
        return
    name = type(inner_of(preprocessing)).__name__
    raise UserError(
        f"{name}.finish returns {spec.dtype.name} {shape}; it must return float32 images of a "
        "fixed shape [height, width, channels]. Convert with tf.cast, and give a shape that TensorFlow cannot tell "
        "with tf.ensure_shape."
    )
