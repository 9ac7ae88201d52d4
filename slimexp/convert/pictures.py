"""Reads a split's examples in order, several at a time, and checks each picture; the bytes stay as they are."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from slimexp.convert.shards import read_shard
from slimexp.dataset import AnySplit, RecordSplit, Split
from slimexp.dataset.tfrecord import kinds_of, parse_example
from slimexp.errors import UserError

__all__ = ["SUFFIXES", "Picture", "Rejected", "read_pictures"]

# How files of each format are called; the formats are those of slimexp.pipeline.images.formats.
SUFFIXES = {
    "JPEG": "jpg",
    "PNG": "png",
    "GIF": "gif",
    "BMP": "bmp",
    "WebP": "webp",
    "TIFF": "tif",
    "JPEG 2000": "jp2",
    "AVIF": "avif",
    "PNM": "pnm",
}
# Pictures read ahead, a thread.
_AHEAD = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Picture(NamedTuple):
    """A picture that is fit to be written.

    Attributes:
        position: Its place in what is written, counted from 0; those that are rejected have one too.
        name: What it is called: relative, with slashes, and without a step to the folder above.
        path: Its file; None for a picture of a record.
        contents: The file's bytes.
        format: One of `SUFFIXES`.
        height: In pixels as stored.
        width: Likewise.
        label: The class, or int8 [num_classes]: 1, -1, or 0 for don't care.
    """

    position: int
    name: bytes
    path: bytes | None
    contents: bytes
    format: str
    height: int
    width: int
    label: int | np.ndarray


class Rejected(NamedTuple):
    """A picture that is not fit.

    Attributes:
        position: As for `Picture`.
        origin: Where the example was named, e.g. `train.txt:17`.
        path: Its file, or its shard and record.
        reason: In words that follow these and a colon.
    """

    position: int
    origin: str
    path: str
    reason: str


def read_pictures(
    split: AnySplit, *, base: bytes | None, order: Sequence[int] | None, decode: bool, threads: int
) -> Generator[Picture | Rejected, None, None]:
    """Reads and checks a split's examples.

    Args:
        split: The examples.
        base: The folder that the names of files count from; None for records, which tell their names.
        order: The examples' numbers in the order in which they are wanted; None for that of the source, which is the
            only one for records.
        decode: Whether to decode each picture, by the pipeline's own code, rather than to look at its beginning alone.
        threads: How many are read or decoded at a time.

    Yields:
        One element an example, in order.

    Raises:
        UserError: If a file cannot be read, or a record has not the features or a wrong label.
    """
    if isinstance(split, RecordSplit):
        assert order is None
        records = split
        yield from _in_order(lambda item: _of_record(records, *item, decode), _numbered_records(records), threads)
    else:
        assert base is not None
        files, start = split, len(os.path.join(base, b""))
        yield from _in_order(
            lambda item: _of_file(files, *item, start, decode),
            enumerate(range(len(split)) if order is None else order),
            threads,
        )


def _in_order(function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> Iterator[_Result]:
    """Applies a function to items in threads and yields the results in order; keeps few of either."""
    pending: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="convert")
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= threads * _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _of_file(split: Split, position: int, index: int, start: int, decode: bool) -> Picture | Rejected:
    path = split.paths[index]
    try:
        with open(path, "rb") as file:
            contents = file.read()
    except OSError as error:
        raise UserError(f"{split.origin(index)}: {split.path(index)!r}: {error.strerror}.") from error
    checked = _check(contents, decode)
    if isinstance(checked, str):
        return Rejected(position, split.origin(index), split.path(index), checked)
    label = split.labels[index]
    return Picture(
        position, os.path.normpath(path)[start:], path, contents, *checked, int(label) if label.ndim == 0 else label
    )


def _numbered_records(split: RecordSplit) -> Iterator[tuple[int, bytes | UserError]]:
    position = 0
    for shard, count in zip(split.shards, split.counts.tolist(), strict=True):
        for record in read_shard(shard, count):
            yield position, record
            position += 1


def _of_record(split: RecordSplit, index: int, record: bytes | UserError, decode: bool) -> Picture | Rejected:
    if isinstance(record, UserError):
        return Rejected(index, split.origin(index), split.path(index), str(record))
    where = f"{split.path(index)}:"
    kinds = kinds_of(record)
    if kinds is None:
        raise UserError(f"{where} it is no tf.train.Example.")
    features = parse_example(record).features.feature
    pictures = features[split.image_key].bytes_list.value
    if len(pictures) != 1:
        raise UserError(
            f"{where} dataset.image_key={split.image_key} holds {len(pictures)} byte strings; it must hold one picture."
        )
    label = split.label
    values = list(getattr(features[label.key], "float_list" if label.is_float else "int64_list").value)
    if not label.fits(values):
        shown = ", ".join(map(str, values[:20])) or "empty"
        raise UserError(f"{where} the label is {shown}; {label.rule} allowed ({label.num_classes} classes).")
    contents = bytes(pictures[0])
    checked = _check(contents, decode)
    if isinstance(checked, str):
        return Rejected(index, split.origin(index), split.path(index), checked)
    names = features["image/filename"].bytes_list.value
    name = _clean(names[0]) if len(names) == 1 else b""
    if not name:
        name = b"%s/%08d.%s" % (split.name.encode(), index, SUFFIXES[checked[0]].encode())
    return Picture(index, name, None, contents, *checked, _label(values, label.form, label.num_classes, label.offset))


def _clean(name: bytes) -> bytes:
    """Returns a name without what would lead out of the folder it is to stand in: records may come from anywhere."""
    return b"/".join(part for part in name.replace(b"\0", b"").split(b"/") if part not in (b"", b".", b".."))


def _label(values: list[Any], form: str, num_classes: int, offset: int) -> int | np.ndarray:
    if form == "class":
        return int(values[0]) - offset
    if form == "indices":
        row = np.full(num_classes, -1, np.int8)
        row[np.array(values, np.int64) - offset] = 1
        return row
    row = np.array(values, np.int8)
    return 2 * row - 1 if form == "binary" else row


def _check(contents: bytes, decode: bool) -> tuple[str, int, int] | str:
    """Returns a picture's format, height and width, or what is wrong with it."""
    from PIL import Image

    from slimexp.pipeline.diagnose import find_fault_in
    from slimexp.pipeline.images.formats import READABLE_FORMATS, BadImage, describe, identify
    from slimexp.pipeline.images.jpeg_header import find_end, read_jpeg_header

    kind = identify(contents)
    if not contents:
        return "the file is empty (0 bytes)"
    if kind is None:
        return f"it is {describe(contents)}, not a {READABLE_FORMATS} image"
    if decode:
        fault = find_fault_in(contents)
        if fault is not None:
            return fault.reason
    try:
        if kind == "JPEG":
            header = read_jpeg_header(contents)
            find_end(contents, header)
            width, height = header.width, header.height
        else:
            with Image.open(io.BytesIO(contents)) as image:
                width, height = image.size
    except BadImage as error:
        return str(error)
    except Exception as error:  # Whatever Pillow's plugins stumble over.
        return f"the {kind} is damaged or of a kind that cannot be read ({error})"
    return kind, height, width
