"""The exported model as MLflow's servers run it. MLflow copies this file beside the model: it uses nothing of slimexp.

A table with a column `image`, the bytes of a file in each row (base64 in JSON), becomes a table with `class`, `score`
and `scores` for single-label models, and `classes`, `scores` for multi-label ones. A model without the signature
`image_bytes` takes an array of finished images instead, float32 [n, size, size, 3].
"""

from __future__ import annotations

import json
import os
from typing import Any

import mlflow
import numpy as np
import pandas
import tensorflow as tf


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
            contents = [bytes(content) for content in model_input["image"]]
            scores = signatures["image_bytes"](image_bytes=tf.constant(contents, tf.string))["scores"].numpy()
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


mlflow.models.set_model(ImageClassifier())
