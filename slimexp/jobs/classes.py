"""What a network's outputs are called: written down in a run's folder, so that the run can be used without its dataset.

The record is `labels.txt`, which people and other programs read too, and the task in the run's configuration.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from slimexp.dataset.class_names import load_class_names, write_class_names
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError
from slimexp.jobs.of_run import recorded_task
from slimexp.shown import shown_path
from slimexp.tracking import Tracker

__all__ = ["CLASSES_FILE", "Classes", "read_classes", "record_classes", "refuse_other_classes"]

CLASSES_FILE = "labels.txt"
_log = logging.getLogger("slimexp")


@dataclasses.dataclass(frozen=True)
class Classes:
    """What the outputs of a network mean.

    Attributes:
        names: One name an output, in their order.
        task: `single` (one class an image) or `multi` (each label on its own).
    """

    names: Sequence[str]
    task: str

    @classmethod
    def of(cls, data: Dataset) -> Classes:
        """Returns those of a dataset."""
        return cls(data.class_names, data.task)


def record_classes(run_dir: Path, data: Dataset, tracker: Tracker) -> None:
    """Writes the names of a dataset's classes into the folder of a run that is trained on it; the tracker gets them.

    A dataset whose names cannot stand in such a file leaves none: using the run takes the dataset then.
    """
    path = run_dir / CLASSES_FILE
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_class_names(temporary, data.class_names)
    except UserError as error:
        path.unlink(missing_ok=True)
        _log.warning("%s is not written, so that job=predict and job=export will need the dataset: %s", path, error)
        return
    os.replace(temporary, path)
    tracker.log_artifact(path)


def read_classes(run: Path | None) -> Classes | None:
    """Returns the classes that a run was trained for; None without a run, or if it has left no record of them.

    Raises:
        UserError: If the record is damaged.
    """
    if run is None or not (run / CLASSES_FILE).is_file():
        return None
    task = recorded_task(run)
    return None if task is None else Classes(load_class_names(str(run / CLASSES_FILE)), task)


def refuse_other_classes(data: Dataset, run: Path | None, *, asked: str) -> None:
    """Raises an error unless a dataset has the classes that a run was trained for, in their order.

    Args:
        data: The dataset.
        run: The folder of the run; None, or one without a record of its classes, agrees with anything.
        asked: The setting that names the run, `key=value`, for the message.

    Raises:
        UserError: If they differ; it names the first difference.
    """
    trained = read_classes(run)
    if trained is None or run is None:
        return
    now = Classes.of(data)
    difference = _difference(trained, now)
    if difference is None:
        return
    raise UserError(
        f"{asked}: this network was trained for other classes than dataset {data.name} has: {difference}. Take the "
        f"dataset that it was trained on. If only names were changed since, change them in {shown_path(run)}"
        f"/{CLASSES_FILE} as well; for other classes train a network of its own (restore.checkpoint=... and another "
        "run_dir)."
    )


def _difference(trained: Classes, now: Classes) -> str | None:
    if trained.task != now.task:
        return f"it is a {trained.task}-label network, and the examples are {now.task}-label"
    for number, (before, after) in enumerate(zip(trained.names, now.names, strict=False)):
        if before != after:
            return f"class {number} is {before!r} to it, and {after!r} there"
    if len(trained.names) != len(now.names):
        return f"it knows {len(trained.names)} classes, and there are {len(now.names)}"
    return None
