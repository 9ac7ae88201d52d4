"""Reads files for predictions, through the pipeline: a bad file is noted, and the others go on."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.pipeline.diagnose import Fault, find_fault_in
from slimexp.pipeline.images.formats import READABLE_FORMATS, BadImage, describe, identify
from slimexp.pipeline.images.jpeg_header import find_end, read_jpeg_header
from slimexp.pipeline.skipping import SkippedImages

__all__ = ["AllBadError", "BadFiles", "FileReader", "as_split"]


class AllBadError(Exception):
    """No file is left that could be read."""


def as_split(paths: Sequence[bytes], source: str) -> Split:
    """Returns files without labels as what the pipeline reads."""
    return Split("predict", paths, np.zeros([len(paths)], np.int32), source)


class FileReader:
    """Reads files; of one that cannot be read, is no picture or is cut short, it says why and gives a grey picture.

    A picture that is damaged otherwise is found only as it is decoded; that is for `BadFiles`, and costs a restart of
    the pipeline, about a second.

    Attributes:
        faults: Path -> what is wrong, in words.
    """

    def __init__(self) -> None:
        self.faults: dict[bytes, str] = {}

    def __call__(self, path: tf.Tensor) -> tf.Tensor:
        """Adds the reading of a file to a graph: from its name, string [], to its bytes, string []."""

        @tf.autograph.experimental.do_not_convert
        def read(path: Any) -> bytes:
            return self.read(path.item() if isinstance(path, np.ndarray) else path)

        return tf.ensure_shape(tf.numpy_function(read, [path], tf.string, stateful=False), [])

    def read(self, path: bytes) -> bytes:
        """Returns a file's bytes, or those of a grey picture."""
        try:
            with open(path, "rb") as file:
                contents = file.read()
        except FileNotFoundError:
            fault = "there is no such file"
        except OSError as error:
            fault = f"the file cannot be opened: {error.strerror}"
        except ValueError as error:
            fault = f"the file cannot be opened: {error}"
        else:
            found = _fault_in(contents)
            if found is None:
                return contents
            fault = found
        self.faults[path] = fault
        return _grey_picture()


class BadFiles(SkippedImages):
    """The files that no prediction can be made of; their places in the batches are taken by others.

    Args:
        split: The files.
        reader: What reads them.
    """

    def __init__(self, split: Split, reader: FileReader) -> None:
        super().__init__(split, path=None, max_fraction=1.0)
        self._paths = split.paths
        self._reader = reader
        self._found: dict[int, str] = {}
        self._first_good = 0

    def reason(self, index: int) -> str | None:
        """Returns why there is no prediction for a file; None if there is one."""
        return self._found.get(index) or self._reader.faults.get(self._paths[index])

    def are_skipped(self, indices: Any) -> np.ndarray:
        """See the base class."""
        if isinstance(indices, list):
            # A batch has failed: some of its files may not have been read yet, and not be there.
            for index in indices:
                self._reader.read(self._paths[index])
        faults = self._reader.faults
        if not faults:
            return self.mask[indices]
        return np.array([self.mask[index] or self._paths[index] in faults for index in indices], bool)

    def first_good(self, _: Any = None) -> int:
        """See the base class."""
        while self._first_good < len(self._paths) and self.reason(self._first_good) is not None:
            self._first_good += 1
        return min(self._first_good, len(self._paths) - 1)

    def add(self, faults: Mapping[int, Fault]) -> list[int]:
        """See the base class.

        Raises:
            AllBadError: If no file is left.
        """
        added = {
            other: fault.reason
            for index, fault in faults.items()
            for other in self._of_same_file(index)
            if other not in self._found
        }
        self._found.update(added)
        self.mask[list(added)] = True
        if self.reason(self.first_good()) is not None:
            raise AllBadError
        return list(added)


def _fault_in(contents: bytes) -> str | None:
    """Returns what is wrong with a file's contents, as far as it shows without decoding them."""
    kind = identify(contents)
    if not contents:
        return "the file is empty (0 bytes)"
    if kind is None:
        return f"it is {describe(contents)}, not a {READABLE_FORMATS} image"
    if kind == "JPEG":
        try:
            find_end(contents, read_jpeg_header(contents))
        except BadImage as error:
            return str(error)
        return None
    # What these say of their size, or end with.
    is_cut = {
        "PNG": lambda: b"IEND" not in contents[-64:] and b"IEND" not in contents,
        "WebP": lambda: len(contents) < 8 + int.from_bytes(contents[4:8], "little"),
        "BMP": lambda: len(contents) < int.from_bytes(contents[2:6], "little"),
    }
    if not is_cut.get(kind, lambda: False)():
        return None
    fault = find_fault_in(contents)  # Some decoders do without a missing end.
    return None if fault is None else fault.reason


@functools.cache
def _grey_picture() -> bytes:
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.io.encode_jpeg(tf.fill([64, 64, 3], tf.constant(128, tf.uint8))).numpy()
