"""What is written: TFRecord files, a list with its images, or a folder of classes; from pictures in order.

records: train-00000-of-00016.tfrecord …  eval-…          labels.txt
list:    train.txt  eval.txt  and the images by their names  labels.txt
folder:  train/CLASS/…  eval/CLASS/…                       labels.txt
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TextIO

import numpy as np

from slimexp.convert.pictures import SUFFIXES, Picture
from slimexp.convert.place import LABELS_FILE, MANIFEST, REJECTED_FILE
from slimexp.convert.shards import ShardWriter, shard_names
from slimexp.dataset import format_path
from slimexp.dataset.example import make_example
from slimexp.dataset.image_folder import READABLE_SUFFIXES
from slimexp.dataset.record_file import count_records
from slimexp.errors import UserError

__all__ = ["FolderTarget", "ListTarget", "RecordTarget", "Target"]

# Files are written by several at a time, since a disk over a network makes each wait.
_WRITERS = 8
_MOST_PENDING = 64
# No image of a list may be called as a file that is written beside it.
_OWN_FILES = frozenset({"train.txt", "eval.txt", LABELS_FILE, MANIFEST, REJECTED_FILE})


class Target(Protocol):
    """Writes one split after the other into a new folder."""

    def begin(self, split: str, num_positions: int) -> None:
        """Begins a split of so many pictures, of which some may not come."""

    def write(self, picture: Picture) -> None:
        """Writes a picture; they come in order."""

    def end(self) -> int:
        """Ends the split and returns how many pictures can be counted in what was written."""

    def close(self) -> None:
        """Lets go of files and threads, also of those of a split that did not come to its end."""


class RecordTarget:
    """Writes TFRecord files."""

    def __init__(self, folder: str, class_names: Sequence[str], num_shards: int) -> None:
        self._folder = folder
        self._names = class_names
        self._num_shards = num_shards
        self._writer: ShardWriter | None = None

    def begin(self, split: str, num_positions: int) -> None:
        num_shards = min(self._num_shards, num_positions)
        self._files = [os.path.join(self._folder, name) for name in shard_names(split, num_shards)]
        self._writer = ShardWriter(self._folder, split, num_shards, num_positions)

    def write(self, picture: Picture) -> None:
        label = picture.label
        if isinstance(label, int):
            values: int | list[int] = label
            text = [self._names[label]]
        else:
            values = label.tolist()
            text = [self._names[index] for index in np.flatnonzero(label == 1).tolist()]
        record = make_example(
            picture.contents,
            image_format=picture.format.lower().replace(" ", ""),
            label=values,
            text=text,
            height=picture.height,
            width=picture.width,
            filename=picture.name,
        )
        assert self._writer is not None
        self._writer.write(picture.position, record)

    def end(self) -> int:
        assert self._writer is not None
        self._writer.finish()
        return sum(count_records(os.fsencode(file)) for file in self._files)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _ImageFiles:
    """Writes image files, each under a name of its own, several at a time."""

    def __init__(self, folder: str, link: str | None) -> None:
        self._folder = os.fsencode(folder)
        self._link = link
        self._taken: set[bytes] = set()
        self._folders: set[bytes] = set()
        self._pending: deque[Future[None]] = deque()
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")

    def add(self, name: bytes, picture: Picture, *, once: bool) -> bytes:
        """Writes a picture, and returns its name.

        Args:
            name: What it is to be called. If another picture is called so, a number is put behind its stem.
            picture: The picture.
            once: Whether the same picture under the same name is one file rather than two.
        """
        stem, suffix = os.path.splitext(name)
        number = 1
        while name in self._taken:
            if once and self._is_written(name, picture.contents):
                return name
            number += 1
            name = b"%s-%d%s" % (stem, number, suffix)
        self._taken.add(name)
        path = os.path.join(self._folder, name)
        parent = os.path.dirname(path)
        if parent not in self._folders:
            os.makedirs(parent, exist_ok=True)
            self._folders.add(parent)
        if len(self._pending) >= _MOST_PENDING:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._put, path, picture))
        return name

    def finish(self) -> None:
        """Waits until all are written."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _is_written(self, name: bytes, contents: bytes) -> bool:
        self.finish()
        with open(os.path.join(self._folder, name), "rb") as file:
            return file.read() == contents

    def _put(self, path: bytes, picture: Picture) -> None:
        if self._link is None:
            with open(path, "xb") as file:
                file.write(picture.contents)
            return
        assert picture.path is not None
        source = os.path.realpath(picture.path)
        try:
            (os.link if self._link == "hard" else os.symlink)(source, path)
        except OSError as error:
            raise UserError(
                f"--link={self._link}: {os.fsdecode(source)} cannot be linked to ({error.strerror}); a hard link needs "
                "the same disk. Leave --link out to copy."
            ) from error


