"""Writes the results of an evaluation as CSV files, UTF-8, each under a temporary name first."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["replace_file", "write_confusion_csv", "write_csv", "write_predictions_csv"]


def replace_file(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Writes a file under a temporary name and renames it, so that a reader sees the old one or the new one.

    Args:
        path: The file; its folder is created if needed.
        write: Writes the file whose name it gets; that has the same suffix as `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows as a table whose columns are the keys of the first row.

    Args:
        path: The file.
        rows: For instance `Accumulator.per_class()`. Floats get 6 digits, None becomes an empty cell.
    """
    header = list(rows[0]) if rows else []
    _write(path, header, ([_cell(row[key]) for key in header] for row in rows))


def write_confusion_csv(path: str | os.PathLike[str], matrix: np.ndarray, class_names: Sequence[str]) -> None:
    """Writes a confusion matrix; rows are the classes, columns what was predicted.

    Args:
        path: The file.
        matrix: Integers [C, C].
        class_names: The C names.
    """
    rows = ([name, *map(int, counts)] for name, counts in zip(class_names, matrix, strict=True))
    _write(path, ["class \\ predicted", *class_names], rows)


def write_predictions_csv(
    path: str | os.PathLike[str], predictions: Sequence[Mapping[str, Any]], name_of: Callable[[int], str]
) -> None:
    """Writes a line for each example: path, truth, and the best classes with their probabilities.

    Args:
        path: The file.
        predictions: From `Accumulator.predictions()`.
        name_of: Gives an example's file name by its index, e.g. `Split.path`.
    """
    count = max((len(row["best"]) for row in predictions), default=0)
    best = [column for k in range(1, count + 1) for column in (f"class_{k}", f"score_{k}")]
    multi = bool(predictions) and "dont_care" in predictions[0]
    header = ["path", "truth", *(["dont_care"] if multi else ["correct"]), *best]

    def cells(row: Mapping[str, Any]) -> list[Any]:
        pairs = [_cell(value) for pair in row["best"] for value in pair]
        if multi:
            return [name_of(row["index"]), ";".join(row["truth"]), ";".join(row["dont_care"]), *pairs]
        return [name_of(row["index"]), row["truth"], int(row["best"][0][0] == row["truth"]), *pairs]

    _write(path, header, map(cells, predictions))


def _write(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    def write(temporary: Path) -> None:
        # A file name may hold bytes that are no UTF-8; they are shown escaped.
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    replace_file(path, write)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
