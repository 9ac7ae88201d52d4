"""The names of the classes: read from the config or a text file, and written to one."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence

from slimexp.dataset.checks import require_file
from slimexp.errors import UserError

__all__ = ["load_class_names", "write_class_names"]

_KEYED = re.compile(r"([0-9]{1,9}):(.+)")


def load_class_names(
    class_names: Sequence[str] | str, *, labels_offset: int = 0, number_repeats: bool = False
) -> tuple[str, ...]:
    """Loads class names and sees to it that they are distinct.

    A file has one name a line, in the order of the classes; or, if every line reads `INDEX:NAME`, it is taken as
    TF-Slim's `labels.txt`: its indices are those that the data use, so `labels_offset` is subtracted and names that
    fall below 0 (a background class) are left out.

    Args:
        class_names: The names, or the name of a UTF-8 text file.
        labels_offset: As in the list file; used for `INDEX:NAME` files only.
        number_repeats: Whether a name that comes twice is told apart by its class's number, as in `crane (134)`,
            rather than refused. For data whose labels are numbers: ImageNet has two cranes.

    Returns:
        One name a class.

    Raises:
        UserError: If the file can't be read, there is no name, one is empty, or one comes twice (and is not to be
            numbered).
    """
    if isinstance(class_names, str):
        names, source = _load_file(class_names, labels_offset), f"dataset.class_names={class_names}"
    else:
        names, source = _from_config(class_names), "dataset.class_names"
    if not names:
        raise UserError(f"{source} has no name; give one name a class, or leave it out.")
    if number_repeats:
        names = _numbered(names)
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        if first.setdefault(name, place) != place:
            raise UserError(
                f"{source}: {name!r} is the name of the classes {first[name]} and {place}; each needs its own."
            )
    return tuple(names)


def write_class_names(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Writes a file as TF-Slim's `labels.txt`, INDEX:NAME a line, which `load_class_names` reads back.

    Raises:
        UserError: If a name cannot be read back from there.
    """
    for name in names:
        is_text = name.isascii() or name == name.encode(errors="ignore").decode()
        if name != name.strip(" \t\r") or "\n" in name or "\0" in name or not is_text:
            raise UserError(
                f"the class name {name!r} cannot stand in {os.path.basename(path)}: blanks at an end, a line break, "
                "NUL or what is no text."
            )
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{index}:{name}\n" for index, name in enumerate(names))


def _numbered(names: list[str]) -> list[str]:
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name} ({place})" for place, name in enumerate(names)]


def _from_config(class_names: Sequence[str]) -> list[str]:
    for index, name in enumerate(class_names):
        if not isinstance(name, str) or not name.strip():
            raise UserError(
                f"dataset.class_names[{index}]={name!r} is not a name; write it in quotes, with one character at least."
            )
    return list(class_names)


def _load_file(path: str, labels_offset: int) -> list[str]:
    with open(require_file(path, "dataset.class_names"), "rb") as file:
        data = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        bad = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{bad}: byte 0x{data[error.start]:02x} is not UTF-8; save the class names in that encoding."
        ) from None
    # Not splitlines(): it would also split at characters that may stand within a name.
    lines = [line.strip(" \t\r") for line in text.rstrip(" \t\r\n").split("\n")]
    if lines == [""]:
        return []
    for number, line in enumerate(lines, 1):
        if not line or "\0" in line:
            raise UserError(
                f"{path}:{number}: {line!r} is not a class name; the line's number says which class it is, so no line "
                "may be left blank."
            )
    keyed = [_KEYED.fullmatch(line) for line in lines]
    if not all(keyed):
        return lines
    return _by_index(path, [(int(match[1]), match[2].strip(" \t")) for match in keyed if match], labels_offset)


def _by_index(path: str, pairs: list[tuple[int, str]], labels_offset: int) -> list[str]:
    names: dict[int, str] = {}
    for number, (index, name) in enumerate(pairs, 1):
        if index in names:
            raise UserError(f"{path}:{number}: index {index} was named on an earlier line; each comes once.")
        names[index] = name
    kept = sorted(index for index in names if index >= labels_offset)
    missing = next((want for want, there in enumerate(kept, labels_offset) if want != there), None)
    if missing is not None:
        offset = f" (dataset.labels_offset={labels_offset})" if labels_offset else ""
        raise UserError(
            f"{path}: {os.path.basename(path)} has INDEX:NAME lines but none for index {missing}; the indices must run "
            f"from {labels_offset} without a gap{offset}."
        )
    return [names[index] for index in kept]
