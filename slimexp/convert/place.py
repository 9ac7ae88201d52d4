"""A folder that appears whole or not at all: written beside its place under another name, and renamed at the end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from slimexp.errors import UserError

__all__ = ["LABELS_FILE", "MANIFEST", "REJECTED_FILE", "TARGETS", "new_folder", "read_manifest"]

_log = logging.getLogger(__name__)

# Tells what a folder was made of, and that it was this program that made it.
MANIFEST = "conversion.json"
LABELS_FILE = "labels.txt"
REJECTED_FILE = "rejected.csv"
TARGETS = ("records", "list", "folder")
_SUFFIX = ".unfinished"
_LOCK = "lock"


@contextlib.contextmanager
def new_folder(target: str, *, overwrite: bool) -> Iterator[str]:
    """Gives a new folder to write into; it takes the target's place once the block ends without an error.

    What writers that were killed left behind is removed first.

    Args:
        target: The folder's absolute path.
        overwrite: Whether a target that isn't empty is replaced. One that this program made is then removed, any other
            is kept beside the new one under a name that is told.

    Yields:
        The folder to write into.

    Raises:
        UserError: If the target isn't empty and is not to be replaced, or no folder can be made there.
    """
    _refuse_full(target, overwrite)
    parent, name = os.path.split(target)
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(parent, exist_ok=True)
            with _turn(parent):  # Or another writer could take the folder for a left one before it is locked.
                _remove_stale(parent, name)
                work = tempfile.mkdtemp(prefix=f".{name}.", suffix=_SUFFIX, dir=parent)
                stack.callback(shutil.rmtree, work, ignore_errors=True)
                # Held as long as this process lives; the others know by it that the folder is in use.
                stack.enter_context(_locked(os.path.join(work, _LOCK)))
        except OSError as error:
            raise UserError(f"TARGET={target}: cannot be written ({error.strerror or error}).") from error
        new = os.path.join(work, "new")
        os.mkdir(new)
        yield new
        _refuse_full(target, overwrite)
        _exchange(new, target, os.path.join(work, "old"))


def _refuse_full(target: str, overwrite: bool) -> None:
    if os.path.lexists(target) and not os.path.isdir(target):
        raise UserError(f"TARGET={target} is there and is no folder; name one that is new or empty.")
    if os.path.isdir(target) and os.listdir(target) and not overwrite:
        raise UserError(f"TARGET={target} is not empty; name another folder, or replace it with --overwrite.")


def _exchange(new: str, target: str, old: str) -> None:
    if os.path.isdir(target) and os.listdir(target):
        if read_manifest(target) is None:
            old = f"{target}.replaced-{time.strftime('%Y%m%d-%H%M%S')}"
            _log.warning("%s was not made by a conversion; it is kept as %s", target, old)
        os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(old, target)
            raise
    else:
        # An empty folder gives way to the new one.
        os.rename(new, target)


def read_manifest(folder: str) -> dict[str, Any] | None:
    """Returns what a conversion noted about the folder that it wrote; None if none wrote it."""
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
    except (OSError, ValueError):
        return None
    is_whole = isinstance(manifest, dict) and {"to", "task", "splits"} <= manifest.keys() and manifest["to"] in TARGETS
    return manifest if is_whole else None


@contextlib.contextmanager
def _turn(folder: str) -> Iterator[None]:
    """Waits until no other writer is about to begin in a folder, where there are such locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Tries to hold a lock; gives whether it is held. The system lets go of it when the process ends."""
    with open(path, "ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (ImportError, OSError):  # No such locks there, or another process holds it.
            yield False
        else:
            yield True


def _remove_stale(parent: str, name: str) -> None:
    with os.scandir(parent) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(f".{name}.") and entry.name.endswith(_SUFFIX)]
    for path in found:
        with contextlib.suppress(OSError), _locked(os.path.join(path, _LOCK)) as is_free:
            if is_free:
                shutil.rmtree(path, ignore_errors=True)
                _log.info("%s, which a conversion that was killed left behind, is removed", path)
