"""Finds pictures that are there more than once: the same bytes, within a split and across splits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from slimexp.pipeline.check.report import SplitReport

__all__ = ["COLUMNS", "Duplicates", "find_duplicates", "label_text"]

COLUMNS = ("group", "split", "path", "origin", "bytes", "label", "across_splits", "labels_differ")

# Class names are numbers up to a million; a row of a table need not hold them all.
_NAMES_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """Examples whose pictures are the same, byte for byte.

    Attributes:
        rows: A row an example, group by group, with `COLUMNS`; the last two are 0 or 1, and of the group.
        num_repeats: How many examples repeat one that comes before.
        num_leaks: How many of evaluation are in training too.
        num_conflicts: How many pictures have different labels in different places.
    """

    rows: list[dict[str, object]]
    num_repeats: int = 0
    num_leaks: int = 0
    num_conflicts: int = 0


def find_duplicates(reports: Sequence[SplitReport], class_names: Sequence[str]) -> Duplicates:
    """Compares the pictures of some splits by size and hash, and the labels of those that are the same."""
    splits = np.concatenate([np.full(len(report.split), number) for number, report in enumerate(reports)])
    examples = np.concatenate([np.arange(len(report.split)) for report in reports])
    known = np.concatenate([report.has_digest for report in reports])
    keys = np.concatenate(
        [np.column_stack([report.num_bytes.astype(np.uint64), report.digests]) for report in reports]
    )[known]
    splits, examples = splits[known], examples[known]
    # Stable: within a group training comes first, and examples are in their order.
    order = np.lexsort(keys.T)
    same = np.flatnonzero((keys[order][1:] == keys[order][:-1]).all(axis=1))
    if not len(same):
        return Duplicates([])
    starts = same[np.concatenate([[True], np.diff(same) > 1])]
    stops = same[np.concatenate([np.diff(same) > 1, [True]])] + 2
    members = [
        [(reports[splits[place]], int(examples[place])) for place in order[start:stop]]
        for start, stop in zip(starts, stops, strict=True)
    ]
    members.sort(key=lambda group: (group[0][0].split.name != "train", group[0][1]))
    rows: list[dict[str, object]] = []
    num_leaks = num_conflicts = 0
    for number, group in enumerate(members, 1):
        names = [report.split.name for report, _ in group]
        is_across = len(set(names)) > 1
        labels = [report.labels[index] for report, index in group if report.has_label[index]]
        differ = any(not np.array_equal(label, labels[0]) for label in labels[1:])
        num_leaks += names.count("eval") if is_across else 0
        num_conflicts += differ
        for report, index in group:
            split, size = report.split, int(report.num_bytes[index])
            label = label_text(report, index, class_names)
            values = (
                number,
                split.name,
                split.path(index),
                split.origin(index),
                size,
                label,
                int(is_across),
                int(differ),
            )
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return Duplicates(rows, len(rows) - len(members), num_leaks, num_conflicts)


def label_text(report: SplitReport, index: int, class_names: Sequence[str]) -> str:
    """Returns an example's class, or the labels that are positive and, with a question mark, don't care."""
    if not report.has_label[index]:
        return ""
    labels = report.labels[index]
    if labels.ndim == 0:
        return class_names[int(labels)]
    names = [class_names[k] for k in np.flatnonzero(labels == 1).tolist()]
    names += [f"{class_names[k]}?" for k in np.flatnonzero(labels == 0).tolist()]
    return ";".join(names[:_NAMES_SHOWN]) + (";…" if len(names) > _NAMES_SHOWN else "")
