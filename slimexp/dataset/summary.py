"""Describes datasets: counts for the start of a run, and a fingerprint that tells if two runs saw the same data."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Sequence

import numpy as np

from slimexp.dataset.checks import counted
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.errors import UserError

__all__ = ["class_counts", "describe", "fingerprint", "label_counts"]

# Rows counted or hashed at a time, so that temporary arrays stay small beside the labels themselves.
_ROWS = 1 << 16
# From here on a loss that isn't weighted tends to neglect the rare class; a rule of thumb, not a measured bound.
_IMBALANCE = 5
_NAMES_SHOWN = 5


def _labels(split: AnySplit) -> np.ndarray:
    if split.labels is None:
        raise UserError(f"{split.source}: the labels of records are known only as they are read; nothing counts them.")
    return split.labels


def label_counts(split: AnySplit) -> np.ndarray:
    """Counts how often each label of a multi-label split is positive, negative and don't care.

    Returns:
        int64 [num_classes, 3].
    """
    labels = _labels(split)
    assert labels.ndim == 2, labels.shape
    counts = np.zeros((labels.shape[1], 3), np.int64)
    for begin in range(0, len(split), _ROWS):
        rows = labels[begin : begin + _ROWS]
        counts[:, 0] += np.count_nonzero(rows == 1, axis=0)
        counts[:, 1] += np.count_nonzero(rows == -1, axis=0)
    counts[:, 2] = len(split) - counts[:, 0] - counts[:, 1]
    return counts


def class_counts(split: AnySplit, num_classes: int | None = None) -> np.ndarray:
    """Counts the images of each class, or, for a multi-label split, the images for which each label is positive.

    Args:
        split: The examples.
        num_classes: How many classes there are; for a single-label split the default is up to the highest one seen.

    Returns:
        int64 [num_classes].
    """
    labels = _labels(split)
    if labels.ndim == 2:
        return label_counts(split)[:, 0]
    return np.bincount(labels, minlength=num_classes or 0).astype(np.int64)


def fingerprint(split: AnySplit) -> str:
    """Computes a digest of a split's paths, labels and their order; of records, of their files' names and sizes.

    Paths count from the deepest folder that holds all of them, so the same data in another place has the same
    fingerprint. The images' contents aren't read.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(split, RecordSplit):
        files = [
            (os.path.basename(shard), os.path.getsize(shard), int(count))
            for shard, count in zip(split.shards, split.counts, strict=True)
        ]
        digest.update(repr((split.image_key, dataclasses.astuple(split.label), files)).encode())
        return digest.hexdigest()
    # The common beginning of the smallest and the largest path is that of all.
    ends = [min(split.paths), max(split.paths)] if len(split) else []
    common = os.fsencode(os.path.commonprefix(ends))  # noqa: RUF071 - characters are meant, the folder is cut out below
    start = common.rfind(b"/") + 1
    for begin in range(0, len(split), _ROWS):
        paths = split.paths[begin : begin + _ROWS]
        digest.update(b"".join([path[start:] + b"\0" for path in paths]))
    labels = split.labels
    digest.update(repr((labels.dtype.kind, labels.shape)).encode())
    for begin in range(0, len(split), _ROWS):
        rows = labels[begin : begin + _ROWS]
        digest.update(rows.astype(rows.dtype.newbyteorder("<"), order="C", copy=False).tobytes())
    return digest.hexdigest()


def describe(dataset: Dataset) -> str:
    """Describes a dataset in a few lines: sizes, the most and least common classes, and what may go wrong with them.

    Returns:
        Lines of text without a line break at the end.
    """
    num_eval = "no eval images" if dataset.eval is None else f"{len(dataset.eval)} eval images"
    kind = "classes" if dataset.task == "single" else "labels"
    sizes = f"{len(dataset.train)} train images, {num_eval}, {dataset.num_classes} {kind}"
    lines = [f"Dataset {dataset.name}: {sizes} (task {dataset.task})."]
    if isinstance(dataset.train, RecordSplit):
        shards = counted(len(dataset.train.shards), "shard")
        checked = "; labels are checked as they are read" if dataset.train.labels is None else ""
        lines.append(f"The records of {shards} of {dataset.train.source}{checked}.")
    if dataset.train.labels is None:
        return "\n".join(lines)
    if dataset.task == "single":
        lines += _describe_classes(dataset)
    else:
        for split in (dataset.train, dataset.eval):
            if split is not None:
                lines += _describe_labels(split, dataset.class_names)
    return "\n".join(lines)


def _describe_classes(dataset: Dataset) -> Iterable[str]:
    counts = class_counts(dataset.train, dataset.num_classes)
    most, least = int(counts.argmax()), int(counts.argmin())
    names = dataset.class_names
    if counts[most] == counts[least]:
        yield f"Train images a class: {counts[most]} each."
    else:
        yield (
            f"Train images a class: {counts[least]} ({names[least]!r}) to {counts[most]} ({names[most]!r}), median "
            f"{np.median(counts):g}."
        )
    if not counts.all():
        yield f"Without a train image, so never learnt: {_some(names, np.flatnonzero(counts == 0))}."
    smallest = counts[counts > 0].min(initial=counts[most])
    if counts[most] >= _IMBALANCE * smallest:
        yield (
            f"Imbalanced: the largest class has {counts[most] / max(smallest, 1):.1f} times the images of the smallest "
            "one that has any; consider loss.class_weights, and look at balanced accuracy beside accuracy."
        )
    if dataset.eval is not None:
        absent = np.flatnonzero((class_counts(dataset.eval, dataset.num_classes) == 0) & (counts > 0))
        if len(absent):
            yield f"Without an eval image, so never judged: {_some(names, absent)}."


def _describe_labels(split: AnySplit, names: Sequence[str]) -> Iterable[str]:
    counts = label_counts(split)
    shares = counts.sum(axis=0) / max(counts.sum(), 1)
    positives = counts[:, 0]
    most, least = int(positives.argmax()), int(positives.argmin())
    yield (
        f"{split.name.capitalize()} labels: {shares[0]:.1%} positive, {shares[1]:.1%} negative, {shares[2]:.1%} don't "
        f"care; positives a label: {positives[least]} ({names[least]!r}) to {positives[most]} ({names[most]!r}), "
        f"median {np.median(positives):g}."
    )
    for column, word, consequence in (
        (0, "positive", "so nothing tells what it looks like"),
        (1, "negative", "so answering yes to everything is right"),
    ):
        without = np.flatnonzero(counts[:, column] == 0)
        if len(without):
            yield f"{split.name.capitalize()} labels never {word}, {consequence}: {_some(names, without)}."
    labels = _labels(split)
    num_empty = sum(int((~labels[begin : begin + _ROWS].any(axis=1)).sum()) for begin in range(0, len(split), _ROWS))
    if num_empty:
        yield f"{num_empty} {split.name} images have no label but don't care, so they count for nothing."


def _some(names: Sequence[str], chosen: np.ndarray) -> str:
    shown = ", ".join(repr(names[i]) for i in chosen[:_NAMES_SHOWN].tolist())
    more = len(chosen) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
