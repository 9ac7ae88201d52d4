"""The conversion: a source's pictures, one after the other, into a new folder, and the count of them at the end."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from slimexp.convert.pictures import Picture, Rejected, read_pictures
from slimexp.convert.place import LABELS_FILE, MANIFEST, REJECTED_FILE, new_folder
from slimexp.convert.source import Source
from slimexp.convert.target import FolderTarget, ListTarget, RecordTarget, Target
from slimexp.dataset import AnySplit, Split
from slimexp.dataset.checks import MAX_SHOWN, counted, first_of
from slimexp.dataset.class_names import write_class_names
from slimexp.errors import UserError
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus

__all__ = ["Counts", "Report", "convert"]

_log = logging.getLogger(__name__)

# Where on_bad_image=error, how many more pictures are looked at for others to name: those of a few batches.
_LOOK_FURTHER = 200


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many of a split's examples were listed, written, and rejected; the last two make the first."""

    listed: int
    written: int
    rejected: int


@dataclasses.dataclass(frozen=True)
class Report:
    """What was done.

    Attributes:
        target: The folder that was written.
        counts: By split.
        secs: How long it took.
    """

    target: str
    counts: dict[str, Counts]
    secs: float


def convert(
    source: Source,
    target: str,
    to: str,
    *,
    num_shards: int = 16,
    on_bad_image: str = "error",
    decode: bool = True,
    link: str | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Callable[[str, int, int], None] = lambda split, done, total: None,
) -> Report:
    """Writes a source's examples in another form. The pictures' bytes are copied, never encoded anew.

    Args:
        source: What `load_source` gave.
        target: A folder that is new or empty.
        to: `records`, `list` or `folder`.
        num_shards: How many TFRecord files a split is written into; never more than it has examples.
        on_bad_image: `error` stops at a picture that cannot be read; `skip` leaves it out and lists it in
            `rejected.csv`. Missing files and wrong labels always stop.
        decode: Whether a picture is decoded to see if it can be, rather than judged by its beginning.
        link: `hard` or `symbolic` makes links instead of copies, for sources and targets of files.
        shuffle: Whether the training examples are put in another order. By default those of a folder are, when
            records are written: there they would be read in blocks of a class.
        seed: Which order.
        overwrite: Whether a target that isn't empty is replaced, see `new_folder`.
        threads: How many pictures are read and decoded at a time; by default as many as there are CPUs.
        progress: Called now and then with the split and how many of its examples are done.

    Returns:
        The counts.

    Raises:
        UserError: If a picture or a label cannot be written, or anything stands in the target's way.
    """
    started = time.monotonic()
    target = os.path.realpath(os.path.expanduser(target))
    splits = [split for split in (source.data.train, source.data.eval) if split is not None]
    _check_options(source, to, splits, num_shards, link, shuffle, threads)
    _refuse_overlap(source, target, splits)
    orders = {split.name: _order(source, split, to, shuffle, seed) for split in splits}
    counts: dict[str, Counts] = {}
    rejected: list[tuple[str, Rejected]] = []
    names = source.data.class_names
    try:
        with new_folder(target, overwrite=overwrite) as folder, _target(folder, to, names, num_shards, link) as writer:
            write_class_names(os.path.join(folder, LABELS_FILE), names)
            for split in splits:
                pictures = read_pictures(
                    split,
                    base=source.bases.get(split.name),
                    order=orders[split.name],
                    decode=decode,
                    threads=threads or whole_cpus(available_cpus()),
                )
                with contextlib.closing(pictures):
                    counts[split.name], bad = _write_split(split, pictures, writer, on_bad_image, progress)
                rejected += [(split.name, item) for item in bad]
            if rejected:
                _write_rejected(folder, rejected)
            _write_manifest(folder, source, to, counts)
    except OSError as error:
        raise UserError(f"TARGET={target}: cannot be written: {error.strerror or error}.") from error
    return Report(target, counts, time.monotonic() - started)


def _check_options(
    source: Source,
    to: str,
    splits: Sequence[AnySplit],
    num_shards: int,
    link: str | None,
    shuffle: bool | None,
    threads: int | None,
) -> None:
    if num_shards < 1 or num_shards > 99_999:
        raise UserError(f"--shards={num_shards} must be 1 or more, and 99999 or less.")
    if threads is not None and threads < 1:
        raise UserError(f"--threads={threads} must be 1 or more.")
    has_files = all(isinstance(split, Split) for split in splits)
    if link is not None and (to == "records" or not has_files):
        raise UserError(f"--link={link}: links lead from files to files; records hold their pictures in themselves.")
    if shuffle and not has_files:
        raise UserError("--shuffle=yes: records are read from front to back; shuffle when they are first written.")
    if to == "folder" and source.data.task == "multi":
        raise UserError(
            "--to=folder: an image lies in one class's folder, but these have several labels; write a list."
        )


