"""The exported model as MLflow's servers run it. MLflow copies this file beside the model: it uses nothing of slimexp.

A table with a column `image`, the bytes of a file in each row (base64 in JSON), becomes a table with `class`, `score`
and `scores` for single-label models, and `classes`, `scores` for multi-label ones. A model without the signature
`image_bytes` takes an array of finished images instead, float32 [n, size, size, 3].
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import Any

import mlflow
import numpy as np
import pandas
import tensorflow as tf

# Of images that cannot be scored so many are named.
_MOST_NAMED = 5


class ImageClassifier(mlflow.pyfunc.PythonModel):
    """Answers with the SavedModel that was logged with it."""

    def load_context(self, context: Any) -> None:
        """Loads the SavedModel; see MLflow."""
        folder = context.artifacts["saved_model"]
        with open(os.path.join(folder, "assets.extra", "export.json"), encoding="utf-8") as file:
            described = json.load(file)
        self._classes = described["classes"]
        self._is_multi = described["task"] == "multi"
        self._model = tf.saved_model.load(folder)

    def predict(self, context: Any, model_input: pandas.DataFrame, params: Any = None) -> Any:
        """Scores images; see MLflow."""
        signatures = self._model.signatures
        if isinstance(model_input, pandas.DataFrame):
            contents = [_bytes_of(row, content) for row, content in enumerate(model_input["image"])]
            try:
                scores = self._scores_of(contents)
            except tf.errors.OpError:
                raise _refusal("; ".join(self._faults(contents))) from None
        else:
            images = tf.constant(np.asarray(model_input, np.float32))
            scores = signatures["images"](images=images)["scores"].numpy()
        rows = [[float(score) for score in row] for row in scores]
        if self._is_multi:
            threshold = float((params or {}).get("threshold", 0.5))
            pairs = [zip(self._classes, row, strict=True) for row in rows]
            named = [[name for name, score in row if score >= threshold] for row in pairs]
            return pandas.DataFrame({"classes": named, "scores": rows})
        best = [self._classes[int(np.argmax(row))] for row in rows]
        return pandas.DataFrame({"class": best, "score": [max(row) for row in rows], "scores": rows})

    def _scores_of(self, contents: list[bytes]) -> np.ndarray:
        return self._model.signatures["image_bytes"](image_bytes=tf.constant(contents, tf.string))["scores"].numpy()

    def _faults(self, contents: list[bytes]) -> list[str]:
        """Says which of the images cannot be scored, and why."""
        found = []
        for row, content in enumerate(contents):
            try:
                self._scores_of([content])
            except tf.errors.OpError as error:
                found.append(f"row {row}, {len(content)} bytes: {_reason(error)}")
                if len(found) == _MOST_NAMED:
                    break
        # Each alone went well: it was the number of them.
        return found or [f"{len(contents)} images at once are more than there is memory for; send fewer"]


def _reason(error: tf.errors.OpError) -> str:
    """Returns the one line that says what is wrong, out of those on where in the graph it was."""
    lines = [line for line in error.message.partition("\n\t [[")[0].splitlines() if line.strip()]
    line = re.sub(r"\{\{.*?\}\}", "", lines[-1] if lines else type(error).__name__).strip()
    if not line.startswith("assertion failed: "):
        return line.removesuffix(".")
    return line.removeprefix("assertion failed: ").replace("] [", " ").strip("[] ")


def _bytes_of(row: int, content: Any) -> bytes:
    """Returns the bytes of an image; base64, as JSON has it, is decoded."""
    wanted = "the bytes of an image file are wanted, or their base64 as text"
    if isinstance(content, str):
        try:
            return base64.b64decode("".join(content.split()), validate=True)
        except ValueError:
            raise _refusal(f"row {row}: the text {content[:40]!r} is no base64; {wanted}") from None
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise _refusal(f"row {row}: is of the type {type(content).__name__}; {wanted}")
    return bytes(content)


def _refusal(what: str) -> Exception:
    return mlflow.exceptions.MlflowException.invalid_parameter_value(f"Column image, {what}.")


mlflow.models.set_model(ImageClassifier())
