"""The exported model as a `tf.Module`: its two signatures, with decoding and preprocessing inside."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from slimexp.export.decoding import decode_window_by_ops
from slimexp.export.manifest import EXTRA
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.steps import inner_of

__all__ = ["IMAGES", "IMAGE_BYTES", "ExportedModel", "why_no_bytes"]

# The names of the signatures, and of their inputs.
IMAGE_BYTES, IMAGES = "image_bytes", "images"

# Pictures of a batch that are decoded at the same time, if there are cores.
_PARALLEL = 16

Forward = Callable[[tf.Tensor], tf.Tensor]


class ExportedModel(tf.Module):
    """A trained network that takes files' bytes or finished images, and says what is on them.

    Both signatures return `scores`, float32 [n, C] (softmax or sigmoid, by task), `logits`, float32 [n, C], and
    `classes`, string [C], the names in the order of the scores.

    Args:
        forward: From images, float32 [n, size, size, 3], to logits, float32 [n, C], in inference mode.
        variables: What `forward` uses.
        class_names: The C names.
        task: `single` or `multi`.
        image_size: The images' side in pixels.
        preprocessing: That of evaluation; None leaves out the signature `image_bytes`.
        exif: Whether pictures are turned as EXIF says.
        scaled: Whether large JPEGs are decoded at a smaller scale, as suits a `WindowPreprocessing` alone.
    """

    def __init__(
        self,
        forward: Forward,
        *,
        variables: Sequence[Any],
        class_names: Sequence[str],
        task: str,
        image_size: int,
        preprocessing: PreprocessingLike | None,
        exif: bool = True,
        scaled: bool = True,
    ) -> None:
        super().__init__(name="slimexp_model")
        self.model_variables = list(variables)
        self._forward = forward
        self._names = [name.encode() for name in class_names]
        self._activation = tf.sigmoid if task == "multi" else tf.nn.softmax
        self._image_size = image_size
        shape = [None, image_size, image_size, 3]
        self.images = tf.function(
            self._of_images, input_signature=[tf.TensorSpec(shape, tf.float32, name=IMAGES)], autograph=False
        )
        self.image_bytes: Any = None
        if preprocessing is None:
            return
        draws = tf.zeros([max(getattr(preprocessing, "num_draws", 0), 1)])

        def window(height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
            return tf.cast(preprocessing.window(height, width, draws), tf.int32)

        def finish(image: tf.Tensor) -> tf.Tensor:
            finished = tf.convert_to_tensor(preprocessing.finish(image, draws))
            return tf.ensure_shape(finished, [image_size, image_size, 3])

        # Kept as functions, so that a copy of the model can do without the code that they were made by.
        integer, autograph = tf.TensorSpec([], tf.int32), _needs_autograph(preprocessing)
        self.window = tf.function(window, input_signature=[integer, integer], autograph=autograph)
        image_spec = tf.TensorSpec([None, None, 3], tf.uint8)
        self.finish = tf.function(finish, input_signature=[image_spec], autograph=autograph)

        def make(contents: tf.Tensor) -> tf.Tensor:
            part = decode_window_by_ops(contents, self.window, exif=exif, size_px=image_size, scaled=scaled)
            return self.finish(part)

        def of_bytes(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            spec = tf.TensorSpec(shape[1:], tf.float32)
            with tf.device("/CPU:0"):  # Where there are decoders.
                images = tf.map_fn(make, image_bytes, fn_output_signature=spec, parallel_iterations=_PARALLEL)
            # Of no pictures `map_fn` makes a tensor without sides.
            return self._of_images(tf.reshape(images, [tf.size(image_bytes), *shape[1:]]))

        self.image_bytes = tf.function(
            of_bytes, input_signature=[tf.TensorSpec([None], tf.string, name=IMAGE_BYTES)], autograph=False
        )

    def signatures(self) -> dict[str, Any]:
        """Returns the signatures by name."""
        found = {} if self.image_bytes is None else {IMAGE_BYTES: self.image_bytes.get_concrete_function()}
        return {**found, IMAGES: self.images.get_concrete_function()}

    def save(self, folder: Path, *, assets: Mapping[str, str]) -> None:
        """Writes a SavedModel.

        Args:
            folder: Created.
            assets: File name -> text, of what is to be copied with it.
        """
        with _quiet():
            tf.saved_model.save(self, str(folder), signatures=self.signatures())
        extra = folder / EXTRA
        extra.mkdir()
        for name, text in assets.items():
            (extra / name).write_text(text, encoding="utf-8")

    def _of_images(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        # Of no images some kernels make tensors of a wrong shape: the network gets one then, which is taken away again.
        count = tf.shape(images)[0]
        more = tf.zeros(tf.stack([1 - tf.minimum(count, 1), self._image_size, self._image_size, 3]))
        logits = self._forward(tf.concat([images, more], axis=0))[:count]
        return {"scores": self._activation(logits), "logits": logits, "classes": tf.constant(self._names)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TensorFlow's notes on names and folders off the screen."""
    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def why_no_bytes(preprocessing: PreprocessingLike) -> str | None:
    """Returns why a preprocessing cannot go into a graph that needs nothing but TensorFlow; None if it can.

    Args:
        preprocessing: That of evaluation, with steps of the user's own around it.
    """
    draws = getattr(preprocessing, "num_draws", 0)
    if draws:
        return f"evaluation draws {draws} random numbers an image, as a step with when=always does"

    def make(image: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(image)
        zeros = tf.zeros([1])
        window = preprocessing.window(shape[0], shape[1], zeros)
        return preprocessing.finish(tf.slice(image, [window[0], window[1], 0], [window[2], window[3], 3]), zeros)

    function = tf.function(make, autograph=_needs_autograph(preprocessing))
    graph = function.get_concrete_function(tf.TensorSpec([None, None, 3], tf.uint8)).graph.as_graph_def()
    kinds = {node.op for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes}
    python = sorted(kind for kind in kinds if kind in ("PyFunc", "PyFuncStateless", "EagerPyFunc"))
    if python:
        return "the preprocessing has a step in NumPy or Python, and a graph holds TensorFlow's ops alone"
    own = sorted(kind for kind in kinds if not kind.startswith("_") and not _is_tensorflows(kind, graph))
    if own:
        return f"the preprocessing has the C++ op {own[0]}, whose library does not travel with the graph"
    return None


def _needs_autograph(preprocessing: PreprocessingLike) -> bool:
    """Tells whether there may be Python's `if` on tensors; looking for it takes seconds, and ours have none."""
    return not type(inner_of(preprocessing)).__module__.startswith("slimexp.pipeline.preprocessing.")


def _is_tensorflows(kind: str, graph: Any) -> bool:
    return hasattr(tf.raw_ops, kind) or any(function.signature.name == kind for function in graph.library.function)
