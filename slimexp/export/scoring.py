"""Runs what was exported, from its files alone: images or bytes in, scores out."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.export.manifest import FROZEN_GRAPH, SAVED_MODEL, Manifest
from slimexp.export.module import IMAGE_BYTES, IMAGES

__all__ = ["FrozenScorer", "SavedModelScorer", "TfliteScorer", "load_scorer", "plain_path", "probabilities"]


def probabilities(logits: np.ndarray, task: str) -> np.ndarray:
    """Returns softmax (`single`) or sigmoid (`multi`) of logits [n, C], without overflow."""
    logits = logits.astype(np.float64)
    if task == "multi":
        powers = np.exp(-np.abs(logits))
        return np.where(logits < 0, powers, 1.0) / (1 + powers)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class SavedModelScorer:
    """A SavedModel, loaded.

    Attributes:
        model: What TensorFlow loaded.
    """

    def __init__(self, folder: Path) -> None:
        with plain_path(folder) as place:
            self.model = tf.saved_model.load(place)

    def of_images(self, images: tf.Tensor | np.ndarray) -> np.ndarray:
        """Returns the scores of finished images, float32 [n, size, size, 3]: float32 [n, C]."""
        return self.model.signatures[IMAGES](images=tf.convert_to_tensor(images))["scores"].numpy()

    def logits(self, images: tf.Tensor | np.ndarray) -> np.ndarray:
        """Returns the logits of finished images, float32 [n, size, size, 3]: float32 [n, C]."""
        return self.model.signatures[IMAGES](images=tf.convert_to_tensor(images))["logits"].numpy()

    def of_bytes(self, contents: Sequence[bytes]) -> np.ndarray:
        """Returns the scores of files by their bytes, float32 [n, C]."""
        return self.model.signatures[IMAGE_BYTES](image_bytes=tf.constant(list(contents), tf.string))["scores"].numpy()


class FrozenScorer:
    """A frozen graph, loaded.

    Args:
        path: The file.
        input: The name of the input's tensor, e.g. `input:0`.
        scores: The name of the scores' tensor.
        logits: The name of the logits' tensor; None if they are not asked for.
    """

    def __init__(
        self,
        path: Path,
        *,
        input: str,  # noqa: A002  # As it is called in the graph.
        scores: str,
        logits: str | None = None,
    ) -> None:
        definition = tf.compat.v1.GraphDef()
        definition.ParseFromString(path.read_bytes())
        wrapped = tf.compat.v1.wrap_function(lambda: tf.compat.v1.import_graph_def(definition, name=""), [])
        source = wrapped.graph.get_tensor_by_name(input)
        self._run = wrapped.prune(source, wrapped.graph.get_tensor_by_name(scores))
        self._run_logits = None if logits is None else wrapped.prune(source, wrapped.graph.get_tensor_by_name(logits))

    def of_images(self, images: tf.Tensor | np.ndarray) -> np.ndarray:
        """Returns the scores of finished images, float32 [n, size, size, 3]: float32 [n, C]."""
        return self._run(tf.convert_to_tensor(images)).numpy()

    def logits(self, images: tf.Tensor | np.ndarray) -> np.ndarray:
        """Returns the logits of finished images, float32 [n, size, size, 3]: float32 [n, C]."""
        assert self._run_logits is not None
        return self._run_logits(tf.convert_to_tensor(images)).numpy()


class TfliteScorer:
    """A TensorFlow Lite model, loaded."""

    def __init__(self, path: Path) -> None:
        with warnings.catch_warnings():
            # TensorFlow recommends a package of its own for devices; here its own interpreter is what there is.
            warnings.filterwarnings("ignore", r"(?s).*tf\.lite\.Interpreter is deprecated", UserWarning)
            self._interpreter = tf.lite.Interpreter(model_path=str(path))
        self._run = self._interpreter.get_signature_runner(IMAGES)

    def of_images(self, images: tf.Tensor | np.ndarray) -> np.ndarray:
        """Returns the scores of finished images, float32 [n, size, size, 3]: float32 [n, C]."""
        return self._run(images=np.asarray(images))["scores"]


def load_scorer(folder: Path, manifest: Mapping[str, Any] | Manifest, *, key: str = "predict.model") -> Any:
    """Loads what an export has to score images with: its SavedModel, or else its frozen graph.

    Raises:
        UserError: If it has neither, or it cannot be loaded.
    """
    described = manifest if isinstance(manifest, Manifest) else Manifest(**manifest)
    try:
        if described.saved_model is not None:
            is_alone = (folder / "saved_model.pb").is_file()
            return SavedModelScorer(folder if is_alone else folder / SAVED_MODEL)
        if described.frozen_graph is not None:
            graph = described.frozen_graph
            (source,) = graph["inputs"].values()
            scores, logits = (graph["outputs"][name]["tensor"] for name in ("scores", "logits"))
            return FrozenScorer(folder / FROZEN_GRAPH, input=source["tensor"], scores=scores, logits=logits)
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{key}={folder}: the export cannot be loaded: {line}. It is damaged, or was not copied as a whole."
        ) from error
    raise UserError(
        f"{key}={folder}: the export has neither {SAVED_MODEL}/ nor {FROZEN_GRAPH}; export it with "
        "'export.formats=[saved_model]' as well."
    )


@contextlib.contextmanager
def plain_path(folder: Path) -> Iterator[str]:
    """Yields a path without the characters that TensorFlow's reader of variables takes for a pattern."""
    if not re.search(r"[*?\[\]{}\\]", str(folder)):
        yield str(folder)
        return
    with tempfile.TemporaryDirectory() as place:
        link = os.path.join(place, "model")
        os.symlink(folder.absolute(), link)
        yield link
