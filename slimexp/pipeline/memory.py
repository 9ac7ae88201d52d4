"""How much memory the pipeline's queues take when they are full, and how much there is. Without TensorFlow."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit
from slimexp.errors import UserError
from slimexp.pipeline.doctor.cpus import cgroup_folders
from slimexp.pipeline.settings import PipelineSettings

__all__ = ["available_bytes", "check_memory", "full_queues", "mean_encoded_bytes"]

_log = logging.getLogger("slimexp")

_NAME_BYTES = 128  # A path with what TensorFlow keeps beside it.
_SAMPLE = 32  # Files looked at for their size: on a network each may take some milliseconds.
# Network, gradients and the optimizer's slots want memory too, so from this share on a warning is due.
_WARN_FRAC = 0.5


@dataclasses.dataclass(frozen=True)
class QueueBytes:
    """What a queue takes when it is full.

    Attributes:
        name: One of the four.
        capacity: The most elements it holds.
        unit: What one element is.
        bytes_each: The bytes of one.
    """

    name: str
    capacity: int
    unit: str
    bytes_each: float

    @property
    def total(self) -> float:
        """The bytes of all elements."""
        return self.capacity * self.bytes_each


def full_queues(settings: PipelineSettings, *, encoded_bytes: float, image_bytes: int) -> list[QueueBytes]:
    """Estimates what the four queues take when they are full.

    Args:
        settings: Fitted to the split.
        encoded_bytes: The mean size of an image file or record.
        image_bytes: The size of a finished image.
    """
    each = {
        "filename": float(_NAME_BYTES),
        "read": encoded_bytes,
        "prefetch": float(image_bytes),
        "batch": float(image_bytes * settings.batch_size),
    }
    return [QueueBytes(q.name, q.capacity, q.unit, each[q.name]) for q in settings.queues().values()]


def check_memory(
    split: AnySplit, settings: PipelineSettings, *, image_bytes: int, free_bytes: float | None = None
) -> None:
    """Refuses queues that the memory cannot hold, and warns of those that take half of what is free.

    Args:
        split: The examples.
        settings: Fitted to the split.
        image_bytes: The size of a finished image.
        free_bytes: The memory that there is; by default what `available_bytes` finds, and no check where that is
            unknown.

    Raises:
        UserError: If the full queues take more than there is. It says which takes how much, and what to set.
    """
    free = available_bytes() if free_bytes is None else free_bytes
    if free is None:
        return
    queues = full_queues(settings, encoded_bytes=mean_encoded_bytes(split), image_bytes=image_bytes)
    total = sum(queue.total for queue in queues)
    if total <= _WARN_FRAC * free:
        return
    largest = max(queues, key=lambda queue: queue.total)
    rows = [
        f"  {queue.name}: {queue.capacity:,} {queue.unit} x {_amount(queue.bytes_each)} = {_amount(queue.total)}"
        for queue in queues
        if queue.total >= 0.01 * total
    ]
    fits = max(int((_WARN_FRAC * free - (total - largest.total)) / largest.bytes_each), 0)
    least = {"filename": 1, "prefetch": settings.batch_size, "batch": 1, "read": 1}[largest.name]
    kept = settings.read_min_after_dequeue
    if largest.name == "read" and kept:
        least = 2 * settings.batch_size
    if fits >= least:
        way_out = f"Set pipeline.queues.{largest.name}.capacity={fits} or less"
        if largest.name == "read" and kept and kept + settings.batch_size >= fits:
            way_out += f" and pipeline.queues.read.min_after_dequeue={max(fits - 2 * settings.batch_size, 0)} or less"
    else:
        way_out = f"Lower pipeline.batch_size={settings.batch_size} or model.image_size"
    message = (
        f"The pipeline's queues take {_amount(total)} when they are full, and {_amount(free)} of memory are free for "
        "this process:\n" + "\n".join(rows) + f"\n{way_out}, or give the process more memory."
    )
    if total > free:
        raise UserError(f"pipeline.queues: refused, as they would not fit. {message}")
    _log.warning("pipeline.queues: large. %s", message)


def mean_encoded_bytes(split: AnySplit) -> float:
    """Returns the mean size of a split's files or records, of the former from a sample."""
    paths, counts = (split.shards, split.counts) if isinstance(split, RecordSplit) else (split.paths, None)
    places = np.unique(np.linspace(0, len(paths) - 1, min(len(paths), _SAMPLE)).round().astype(np.int64))
    num_examples = len(places) if counts is None else int(counts[places].sum())
    return sum(_size(paths[place]) for place in places) / max(num_examples, 1)


def available_bytes(proc: Path = Path("/proc")) -> float | None:
    """Returns the memory that this process may still take without swapping: the machine's and its cgroups'.

    Args:
        proc: The folder with `meminfo` and `self`.

    Returns:
        None where the system does not say.
    """
    found = [_available_in_machine(proc / "meminfo")]
    found += [_left_in_group(folder) for folder in cgroup_folders(proc / "self", "memory")]
    return min((value for value in found if value is not None), default=None)


def _available_in_machine(meminfo: Path) -> float | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _left_in_group(folder: Path) -> float | None:
    """Returns what a cgroup's limit leaves, with what its page cache could give back."""
    for limit_name, usage_name, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int((folder / limit_name).read_text())  # `max` means no limit.
            usage = int((folder / usage_name).read_text())
        except (OSError, ValueError):
            continue
        cache = dict(_pairs(folder / "memory.stat")).get(cache_key, 0)
        return float(max(limit - usage + cache, 0))
    return None


def _pairs(file: Path) -> Iterator[tuple[str, int]]:
    try:
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            if value.isdecimal():
                yield key, int(value)
    except OSError:
        return


def _size(path: bytes) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # Missing files are told elsewhere.


def _amount(count: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
