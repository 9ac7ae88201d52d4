"""Writes predictions as they come, as CSV or as JSON lines: for each file the best classes by name, or an error."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from slimexp.errors import UserError

__all__ = ["Prediction", "Predictions", "make_prediction", "writing"]

_log = logging.getLogger("slimexp")


class Prediction:
    """What is said about one file.

    Attributes:
        path: The file.
        error: Why nothing can be said; None if something is.
        best: The best classes with their scores, the best one first.
        labels: Multi-label: the names of the labels that count as predicted, the best one first; else None.
        scores: All scores, float [C]; None with an error.
    """

    def __init__(
        self,
        path: str,
        *,
        error: str | None = None,
        best: Sequence[tuple[str, float]] = (),
        labels: Sequence[str] | None = None,
        scores: np.ndarray | None = None,
    ) -> None:
        self.path = path
        self.error = error
        self.best = list(best)
        self.labels = labels
        self.scores = scores


def make_prediction(
    path: str,
    scores: np.ndarray,
    class_names: Sequence[str],
    *,
    logits: np.ndarray,
    task: str,
    top_k: int,
    threshold: float,
) -> Prediction:
    """Names the best classes.

    Args:
        path: The file.
        scores: float [C].
        logits: float [C], which tell the order also of classes whose scores are the same number, 0 or 1.
        class_names: The C names.
        task: `single` or `multi`.
        top_k: How many of the best to name; of fewer classes all.
        threshold: Multi-label: from which score on a label counts as predicted.
    """
    order = np.argsort(-logits, kind="stable")
    best = [(class_names[place], float(scores[place])) for place in order[:top_k]]
    labels = [class_names[place] for place in order if scores[place] >= threshold] if task == "multi" else None
    return Prediction(path, best=best, labels=labels, scores=scores)


class Predictions:
    """Writes one prediction after the other into an open file.

    CSV has a row for each: `path`, `error`, for multi-label models `labels` (a JSON list, as names may hold any sign),
    `class_1`, `score_1` and so on, and with `all_scores` a column `score:NAME` for each class. A JSON line has the same
    as `path`, `error`, `labels`, `best` and `scores`.

    Args:
        file: Open for text.
        kind: `csv` or `jsonl`.
        class_names: The classes.
        task: `single` or `multi`.
        top_k: How many of the best are named.
        all_scores: Whether all scores are written.
    """

    def __init__(
        self, file: IO[str], kind: str, *, class_names: Sequence[str], task: str, top_k: int, all_scores: bool
    ) -> None:
        self._file = file
        self._is_csv = kind == "csv"
        self._names = class_names if all_scores else ()
        self._is_multi = task == "multi"
        self._top_k = min(top_k, len(class_names))
        self._all_scores = all_scores
        if self._is_csv:
            self._writer = csv.writer(file, lineterminator="\n")
            best = [column for k in range(1, self._top_k + 1) for column in (f"class_{k}", f"score_{k}")]
            labels = ["labels"] if self._is_multi else []
            self._writer.writerow(["path", "error", *labels, *best, *(f"score:{name}" for name in self._names)])

    def write(self, prediction: Prediction) -> None:
        """Writes one."""
        if self._is_csv:
            self._writer.writerow(self._cells(prediction))
        else:
            self._file.write(json.dumps(self._object(prediction), ensure_ascii=False) + "\n")

    def _cells(self, prediction: Prediction) -> list[str]:
        labels = []
        if self._is_multi:
            labels = ["" if prediction.labels is None else json.dumps(prediction.labels, ensure_ascii=False)]
        best = [cell for name, score in prediction.best for cell in (name, _shown(score))]
        best += [""] * (2 * self._top_k - len(best))
        scores = [""] * len(self._names) if prediction.scores is None else list(map(_shown, prediction.scores))
        return [prediction.path, prediction.error or "", *labels, *best, *(scores if self._all_scores else ())]

    def _object(self, prediction: Prediction) -> dict[str, Any]:
        found: dict[str, Any] = {"path": prediction.path, "error": prediction.error}
        if prediction.error is not None:
            return found
        if self._is_multi:
            found["labels"] = prediction.labels
        found["best"] = [{"class": name, "score": float(_shown(score))} for name, score in prediction.best]
        if self._all_scores and prediction.scores is not None:
            pairs = zip(self._names, prediction.scores, strict=True)
            found["scores"] = {name: float(_shown(score)) for name, score in pairs}
        return found


@contextlib.contextmanager
def writing(path: Path | None) -> Iterator[IO[str]]:
    """Opens a file to write, or the screen for None.

    What is written stands in `NAME.partial` until all of it is there. If the work ends before, that file stays.

    Raises:
        UserError: If the file cannot be written.
    """
    if path is None:
        # Names of files need not be UTF-8.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield sys.stdout
        sys.stdout.flush()
        return
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(partial, "w", encoding="utf-8", errors="backslashreplace", newline="")  # noqa: SIM115  # Closed below.
    except OSError as error:
        raise UserError(f"predict.output={path}: cannot be written ({error.strerror or error}).") from error
    try:
        with file:
            yield file
    except BaseException:
        _log.warning("What was predicted until then is in %s.", partial)
        raise
    os.replace(partial, path)


def _shown(score: float) -> str:
    return f"{score:.6g}"
