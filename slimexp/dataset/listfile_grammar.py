"""Defines the grammar of list files: one image a line, `PATH LABELS`. This parser decides; the fast one follows it.

    LINE    = [PATH SEP LABELS]                        blank lines, and lines that begin with `#`, are left out
    PATH    = plain | `"` anything, `""` for `"` `"`   relative to `dataset.image_dir`, else to the list's folder
    SEP     = blanks | blanks with a tab               a blank is a space or a tab
    LABELS  = TERM { blanks TERM }                     e.g. `-1:* 1:0,7`: 0 and 7 positive, all others negative
    TERM    = VALUE `:` ( `*` | INDEX { `,` INDEX } )
    VALUE   = `1` (positive) | `-1` (negative) | `0` (don't care)
    CLASS   = INDEX | name | `"name"`                  may stand for LABELS in a single-label list

Later terms win, and what no term names is don't care. The cases that could be read in two ways:

- Encoding: UTF-8, with or without a byte order mark; lines end with LF or CR LF; blanks at either end of a line don't
  count. A NUL byte, or a CR within a line, is an error. Comment lines aren't looked into.
- A plain path ends at the first tab, if the line has one, else at the first blank. So a path may hold blanks if a tab
  follows it (`my cat.jpg<TAB>1:0`); before that tab it may hold nothing that reads like a term after a blank
  (`a.jpg 1:0<TAB>1:3` is an error, as the blank could be meant as the separator). In a line without a tab every
  word after the first must be a term (or the one class), so `my cat 1:2.jpg -1:* 1:0` is an error.
- A quoted path may hold blanks, tabs, `#`, commas and colons; `""` within it stands for one `"`, and a backslash is an
  ordinary character. Outside of quotes a `"` is an error anywhere, so a forgotten quote can't join the file name.
- No path holds a line break or a NUL: the format can't say them.
- Terms: no empty index list (`1:`), no empty place (`1:0,,7`, `1:0,`), no sign on an index, no `*` among indices, no
  blank inside a term, no values but 1, -1 and 0 as written here (`+1:0` and `2:0` are errors). `007` is 7.
- In a single-label list, terms must make exactly one label positive. A word of digits is always an index, a quoted
  word is always a name. A name with blanks needs quotes, or a tab (or a quoted path) before it. A name that reads
  like a term or a number (`1:3`, `-4`, `2.5`) needs quotes unless `dataset.class_names` has it.
- `dataset.labels_offset` is subtracted from every index, and from no name.
- Among `dataset.class_names` of a single-label list, a word of digits must be its own class's index.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from slimexp.errors import UserError

__all__ = ["Fields", "LabelReader", "LineError", "NumClassesUnknownError", "format_path", "shorten", "split_line"]

_BLANKS = " \t"
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_WORD = re.compile(r"[^ \t]+")
_TERM = re.compile(r"(-1|0|1):(?:\*|([0-9]+(?:,[0-9]+)*))")
_LIKE_TERM = re.compile(r"[+-]?[0-9]+:")
_LIKE_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+")
_MAX_SHOWN = 100
# Longer indices can't be labels, and Python refuses to convert digits by the thousand.
_MAX_DIGITS = 18


class LineError(Exception):
    """A line that breaks the grammar.

    Attributes:
        text: The offending text, to be shown with repr.
        rule: What is wrong and the way out.
        hint: Computes one more remark; called only for the errors that are shown, as it may be slow.
    """

    def __init__(self, text: str | bytes, rule: str, hint: Callable[[], str] | None = None) -> None:
        super().__init__(text, rule)
        self.text = text
        self.rule = rule
        self.hint = hint

    def __str__(self) -> str:
        return f"{shorten(self.text)}: {self.rule}{self.hint() if self.hint else ''}"


class NumClassesUnknownError(LineError):
    """A label by index, where nothing says how many classes there are: every further line would say the same."""


class Fields(NamedTuple):
    """The two parts of a line.

    Attributes:
        path: The path as the bytes of its UTF-8 form, unquoted, neither empty nor made absolute.
        labels: The text after the separator, without blanks around it.
        free: Whether the separator leaves no doubt where the path ends, so that `labels` may be a name with blanks.
    """

    path: bytes
    labels: str
    free: bool


def shorten(text: str | bytes) -> str:
    """Returns repr(text), which shows hidden characters, with the middle of a long text left out."""
    if len(text) <= _MAX_SHOWN:
        return repr(text)
    half = _MAX_SHOWN // 2
    return f"{text[:half]!r}...{text[-half:]!r}"


def split_line(line: bytes) -> Fields | None:
    """Splits a line into path and labels.

    Args:
        line: The line without its LF.

    Returns:
        The fields, or None for a blank or comment line.

    Raises:
        LineError: If the line isn't UTF-8, or it isn't clear where the path ends.
    """
    line = line.rstrip(b" \t\r").lstrip(b" \t")
    if not line or line.startswith(b"#"):
        return None
    if b"\0" in line:
        raise LineError(line, "a NUL byte; a list is plain UTF-8 text (is this a binary file, or UTF-16?)")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise LineError(line, f"byte 0x{line[error.start]:02x} is not UTF-8; save the list in that encoding") from None
    if "\r" in text:
        raise LineError(text, "a carriage return within a line; end lines with LF or CR LF")
    if text.startswith('"'):
        return _split_quoted(text)
    path, tab, labels = text.partition("\t")
    if not tab:
        path, _, labels = text.partition(" ")
    path = path.rstrip(_BLANKS)
    labels = labels.lstrip(_BLANKS)
    if '"' in path:
        raise LineError(path, 'a path with a quote mark must be quoted, and the mark doubled: "a""b.jpg"')
    if not labels:
        hint = "; a comma doesn't separate them" if "," in text else ""
        raise LineError(text, f"no labels after the path; a line is PATH LABELS, as in a.jpg -1:* 1:0,7{hint}")
    if tab and any(_LIKE_TERM.match(word) for word in _WORD.findall(path)[1:]):
        raise LineError(
            text,
            "both a blank and the tab could end the path; quote the path, or put the tab first",
        )
    return Fields(path.encode(), labels, bool(tab))


def _split_quoted(text: str) -> Fields:
    match = _QUOTED.match(text)
    if match is None:
        raise LineError(text, "the path's closing quote mark is missing")
    path = match[1].replace('""', '"')
    rest = text[match.end() :]
    if rest and rest[0] not in _BLANKS:
        raise LineError(text, "a blank must follow the path's closing quote mark (a quote mark within it is doubled)")
    if not path:
        raise LineError(text, "the path is empty")
    if not rest:
        raise LineError(text, "no labels after the path; a line is PATH LABELS, as in a.jpg -1:* 1:0,7")
    return Fields(path.encode(), rest.strip(_BLANKS), True)


def format_path(path: str) -> str:
    """Writes a path so that it is read back as it is, quoted where that is needed.

    Raises:
        UserError: If the path is empty or holds a line break or a NUL, which no list can say.
    """
    if not path or any(char in path for char in "\n\r\0"):
        raise UserError(
            f"{path!r} can't stand in a list file: a path has one character at least, and no line break or NUL. "
            "Rename the file."
        )
    # A BOM at the very start of a file would be taken for the file's own.
    if path.startswith(("#", "\ufeff")) or any(char in path for char in ' \t"'):
        return '"' + path.replace('"', '""') + '"'
    return path


class LabelReader:
    """Reads the label text of a line, for lists of one task and one set of classes.

    While `learns_names` is true (a single-label list without `class_names`), a new name is given the next code,
    -1, -2, …: whether the names are the classes is known once the list is read (see `names`).

    Args:
        task: `single` or `multi`.
        num_classes: The number of classes; None if it isn't known, and then any label but a name is refused.
        class_names: The name of each class, if they have names.
        labels_offset: What is subtracted from each index.
        learns_names: Whether unknown names are new classes rather than errors.
    """

    def __init__(
        self,
        task: str,
        num_classes: int | None,
        class_names: Sequence[str] | None = None,
        *,
        labels_offset: int = 0,
        learns_names: bool = False,
    ) -> None:
        assert task in ("single", "multi"), task
        assert class_names is None or len(class_names) == num_classes
        self.task = task
        self.num_classes = num_classes
        self.labels_offset = labels_offset
        self.learns_names = learns_names
        self.names = {name: index for index, name in enumerate(class_names or ())}

    def read_multi(self, labels: str) -> np.ndarray:
        """Reads terms.

        Returns:
            int8 [num_classes], each 1, -1 or 0.
        """
        row = np.zeros(self._known_num_classes(labels), np.int8)
        for word in _WORD.findall(labels):
            match = _TERM.fullmatch(word)
            if match is None:
                raise LineError(word, _explain_term(word, self.task))
            if match[2] is None:
                row[:] = int(match[1])
            else:
                row[[self._index(digits) for digits in match[2].split(",")]] = int(match[1])
        return row

    def read_single(self, labels: str, *, free: bool) -> int:
        """Reads one class, or terms that make exactly one label positive.

        Args:
            labels: The label text.
            free: Whether a name with blanks is allowed here.

        Returns:
            The class; below 0 for a name that was learnt.
        """
        if labels.startswith('"'):
            match = _QUOTED.fullmatch(labels)
            if match is None or not match[1]:
                raise LineError(labels, "a quoted class name must be whole, alone and not empty")
            return self._named(match[1].replace('""', '"'), quoted=True)
        if re.fullmatch(r"[0-9]+", labels):
            self._known_num_classes(labels)
            return self._index(labels)
        if labels in self.names and (free or not any(char in labels for char in _BLANKS)):
            return self.names[labels]
        if _LIKE_TERM.match(labels):
            return self._one_positive(labels)
        if '"' in labels:
            raise LineError(labels, "a class name with a quote mark must be quoted, and the mark doubled")
        if "\t" in labels:
            raise LineError(labels, "a tab in a class name; quote the name")
        if " " in labels and not free:
            raise LineError(
                labels,
                "more than one word after the path; a path or class name with blanks must be quoted "
                '("my cat.jpg" 3), or a tab put after the path',
            )
        if _LIKE_NUMBER.fullmatch(labels):
            raise LineError(
                labels, "neither an index (a whole number, not negative) nor a name; a name like this is quoted"
            )
        return self._named(labels, quoted=False)

    def _named(self, name: str, *, quoted: bool) -> int:
        if name in self.names:
            return self.names[name]
        if self.learns_names:
            return self.names.setdefault(name, -1 - len(self.names))
        if not self.names:
            raise LineError(
                name, "a class name, but the classes have no names here; set dataset.class_names to read it"
            )

        def hint() -> str:
            nearest = difflib.get_close_matches(name, list(self.names), n=3, cutoff=0.5)
            return f"; the nearest are {', '.join(map(repr, nearest))}" if nearest else ""

        raise LineError(name, "no class has this name", hint)

    def _one_positive(self, labels: str) -> int:
        positives = np.flatnonzero(self.read_multi(labels) == 1)
        if len(positives) == 1:
            return int(positives[0])
        raise LineError(
            labels,
            f"{len(positives)} labels are positive, but dataset.task=single takes exactly one; "
            "dataset.task=multi takes any number",
        )

    def _index(self, digits: str) -> int:
        significant = digits.lstrip("0") or "0"
        first, count = self.labels_offset, self.num_classes
        index = int(significant) - first if len(significant) <= _MAX_DIGITS else -1
        assert count is not None
        if 0 <= index < count:
            return index
        offset = f", dataset.labels_offset={first}" if first else ""
        name = "; a class name of digits is quoted" if digits in self.names else ""
        raise LineError(
            digits,
            f"the label is outside {first}..{first + count - 1} (dataset.num_classes={count}{offset}){name}",
        )

    def _known_num_classes(self, labels: str) -> int:
        if self.num_classes is None:
            raise NumClassesUnknownError(
                labels,
                "labels are given by index here, which doesn't say how many classes there are; "
                "set dataset.num_classes=N, or dataset.class_names",
            )
        return self.num_classes


def _explain_term(word: str, task: str) -> str:
    value, colon, indices = word.partition(":")
    if not colon and task == "multi" and word.isascii() and word.isdecimal():
        return (
            f"a label needs its value here, as in 1:{word} (a bare index is for dataset.task=single; "
            "no blank may stand among the indices)"
        )
    if not colon:
        return (
            "not a VALUE:INDICES term such as 1:0,7; if it belongs to the path, quote the path "
            '("my cat.jpg" 1:0) or put a tab after it'
        )
    if value not in ("1", "-1", "0"):
        return "the value before the colon must be 1 (positive), -1 (negative) or 0 (don't care)"
    if not indices:
        return f"no index after the colon; write {word}0,7 for some labels or {word}* for all"
    if "-" in indices or "+" in indices:
        return "an index is a whole number without a sign, from 0 up"
    if "*" in indices:
        return "* means all labels and stands alone after the colon"
    if re.fullmatch(r"[0-9,]*", indices):
        return "a comma must stand between two indices"
    return (
        "the indices must be whole numbers with commas between, or *; if this belongs to the path, quote the "
        'path ("my cat.jpg" 1:0) or put a tab after it'
    )