class ListTarget:
    """Writes list files and, beside them, the images under their own names."""

    def __init__(self, folder: str, link: str | None) -> None:
        self._folder = folder
        self._images = _ImageFiles(folder, link)
        self._file: TextIO | None = None

    def begin(self, split: str, num_positions: int) -> None:
        self._path = os.path.join(self._folder, f"{split}.txt")
        self._file = open(self._path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115 - `end` closes it

    def write(self, picture: Picture) -> None:
        name = picture.name
        if name.decode(errors="replace") in _OWN_FILES:
            name = b"images/" + name
        name = self._images.add(name, picture, once=True)
        try:
            path = format_path(name.decode())
        except UnicodeDecodeError:
            raise UserError(
                f"{name!r} is not UTF-8, so it cannot stand in a list file; rename the file, or convert to records."
            ) from None
        assert self._file is not None
        self._file.write(f"{path} {_terms(picture.label)}\n")

    def end(self) -> int:
        self._images.finish()
        assert self._file is not None
        self._file.close()
        with open(self._path, "rb") as file:
            return sum(1 for _ in file)

    def close(self) -> None:
        self._images.close()
        if self._file is not None:
            self._file.close()


class FolderTarget:
    """Writes a folder a class."""

    def __init__(self, folder: str, class_names: Sequence[str], link: str | None) -> None:
        for name in class_names:
            if "/" in name or "\0" in name or name.startswith("."):
                raise UserError(
                    f"the class {name!r} cannot be a folder: its name has a slash or begins with a dot. Give "
                    "the classes other names with --class-names, or convert to records or list."
                )
        self._folder = folder
        self._names = class_names
        self._images = _ImageFiles(folder, link)
        self._used = np.zeros(len(class_names), np.int64)

    def begin(self, split: str, num_positions: int) -> None:
        self._split = split
        self._used[:] = 0

    def write(self, picture: Picture) -> None:
        assert isinstance(picture.label, int)
        class_name = self._names[picture.label].encode()
        # What stands before the class's own folder in the name, or the split's alone, would come twice.
        parts = picture.name.split(b"/")
        folders = parts[:-1]
        if class_name in folders:
            parts = parts[len(folders) - folders[::-1].index(class_name) :]
        elif folders[:1] == [self._split.encode()]:
            parts = parts[1:]
        # Hidden files and files of other suffixes would be left out when the folder is read.
        parts = [b"_" + part if part.startswith(b".") else part for part in parts]
        if os.path.splitext(parts[-1])[1][1:].lower() not in READABLE_SUFFIXES:
            parts[-1] += b"." + SUFFIXES[picture.format].encode()
        name = b"/".join([self._split.encode(), class_name, *parts])
        self._images.add(name, picture, once=False)
        self._used[picture.label] += 1

    def end(self) -> int:
        self._images.finish()
        without = [name for name, count in zip(self._names, self._used.tolist(), strict=True) if not count]
        if without and self._split == "train":
            raise UserError(
                f"{len(without)} of the {len(self._names)} classes have no training image ({', '.join(without[:5])}"
                f"{', …' if len(without) > 5 else ''}); a folder of classes cannot say so, and the classes behind them "
                "would get other numbers. Convert to records or list."
            )
        top = os.path.join(self._folder, self._split)
        return sum(len(names) for _, _, names in os.walk(top))

    def close(self) -> None:
        self._images.close()


def _terms(label: int | np.ndarray) -> str:
    """Writes a label as a list file has it, the shorter way."""
    if isinstance(label, int):
        return str(label)
    counts = {value: int(np.count_nonzero(label == value)) for value in (-1, 0, 1)}
    most = max(counts, key=lambda value: (counts[value], -value))
    terms = [] if most == 0 else [f"{most}:*"]
    for value in (-1, 1, 0):
        if value != most and counts[value]:
            terms.append(f"{value}:{','.join(map(str, np.flatnonzero(label == value).tolist()))}")
    return " ".join(terms) or "0:*"