def _refuse_overlap(source: Source, target: str, splits: Sequence[AnySplit]) -> None:
    """Refuses a target whose replacement would take the source with it, or which the source would then hold."""
    inside = os.path.join(target, "").encode("utf-8", "surrogateescape")
    paths = [os.fsencode(os.path.realpath(source.path))]
    for split in splits:
        # Where the folders are others than they seem, the first picture shows it.
        files = split.paths if isinstance(split, Split) else split.shards
        paths += [*files, os.fsencode(os.path.realpath(files[0]))] if files else []
    taken = next((path for path in paths if os.path.join(path, b"").startswith(inside)), None)
    if taken is not None:
        raise UserError(f"TARGET={target} holds {os.fsdecode(taken)}, which is to be converted; name another folder.")
    if source.form == "folder" and inside.startswith(os.path.join(paths[0], b"")):
        raise UserError(f"TARGET={target} lies in SOURCE, where it would be taken for a class; name another folder.")


def _order(source: Source, split: AnySplit, to: str, shuffle: bool | None, seed: int) -> Sequence[int] | None:
    if not isinstance(split, Split) or split.name != "train" or shuffle is False:
        return None
    if shuffle or (to == "records" and not source.has_order):
        _log.info(
            "The training examples are put in another order (seed %d); --shuffle=no keeps that of the source", seed
        )
        return np.random.default_rng(seed).permutation(len(split)).tolist()
    labels = split.labels
    if to == "records" and labels.ndim == 1 and labels[0] != labels[-1] and (np.diff(labels) >= 0).all():
        _log.warning(
            "%s is sorted by class, so these records will be read in blocks of a class; --shuffle=yes mixes them.",
            split.source,
        )
    return None


@contextlib.contextmanager
def _target(folder: str, to: str, names: Sequence[str], num_shards: int, link: str | None) -> Iterator[Target]:
    made: Target
    if to == "records":
        made = RecordTarget(folder, names, num_shards)
    elif to == "list":
        made = ListTarget(folder, link)
    else:
        made = FolderTarget(folder, names, link)
    try:
        yield made
    finally:
        made.close()


def _write_split(
    split: AnySplit,
    pictures: Iterator[Picture | Rejected],
    target: Target,
    on_bad_image: str,
    progress: Callable[[str, int, int], None],
) -> tuple[Counts, list[Rejected]]:
    """Writes a split's pictures, and returns how many and those that were not."""
    rejected: list[Rejected] = []
    target.begin(split.name, len(split))
    for number, picture in enumerate(pictures, 1):
        if isinstance(picture, Rejected):
            rejected.append(picture)
        elif not rejected or on_bad_image == "skip":
            target.write(picture)
        if (
            on_bad_image == "error"
            and rejected
            and (len(rejected) > MAX_SHOWN or picture.position >= rejected[0].position + _LOOK_FURTHER)
        ):
            break
        progress(split.name, number, len(split))
    if rejected and on_bad_image == "error":
        shown = (f"{item.origin}: {item.path!r}: {item.reason}" for item in rejected[:MAX_SHOWN])
        raise UserError(
            f"{counted(len(rejected), 'image')} of the {split.name} split cannot be read, among those looked at:\n"
            f"{first_of(shown, min(len(rejected), MAX_SHOWN))}\n"
            "Mend or remove them, or leave such images out with --on-bad-image=skip."
        )
    counts = Counts(len(split), target.end(), len(rejected))
    if counts.written + counts.rejected != counts.listed:
        raise RuntimeError(f"{split.name}: {counts} do not add up; nothing was kept.")
    if not counts.written:
        raise UserError(
            f"none of the {counts.listed} images of the {split.name} split can be read; the first: "
            f"{rejected[0].path!r}: {rejected[0].reason}"
        )
    return counts, rejected


def _write_rejected(folder: str, rejected: Sequence[tuple[str, Rejected]]) -> None:
    with open(
        os.path.join(folder, REJECTED_FILE), "w", encoding="utf-8", errors="backslashreplace", newline=""
    ) as file:
        rows = csv.writer(file)
        rows.writerow(["split", "origin", "path", "reason"])
        rows.writerows([split, item.origin, item.path, item.reason] for split, item in rejected)


def _write_manifest(folder: str, source: Source, to: str, counts: dict[str, Counts]) -> None:
    manifest = {
        "source": source.path,
        "from": source.form,
        "to": to,
        "task": source.data.task,
        "num_classes": source.data.num_classes,
        "splits": {split: dataclasses.asdict(there) for split, there in counts.items()},
    }
    with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.write("\n")
