"""Checks what a dataset names before anything is built on it: folders, list files, and the images themselves."""

from __future__ import annotations

import difflib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from slimexp.dataset.split import Split
from slimexp.errors import UserError

__all__ = ["MAX_SHOWN", "check_files", "counted", "first_of", "require_file", "require_folder"]

# How many of many errors are shown; all are counted.
MAX_SHOWN = 10
# A stat waits for the disk or the network, not for the CPU: on a mount with 5 ms a call, 32 threads check 6000 files a
# second. On a local disk a few threads are as good as many.
_THREADS = 32
_FILES_PER_TASK = 4096
_EMPTY = "empty (0 bytes)"
# A folder of a million files isn't searched for a name that resembles the one that is missing.
_MAX_NAMES_COMPARED = 5000


def require_file(path: str, key: str) -> str:
    """Checks that a file can be read.

    Args:
        path: The file as the user named it; `~` is the home folder.
        key: The config key that it came from, for the message.

    Returns:
        The absolute path.

    Raises:
        UserError: If there is no such file, it is a folder, or may not be read.
    """
    full = _absolute(path, key)
    if not os.path.exists(full):
        raise UserError(f"{key}={path}: there is no such file{_nearest(full, is_folder=False)}.")
    if os.path.isdir(full):
        raise UserError(f"{key}={path} is a folder; name the file.")
    if not os.access(full, os.R_OK):
        raise UserError(f"{key}={path} may not be read; change its permissions (chmod +r).")
    return full


def require_folder(path: str, key: str, where_to_get: Callable[[str], str] | None = None) -> str:
    """Checks that a folder is there and may be listed.

    Args:
        path: As for `require_file`.
        key: Likewise.
        where_to_get: Says where the contents of a missing folder, of which it is given the absolute path, are to be
            had; whole sentences.

    Returns:
        The absolute path.

    Raises:
        UserError: If there is no such folder, it is a file, or may not be listed.
    """
    full = _absolute(path, key)
    if not os.path.exists(full):
        hint = "" if where_to_get is None else f" {where_to_get(full)}"
        raise UserError(f"{key}={path}: there is no such folder{_nearest(full, is_folder=True)}.{hint}")
    if not os.path.isdir(full):
        raise UserError(f"{key}={path} is a file; name the folder.")
    if not os.access(full, os.R_OK | os.X_OK):
        raise UserError(f"{key}={path} may not be listed; change its permissions (chmod +rx).")
    return full


def _absolute(path: str, key: str) -> str:
    if not path or "\0" in path:
        raise UserError(f"{key}={path!r} is not a path; set {key} to an existing one.")
    return os.path.abspath(os.path.expanduser(path))


def _nearest(missing: str, *, is_folder: bool) -> str:
    """Returns what is there in place of a missing file or folder, as a remark."""
    folder, name = os.path.split(missing)
    while not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    first_missing = os.path.join(folder, name)
    if os.path.islink(first_missing) and not os.path.exists(first_missing):
        return f"; {first_missing!r} is a link to {os.readlink(first_missing)!r}, which is not there"
    if os.path.exists(first_missing):
        return f"; {first_missing!r} is a file, not a folder"
    wants_folder = is_folder or first_missing != missing
    try:
        with os.scandir(folder) as entries:
            there = list(itertools.islice(entries, _MAX_NAMES_COMPARED))
    except OSError as error:
        return f", or none that may be seen: {folder!r} can't be listed ({error.strerror})"
    names = [entry.name for entry in there if not wants_folder or _is_folder(entry)]
    by_lower = {there.lower(): there for there in names}
    near = [by_lower[lower] for lower in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    where = "" if first_missing == missing else f", nor a folder {first_missing!r}"
    if near:
        return f"{where}; nearest in {folder!r}: {', '.join(map(repr, near))}"
    if not there:
        return f"{where}; {folder!r} is empty"
    return f"{where}; {folder!r} has {'no folder' if wants_folder else 'nothing'} of a similar name"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # Of what is no link the entry itself tells, without asking the disk; of a link it may raise.
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns the number and its noun, as in `1 line` and `2 lines`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def first_of(messages: Iterable[str], total: int) -> str:
    """Joins the first messages, one a line, and says how many more there are."""
    shown = list(itertools.islice(messages, MAX_SHOWN))
    more = [f"… and {total - len(shown)} more"] if total > len(shown) else []
    return "\n".join(f"  {line}" for line in shown + more)


def _fault(path: bytes) -> str | None:
    """Returns what keeps a file from being an image, or None."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "no such file"
    except ValueError:
        return "a NUL byte in the name"
    except OSError as error:
        return "no such file" if error.errno == errno.ENOTDIR else (error.strerror or str(error)).lower()
    if stat.S_ISREG(status.st_mode):
        return None if status.st_size else _EMPTY
    # Reading a named pipe or a socket would wait without end.
    return "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"


def check_files(split: Split, *, allow_empty: bool = False) -> None:
    """Checks that all of a split's files are there and not empty, without opening any.

    Args:
        split: The examples.
        allow_empty: Whether empty files are let through, to be treated as other bad images when they are read.

    Raises:
        UserError: If any file is missing, empty, or not a file, with the first ten and their lines.
    """

    def faults_from(begin: int) -> list[tuple[int, str]]:
        paths = split.paths[begin : begin + _FILES_PER_TASK]
        faults = [(i, fault) for i, path in enumerate(paths, begin) if (fault := _fault(path)) is not None]
        return [(i, fault) for i, fault in faults if not (allow_empty and fault == _EMPTY)]

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="check_files") as pool:
        parts = pool.map(faults_from, range(0, len(split), _FILES_PER_TASK))
        faults = [fault for part in parts for fault in part]
    if not faults:
        return
    shown = (f"{split.origin(i)}: {split.path(i)!r}: {fault}" for i, fault in faults)
    hint = ""
    if len(faults) == len(split) and faults[0][1] == "no such file":
        hint = "\nAll are missing: relative paths start from dataset.image_dir, or else from the list's folder."
    raise UserError(
        f"{len(faults)} of the {len(split)} {split.name} images can't be read:\n"
        f"{first_of(shown, len(faults))}{hint}\n"
        "Mend or remove them. (dataset.check_files=false skips this check; such a file then stops the run when read.)"
    )
