"""Says on the screen what a check came to."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slimexp.dataset.checks import counted
from slimexp.dataset.split import Dataset
from slimexp.pipeline.check.duplicates import Duplicates
from slimexp.pipeline.check.report import Remark, SplitReport
from slimexp.pipeline.memory import full_queues
from slimexp.pipeline.settings import PipelineSettings

__all__ = ["Summary"]

_REMARK_TITLES = {
    "damaged": "JPEGs with damage in their pixel data, which training takes as they are",
    "extension": "names that do not fit the contents, which are what counts",
    "tiny": "pictures with hardly any pixels",
    "large": "very large pictures, which are decoded one at a time",
    "narrow": "pictures ten times as long as wide, or more",
}
_CLASSES_SHOWN = 30
_MEGA = 1e6


class Summary:
    """Prints parts of the result."""

    def __init__(self, reports: Sequence[SplitReport], *, show: int, console: Console | None = None) -> None:
        """Takes what is to be summed up.

        Args:
            reports: One a split.
            show: The faults, and the remarks of each kind, that are printed.
            console: Where to; by default standard output.
        """
        self._reports = reports
        self._show = show
        self._console = console or Console()

    def print_counts(self, data: Dataset, duplicates: Duplicates, secs: float) -> None:
        """Prints the table of counts and sizes, and the kinds of pictures."""
        reports = self._reports
        table = Table(title=Text(f"Dataset {data.name}, checked in {secs:.1f} s"), title_justify="left")
        table.add_column("")
        for report in reports:
            table.add_column(report.split.name, justify="right")

        def add(title: str, value_of: Callable[[SplitReport], int | str]) -> None:
            values = (value_of(report) for report in reports)
            table.add_row(title, *(f"{value:,}" if isinstance(value, int) else value for value in values))

        add("examples", lambda report: len(report.split))
        add("faults", lambda report: report.num_faults)
        if any(report.num_damaged_shards for report in reports):
            add("of these damaged shards", lambda report: report.num_damaged_shards)
            add("examples lost", lambda report: sum(row.num_examples for row in report.faults))
        repeats = collections.Counter(str(row["split"]) for row in duplicates.rows)
        if repeats:
            add("with the bytes of another", lambda report: repeats[report.split.name])
        add("width in pixels: least, median, greatest", lambda report: _spread(report.known_sides[:, 1]))
        add("height in pixels: least, median, greatest", lambda report: _spread(report.known_sides[:, 0]))
        add("bytes: least, median, greatest", lambda report: _spread(report.num_bytes[report.has_digest]))
        self._console.print(table)
        for report in reports:
            self._say(_describe_kinds(report))

    def print_memory(self, settings: PipelineSettings, image_size: int) -> None:
        """Says what decoding and the queues take at the most."""
        pixels = max(int(report.known_sides.astype(np.int64).prod(axis=1).max(initial=0)) for report in self._reports)
        sizes = np.concatenate([report.num_bytes[report.has_digest] for report in self._reports])
        settings = settings.fitted(is_sequential=self._reports[0].split.is_sequential, is_training=True)
        encoded_bytes = float(sizes.mean()) if len(sizes) else 0.0
        queues = full_queues(settings, encoded_bytes=encoded_bytes, image_bytes=image_size**2 * 3 * 4)
        self._say(
            f"Memory: {settings.threads} threads that each decode the largest picture ({pixels / _MEGA:.1f} "
            f"megapixels) in full take {_mib(3 * pixels * settings.threads)}; full queues take "
            f"{_mib(sum(queue.total for queue in queues))}."
        )

    def print_classes(self, rows: Sequence[dict[str, object]], *, is_single: bool, more_in: str) -> None:
        """Prints the examples of the first classes."""
        table = Table(title="Examples a class" if is_single else "Examples a label", title_justify="left")
        for column in rows[0]:
            table.add_column(column.replace("_", " "), justify="left" if column == "class" else "right")
        for row in rows[:_CLASSES_SHOWN]:
            table.add_row(*(Text(f"{v:,}" if isinstance(v, int) else str(v)) for v in row.values()))
        self._console.print(table)
        if len(rows) > _CLASSES_SHOWN:
            self._say(f"and {len(rows) - _CLASSES_SHOWN} more, see {more_in}")

    def print_faults(self, *, more_in: str) -> None:
        """Prints the first faults."""
        rows = [row for report in self._reports for row in report.faults]
        if rows:
            self._console.print(Text(f"{counted(len(rows), 'fault')}:", style="bold red"))
        for row in rows[: self._show]:
            # repr, so that blanks and other characters that cannot be seen show.
            self._say(f"  {row.origin}: {row.path!r}: {row.reason}")
        if len(rows) > self._show:
            self._say(f"  … and {len(rows) - self._show} more, see {more_in}")

    def print_remarks(self, *, more_in: str) -> None:
        """Prints the first remarks of each kind."""
        remarks: dict[str, list[Remark]] = {}
        for report in self._reports:
            for remark in report.remarks:
                remarks.setdefault(remark.kind, []).append(remark)
        for kind, title in _REMARK_TITLES.items():
            found = remarks.get(kind, [])
            if found:
                self._say(f"{len(found)} {title}:")
            for remark in found[: self._show]:
                self._say(f"  {remark.origin}: {remark.path!r}: {remark.remark}")
            if len(found) > self._show:
                self._say(f"  … and {len(found) - self._show} more, see {more_in}")

    def print_notes(self, notes: Sequence[str]) -> None:
        """Prints what is to be thought about."""
        for note in notes:
            self._say(f"Note: {note}")

    def print_how_far(self) -> None:
        """Says how far a check came that was stopped."""
        for report in self._reports:
            split = report.split
            self._say(
                f"Stopped after {report.num_done} of the {len(split)} examples of {split.name}; "
                f"{counted(report.num_faults, 'fault')} so far."
            )

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _describe_kinds(report: SplitReport) -> str:
    counts = [*report.formats.most_common(), *report.notes.most_common()]
    if report.num_turned:
        counts.append(("turned or mirrored by EXIF", report.num_turned))
    return f"Pictures of {report.split.name}: " + (", ".join(f"{name} {n:,}" for name, n in counts) or "none") + "."


def _spread(values: np.ndarray) -> str:
    if not len(values):
        return "-"
    return f"{int(values.min()):,}, {int(np.median(values)):,}, {int(values.max()):,}"


def _mib(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"
