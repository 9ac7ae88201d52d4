"""Reads list files in blocks of a few MB, vectorised: a million lines take about a second.

Lines of the usual shape (a path without a doubled quote mark, well-formed labels in range) are read with NumPy,
straight from the block's bytes. Every other line goes to `listfile_grammar`, which defines the format and words the
errors; this module never decides that a line is wrong. A test holds the two equal.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from slimexp.dataset.listfile_grammar import LabelReader, LineError, NumClassesUnknownError, split_line
from slimexp.dataset.listfile_terms import apply_terms, read_terms
from slimexp.errors import UserError

__all__ = ["BadLine", "ParsedList", "read_list"]

# Small enough that a block's temporary arrays (about 20 bytes a byte) stay cheap, large enough to be vectorised.
_BLOCK_BYTES = 4 << 20
_MAX_LINE_BYTES = 64 << 20
# Longer runs of blanks at a line's end go to the grammar.
_MAX_TRAILING_BLANKS = 64
_MAX_CACHED_LABELS = 200_000
_UNKNOWN = -(1 << 31)

_NEWLINE, _SPACE, _TAB, _COLON, _QUOTE, _HASH, _SLASH = b'\n \t:"#/'


def _byte_set(members: bytes) -> np.ndarray:
    table = np.zeros(256, bool)
    table[list(members)] = True
    return table


_IS_TRAILING = _byte_set(b" \t\r")
_IS_SUSPECT = _byte_set(b"\r\0")


class BadLine(NamedTuple):
    """A line number, counted from 1, and what is wrong with the line."""

    number: int
    error: LineError


class ParsedList(NamedTuple):
    """What a list file says.

    Attributes:
        paths: n absolute file names.
        labels: int32 [n] for single-label lists (below 0: a learnt name), int8 [n, num_classes] for multi-label ones.
        lines: int64 [n], the line of each image, counted from 1.
        num_lines: The lines of the file, blank ones and comments too.
        num_bad_lines: The lines that can't be read.
        bad_lines: The first of them.
    """

    paths: list[bytes]
    labels: np.ndarray
    lines: np.ndarray
    num_lines: int
    num_bad_lines: int
    bad_lines: list[BadLine]


def read_list(
    list_file: str,
    reader: LabelReader,
    *,
    image_dir: bytes,
    max_bad_lines: int = 10,
    block_bytes: int = _BLOCK_BYTES,
) -> ParsedList:
    """Reads and checks a list file.

    Args:
        list_file: The file, or a pipe.
        reader: What the labels may be.
        image_dir: The absolute folder that relative paths start from.
        max_bad_lines: How many bad lines to return; all are counted.
        block_bytes: How much is read at a time.

    Returns:
        The images of all good lines, and the first bad lines.

    Raises:
        UserError: If the file is not text at all or changes meanwhile, the number of classes is needed but not known,
            or the labels don't fit into memory.
    """
    with _open(list_file) as file:
        # Counting first costs little (over 1 GB/s) and lets the results grow in place.
        most_images = 1 + sum(block.count(b"\n") for block in iter(lambda: file.read(block_bytes), b""))
        file.seek(0)
        result = _Result(reader, os.path.join(image_dir, b""), most_images, max_bad_lines, list_file)
        for block in _blocks(file, block_bytes, list_file):
            result.add(block)
    return result.parsed()


def _open(list_file: str) -> BinaryIO:
    file = open(list_file, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:  # A pipe can be read only once.
        return io.BytesIO(file.readall())


def _blocks(file: BinaryIO, block_bytes: int, list_file: str) -> Iterator[bytes]:
    """Yields the file in blocks of whole lines, each ending with LF, without the byte order mark."""
    rest = b""
    is_first = True
    while data := file.read(block_bytes):
        rest += data
        if is_first and len(rest) < 3:
            continue  # A pipe or a tiny block: too little to tell whether a mark is there.
        if is_first:
            if rest.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise UserError(f"{list_file} is UTF-16 text; save it as UTF-8.")
            rest = rest.removeprefix(b"\xef\xbb\xbf")
            is_first = False
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > _MAX_LINE_BYTES:
            raise UserError(
                f"{list_file} has a line of more than {_MAX_LINE_BYTES >> 20} MiB, so it is hardly a list of images; "
                "one image a line is expected, as in a.jpg -1:* 1:0,7."
            )
    if rest:
        yield rest.removesuffix(b"\n") + b"\n"


class _Lines(NamedTuple):
    """Where the parts of a block's lines lie.

    Attributes:
        starts, ends: int64 [n], the line without its end and trailing blanks.
        path_starts, path_ends: int64 [n], the path without quotes; for `plain` lines only. The byte at `path_ends` is a
            space, a tab or the closing quote.
        skipped: bool [n], blank lines and comments.
        plain: bool [n], lines whose path and labels can be told apart without the grammar.
    """

    starts: np.ndarray
    ends: np.ndarray
    path_starts: np.ndarray
    path_ends: np.ndarray
    skipped: np.ndarray
    plain: np.ndarray


def _first_from(positions: np.ndarray, starts: np.ndarray, none: int) -> np.ndarray:
    """Returns for each start the first position at or after it, or `none`."""
    return np.append(positions, none)[np.searchsorted(positions, starts)]


def _split_lines(block: bytes, bytes_: np.ndarray) -> _Lines:
    newlines = np.flatnonzero(bytes_ == _NEWLINE)
    starts = np.concatenate(([0], newlines[:-1] + 1))
    ends = newlines.copy()
    for _ in range(_MAX_TRAILING_BLANKS):
        trailing = _IS_TRAILING[bytes_[ends - 1]] & (ends > starts)
        if not trailing.any():
            break
        ends -= trailing
    else:
        trailing = _IS_TRAILING[bytes_[ends - 1]] & (ends > starts)

    first = bytes_[starts]
    skipped = (ends == starts) | (first == _HASH)
    shape_known = ~(skipped | trailing | (first == _SPACE) | (first == _TAB))
    suspects = np.flatnonzero(_IS_SUSPECT[bytes_])
    line_of = np.searchsorted(newlines, suspects)
    shape_known[line_of[suspects < ends[line_of]]] = False
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            shape_known[np.searchsorted(newlines, np.flatnonzero(bytes_ > 127))] = False

    path_starts = starts
    path_ends = _first_from(np.flatnonzero(bytes_ == _SPACE), starts, len(block))
    plain = shape_known.copy()
    tabs = np.flatnonzero(bytes_ == _TAB)
    if len(tabs):
        first_tab = _first_from(tabs, starts, len(block))
        has_tab = first_tab < ends
        # With blanks before the tab, the path is sure only if nothing in it can read like a term.
        clear = path_ends > first_tab
        colons = _first_from(np.flatnonzero(bytes_ == _COLON), starts, len(block))
        clear |= (colons > first_tab) & (bytes_[first_tab - 1] != _SPACE)
        plain &= clear | ~has_tab
        path_ends = np.where(has_tab, first_tab, path_ends)
    plain &= path_ends < ends
    quotes = np.flatnonzero(bytes_ == _QUOTE)
    if len(quotes):
        num_quotes = np.diff(np.searchsorted(quotes, newlines), prepend=0)
        plain &= num_quotes == 0
        quoted = np.flatnonzero(shape_known & (num_quotes == 2) & (first == _QUOTE))
        closing = quotes[np.searchsorted(quotes, starts[quoted]) + 1]
        after = bytes_[closing + 1]
        sure = (closing > starts[quoted] + 1) & (closing + 1 < ends[quoted]) & ((after == _SPACE) | (after == _TAB))
        quoted, closing = quoted[sure], closing[sure]
        plain[quoted] = True
        path_starts = starts.copy()
        path_starts[quoted] += 1
        path_ends[quoted] = closing
    return _Lines(starts, ends, path_starts, path_ends, skipped, plain)


class _Result:
    """Collects the images of a list, block by block."""

    def __init__(
        self, reader: LabelReader, prefix: bytes, most_images: int, max_bad_lines: int, list_file: str
    ) -> None:
        self._reader = reader
        self._prefix = prefix
        self._max_bad_lines = max_bad_lines
        self._list_file = list_file
        self._paths: list[bytes] = []
        self._num_lines = 0
        self._num_bad_lines = 0
        self._bad_lines: list[BadLine] = []
        # Classes of label texts seen before, with their separator; single-label lists repeat few of them.
        self._cache: dict[bytes, int] = {}
        try:
            # Zeros aren't in memory before they are written, so lines without an image cost nothing.
            self._lines = np.zeros(most_images, np.int64)
            single = reader.task == "single"
            shape = (most_images,) if single else (most_images, reader.num_classes or 0)
            self._labels: np.ndarray = np.zeros(shape, np.int32 if single else np.int8)
        except (MemoryError, ValueError):  # ValueError: the size doesn't even fit into an integer.
            raise UserError(
                f"{list_file}: the labels of {most_images} lines x dataset.num_classes={reader.num_classes} don't fit "
                "into memory (one byte each)."
            ) from None

    def parsed(self) -> ParsedList:
        num_images = len(self._paths)
        return ParsedList(
            self._paths,
            self._labels[:num_images],
            self._lines[:num_images],
            self._num_lines,
            self._num_bad_lines,
            self._bad_lines,
        )

    def add(self, block: bytes) -> None:
        """Reads the block's lines.

        Args:
            block: Whole lines, each with its LF.
        """
        bytes_ = np.frombuffer(block, np.uint8)
        lines = _split_lines(block, bytes_)
        plain = np.flatnonzero(lines.plain)
        codes = terms = None
        is_read = np.zeros(len(plain), bool)
        if self._reader.task == "single":
            codes = self._look_up(block, lines, plain)
            is_read = codes != _UNKNOWN
        elif self._reader.num_classes is not None:
            # The separator's blanks are left out: the first byte of the labels is the first that isn't blank.
            begins = self._skip_blanks(bytes_, lines.path_ends[plain] + 1)
            terms = read_terms(bytes_, begins, lines.ends[plain], self._reader.num_classes, self._reader.labels_offset)
            is_read = terms.good

        taken = np.zeros(len(lines.starts), bool)
        taken[plain[is_read]] = True
        by_grammar = self._read_by_grammar(block, lines, np.flatnonzero(~(taken | lines.skipped)))
        taken[list(by_grammar)] = True

        begin = len(self._paths)
        kept = np.flatnonzero(taken)
        if begin + len(kept) > len(self._lines):
            raise UserError(f"{self._list_file} was written to while it was read; start again when it is complete.")
        rows = np.zeros(len(taken), np.int64)
        rows[kept] = np.arange(begin, begin + len(kept))
        self._lines[begin : begin + len(kept)] = kept + (self._num_lines + 1)
        if codes is not None:
            self._labels[rows[plain[is_read]]] = codes[is_read]
        elif terms is not None:
            apply_terms(terms, rows[plain], self._labels)
        self._add_paths(block, bytes_, lines, kept)
        for line, (path, label) in by_grammar.items():
            self._paths[rows[line]] = os.path.join(self._prefix, path)
            self._labels[rows[line]] = label
        self._num_lines += len(lines.starts)

    def _add_paths(self, block: bytes, bytes_: np.ndarray, lines: _Lines, kept: np.ndarray) -> None:
        starts = lines.path_starts[kept]
        path_ends = lines.path_ends[kept]
        prefix = self._prefix
        begin = len(self._paths)
        self._paths += [prefix + block[s:e] for s, e in zip(starts.tolist(), path_ends.tolist(), strict=True)]
        for i in np.flatnonzero(bytes_[starts] == _SLASH).tolist():
            self._paths[begin + i] = block[starts[i] : path_ends[i]]

    @staticmethod
    def _skip_blanks(bytes_: np.ndarray, positions: np.ndarray) -> np.ndarray:
        positions = positions.copy()
        while (is_blank := (bytes_[positions] == _SPACE) | (bytes_[positions] == _TAB)).any():
            positions += is_blank
        return positions

    def _look_up(self, block: bytes, lines: _Lines, plain: np.ndarray) -> np.ndarray:
        """Returns the class of each of the lines, or _UNKNOWN where the grammar can't read its labels."""
        path_ends = lines.path_ends[plain].tolist()
        texts = [block[s:e] for s, e in zip(path_ends, lines.ends[plain].tolist(), strict=True)]
        if len(self._cache) > _MAX_CACHED_LABELS:
            self._cache.clear()
        # Each distinct text once, in the order of the list, so that learnt names don't depend on hashes.
        for text in dict.fromkeys(texts):
            if text not in self._cache:
                try:
                    # The first byte is the separator, or the quote that ends the path.
                    label = self._reader.read_single(text[1:].strip(b" \t").decode(), free=text[:1] != b" ")
                except LineError:
                    continue
                self._cache[text] = label
        get = self._cache.get
        return np.fromiter((get(text, _UNKNOWN) for text in texts), np.int32, len(texts))

    def _read_by_grammar(
        self, block: bytes, lines: _Lines, chosen: np.ndarray
    ) -> dict[int, tuple[bytes, int | np.ndarray]]:
        """Reads the lines one by one; returns path and label of the good ones and records the bad ones."""
        found: dict[int, tuple[bytes, int | np.ndarray]] = {}
        for line in chosen.tolist():
            try:
                fields = split_line(block[lines.starts[line] : lines.ends[line]])
                if fields is None:
                    continue
                if self._reader.task == "single":
                    found[line] = fields.path, self._reader.read_single(fields.labels, free=fields.free)
                else:
                    found[line] = fields.path, self._reader.read_multi(fields.labels)
            except NumClassesUnknownError as error:
                raise UserError(f"{self._list_file}:{self._num_lines + line + 1}: {error}") from None
            except LineError as error:
                self._num_bad_lines += 1
                if len(self._bad_lines) < self._max_bad_lines:
                    self._bad_lines.append(BadLine(self._num_lines + line + 1, error))
        return found
