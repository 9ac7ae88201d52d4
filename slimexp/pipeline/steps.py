"""Steps of a user's own within a preprocessing: a TensorFlow function, a NumPy function, or a C++ op from a library.

A step gets one image and returns one of the same type. It stands behind the preprocessing (`at="finished"`: float32
[size, size, 3], what the network takes) or before it (`at="decoded"`: uint8 [height, width, 3], the window as it was
decoded, perhaps at a reduced size). What is random in it follows from `draws`, so that it comes out the same for any
number of threads and in a run that goes on.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.pipeline.images.pillow_decode import cause_of
from slimexp.pipeline.preprocessing.base import Preprocessing, PreprocessingLike

__all__ = ["AT", "Step", "StepError", "SteppedPreprocessing", "inner_of", "load_op"]

AT = ("decoded", "finished")

# What throws a coin, mirrors say, is found out with 127 of 128.
_MOST_PROBES, _MOST_PROBE_SECS = 8, 1.0

Function = Callable[..., Any]


class StepError(UserError):
    """A step cannot be used, or failed on an image.

    Attributes:
        stage: The step, as messages name it.
    """

    def __init__(self, stage: str, problem: str) -> None:
        super().__init__(f"{stage} {problem}")
        self.stage = stage


class Step:
    """One function with its keys, called on one image after another.

    Attributes:
        key: The configuration key, e.g. `preprocessing.steps[0]`.
        at: One of `AT`.
        num_draws: How many random numbers it takes.
    """

    def __init__(
        self,
        key: str,
        function: Function,
        keys: Mapping[str, Any] | None = None,
        *,
        is_numpy: bool = False,
        at: str = "finished",
        num_draws: int = 0,
        name: str | None = None,
    ) -> None:
        """Holds the function's arguments against its signature.

        Args:
            key: For messages.
            function: Takes the image first, then `keys` by name, and `draws` (float32 [num_draws], each uniform in
                [0, 1): the example's in this epoch) if it has a parameter of that name.
            keys: Its further arguments.
            is_numpy: Whether it takes and returns NumPy arrays. It gets a copy, which it may change.
            at: One of `AT`.
            num_draws: How many random numbers to give it; 0 for a function without `draws`.
            name: What messages call the function; by default its module and name.

        Raises:
            StepError: If the function does not take these arguments.
        """
        self.key = key
        self.at = at
        self.num_draws = num_draws
        self.stage = f"{key} ({name or _name_of(function)})"
        self._function = function
        self._keys = dict(keys or {})
        self._is_numpy = is_numpy
        self._takes_draws = self._check_arguments()
        # Traced once for each kind of image, with Python's `if` and `for` on tensors turned into TensorFlow's.
        self._traced = None if is_numpy else tf.function(self._call, reduce_retracing=True)

    def _check_arguments(self) -> bool:
        """Refuses keys that the function does not take; returns whether it takes draws."""
        assert self.at in AT, self.at
        try:
            signature = inspect.signature(self._function)
        except ValueError:  # Some of those written in C have none.
            return self.num_draws > 0
        takes_draws = "draws" in signature.parameters
        if takes_draws and not self.num_draws:
            raise self.error("takes draws: say how many random numbers it wants an image, with the key num_draws.")
        if self.num_draws and not takes_draws:
            raise self.error(
                f"has num_draws={self.num_draws}, but no parameter `draws` to take them. Give the function one, or "
                "leave num_draws out."
            )
        try:
            signature.bind(None, **self._keys, **({"draws": None} if takes_draws else {}))
        except TypeError as error:
            raise self.error(
                f"cannot be called so: {error}. It gets the image first, and its own keys by name; it takes "
                f"{signature}."
            ) from error
        return takes_draws

    @tf.autograph.experimental.do_not_convert
    def __call__(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Adds the step to a graph, or runs it.

        Args:
            image: uint8 [height, width, 3] or float32 [size, size, 3], by `at`.
            draws: float32 [num_draws].

        Returns:
            An image of the same type; of the same shape, too, where the step stands behind the preprocessing.

        Raises:
            StepError: If the function fails or returns something else.
        """
        try:
            if self._is_numpy:
                if tf.executing_eagerly():
                    result = tf.constant(self._run_numpy(image.numpy(), draws.numpy()))
                else:
                    result = tf.numpy_function(self._run_numpy, [image, draws], image.dtype, stateful=False)
            else:
                assert self._traced is not None
                result = self._traced(image, draws)
        except StepError:
            raise
        except Exception as error:
            raise self._failure(_in_words(error)) from error
        return self._checked(result, image)

    def probe(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Runs the step on one image, in a graph as the pipeline does, and several times.

        Raises:
            StepError: If it fails, returns something else than an image, or not always the same.
        """
        shape = [None, None, 3] if self.at == "decoded" else image.shape
        trace = tf.function(self, autograph=False).get_concrete_function(
            tf.TensorSpec(shape, image.dtype), tf.TensorSpec(draws.shape, tf.float32)
        )
        self(image, draws)  # What a NumPy function raises keeps its type only outside of a graph.
        start = time.monotonic()
        first = None
        for _ in range(_MOST_PROBES):
            try:
                result = trace(image, draws)
            except tf.errors.OpError as error:
                raise self._failure(cause_of(error)) from error
            if first is None:
                first = result
            elif not np.array_equal(first.numpy(), result.numpy(), equal_nan=image.dtype.is_floating):
                raise self.error(
                    "returns different images for the same one, so no run could be repeated or gone on with. Give it "
                    "a parameter `draws` and the key num_draws: random numbers that belong to image and epoch."
                )
            elif time.monotonic() - start > _MOST_PROBE_SECS:
                break
        return first

    def error(self, problem: str) -> StepError:
        """Returns an error that names the step."""
        return StepError(self.stage, problem)

    def _failure(self, cause: str) -> StepError:
        return self.error(f"fails: {cause}" if cause.endswith(".") else f"fails: {cause}.")

    def _call(self, image: tf.Tensor, draws: tf.Tensor) -> Any:
        if self._takes_draws:
            return self._function(image, draws=draws, **self._keys)
        return self._function(image, **self._keys)

    def _run_numpy(self, image: np.ndarray, draws: np.ndarray) -> np.ndarray:
        # TensorFlow hands out its own memory, in which the image before this step may still be wanted.
        result = self._call(image.copy(), draws)
        if not isinstance(result, np.ndarray):
            raise self.error(f"returns a {type(result).__name__}; it must return a NumPy array.")
        wanted = np.dtype(image.dtype)
        if result.dtype != wanted:
            shape = list(result.shape)
            raise self.error(
                f"returns {result.dtype} {shape}; it must return {self._wanted(image.shape, wanted.name)}. "
                f"End it with .astype(np.{wanted.name}), or keep float64 constants out of it."
            )
        self._check_shape(tf.TensorShape(result.shape), image.shape, result.dtype.name)
        return result

    def _checked(self, result: Any, image: tf.Tensor) -> tf.Tensor:
        if not tf.is_tensor(result):
            raise self.error(f"returns a {type(result).__name__}; it must return one image tensor.")
        if result.dtype != image.dtype:
            raise self.error(
                f"returns {result.dtype.name} {result.shape}; it must return "
                f"{self._wanted(image.shape, image.dtype.name)}. Convert with tf.cast."
            )
        self._check_shape(result.shape, image.shape, result.dtype.name)
        return tf.ensure_shape(result, [None, None, 3] if self.at == "decoded" else image.shape)

    def _check_shape(self, shape: tf.TensorShape, before: Sequence[int], dtype: str) -> None:
        wanted = tf.TensorShape([None, None, 3]) if self.at == "decoded" else tf.TensorShape(before)
        is_empty = shape.rank is not None and 0 in shape.as_list()
        if is_empty or not wanted.is_compatible_with(shape):
            raise self.error(f"returns {dtype} {shape}; it must return {self._wanted(before, dtype)}.")

    def _wanted(self, before: Sequence[int], dtype: str) -> str:
        return f"{dtype} [height, width, 3]" if self.at == "decoded" else f"{dtype} {list(before)}, as it gets"


class SteppedPreprocessing(Preprocessing):
    """A preprocessing with steps before and behind it.

    Attributes:
        inner: The preprocessing itself.
        steps: The steps, in order.
    """

    def __init__(self, inner: PreprocessingLike, steps: Sequence[Step]) -> None:
        """Puts them together, and tries each step on an image of noise.

        Raises:
            StepError: If a step fails on it.
        """
        self.inner = inner
        self.steps = tuple(steps)
        size_px: Any = getattr(inner, "size_px", None)  # A class of the user's own need not say.
        self.size_px = size_px
        self.is_training = getattr(inner, "is_training", False)
        self._inner_draws = getattr(inner, "num_draws", 0)
        starts = np.cumsum([self._inner_draws, *(step.num_draws for step in self.steps)])
        self._starts = dict(zip(self.steps, starts.tolist(), strict=False))
        self.num_draws = int(starts[-1])
        with tf.device("/CPU:0"):
            self._probe()

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Chooses what the preprocessing chooses; see the base class."""
        return self.inner.window(height, width, self._of_inner(draws))

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Applies steps, preprocessing and steps; see the base class."""
        for step in self.steps:
            if step.at == "decoded":
                image = step(image, self._of_step(step, draws))
        finished = tf.convert_to_tensor(self.inner.finish(image, self._of_inner(draws)))
        return self.apply_finished(finished, draws)

    def apply_finished(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Applies the steps that stand behind the preprocessing.

        Args:
            image: float32 [size, size, 3].
            draws: float32 [num_draws], all of the example's.

        Returns:
            float32 [size, size, 3].
        """
        if self.size_px is not None:
            image = tf.ensure_shape(image, [self.size_px, self.size_px, 3])
        for step in self.steps:
            if step.at == "finished":
                image = step(image, self._of_step(step, draws))
        return image

    def _of_inner(self, draws: tf.Tensor) -> tf.Tensor:
        return draws[..., : max(self._inner_draws, 1)]

    def _of_step(self, step: Step, draws: tf.Tensor) -> tf.Tensor:
        start = self._starts[step]
        return draws[start : start + step.num_draws]

    def _probe(self) -> None:
        random = np.random.RandomState(0)
        draws = tf.constant(random.uniform(size=max(self.num_draws, 1)), tf.float32)
        inner_draws = self._of_inner(draws)
        side = 2 * (self.size_px or 256)
        window = self.inner.window
        try:
            _, _, height, width = (int(number) for number in window(tf.constant(side), tf.constant(side), inner_draws))
            decoded = tf.constant(random.randint(0, 256, [height, width, 3]), tf.uint8)
            image = tf.convert_to_tensor(self.inner.finish(decoded, inner_draws))
        except Exception:
            return  # The preprocessing itself is at fault, of which its own checks tell.
        for step in self.steps:
            if step.at == "decoded":
                decoded = step.probe(decoded, self._of_step(step, draws))
                try:
                    image = tf.convert_to_tensor(self.inner.finish(decoded, inner_draws))
                except Exception as error:
                    raise step.error(
                        f"turns an image of {height} x {width} into one of {decoded.shape[0]} x {decoded.shape[1]}, "
                        f"which {type(self.inner).__name__} cannot take: {cause_of(error)}"
                    ) from error
        for step in self.steps:
            if step.at == "finished":
                image = step.probe(image, self._of_step(step, draws))


def inner_of(preprocessing: PreprocessingLike) -> PreprocessingLike:
    """Returns a preprocessing without the steps around it."""
    return preprocessing.inner if isinstance(preprocessing, SteppedPreprocessing) else preprocessing


def load_op(key: str, library: str, op: str) -> Function:
    """Loads a C++ op from a library.

    Args:
        key: The configuration key of the step, for messages.
        library: The file, as `scripts/build_op` makes it.
        op: The op's name, as registered or as a function's (`MyOp`, `my_op`).

    Returns:
        A function of the op's inputs and attributes.

    Raises:
        UserError: If the file cannot be loaded or has no such op.
    """
    path = Path(library).expanduser().absolute()
    if not path.is_file():
        raise UserError(
            f"{key}.library={library}: there is no such file. ./scripts/build_op FILE.cc makes a library of an op's "
            "source."
        )
    try:
        module = _load_library(str(path), path.stat().st_mtime_ns)
    except (tf.errors.OpError, RuntimeError) as error:
        raise UserError(
            f"{key}.library={library}: cannot be loaded: {cause_of(error)}. It must be built for TensorFlow "
            f"{tf.__version__} and this machine: ./scripts/build_op FILE.cc does that."
        ) from error
    # A wrapper of each op, with one beside it for eager calls.
    ops = [name.removesuffix("_eager_fallback") for name in vars(module) if name.endswith("_eager_fallback")]
    wanted = op.replace("_", "").lower()
    for name in ops:
        if name.replace("_", "").lower() == wanted:
            return getattr(module, name)
    raise UserError(f"{key}.op={op}: {library} has no such op; it has {', '.join(sorted(ops)) or 'none at all'}.")


@functools.cache
def _load_library(path: str, mtime_ns: int) -> Any:
    return tf.load_op_library(path)


def _name_of(function: Function) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', None) or 'builtins'}.{name}"


def _in_words(error: Exception) -> str:
    """Returns what a function raised, without AutoGraph's account of the way there, but with the line."""
    text = cause_of(error)
    if "in user code:" not in text:
        return f"{type(error).__name__}: {text}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ")]
    return f"{lines[-1]}" + (f" ({places[-1].rstrip('*').strip()})" if places else "")
