"""Folders in the cache that are made once from something else, for all programs of this machine.

A folder appears whole or not at all: it is written beside its place and then renamed. Its manifest, written last, holds
the size and a digest of every file, so that a damaged one is noticed and made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

from slimexp.errors import UserError

__all__ = ["digest_of", "is_complete", "make_once"]

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_STALE_SECS = 3600
_BLOCK_BYTES = 1 << 20


def make_once(
    folder: str,
    write: Callable[[str], None],
    *,
    what: str,
    num_mb: int,
    check: Callable[[str], bool] | None = None,
) -> None:
    """Makes a folder unless it is there and whole. Several programs may start at once: one writes, the others wait.

    Args:
        folder: Its absolute path.
        write: Writes the files into a new folder, which it is given and has to create.
        what: What they are, for messages.
        num_mb: How much room they take, for the message that there is none.
        check: Tells whether what is there is whole; by default `is_complete`.

    Raises:
        UserError: If the folder cannot be written.
    """
    check = check or is_complete
    if check(folder):
        return
    cache, name = os.path.split(folder)
    try:
        os.makedirs(cache, exist_ok=True)
        with _lock(cache, name):
            # Another program may have written it while this one waited.
            if not check(folder):
                _replace(folder, write, what)
    except OSError as error:
        raise UserError(
            f"{what} can't be written to {cache} ({error.strerror or error}); name a folder that can be, with some "
            f"{num_mb} MB to spare: dataset.cache_dir=…, or the environment variable SLIMEXP_CACHE."
        ) from error


def is_complete(folder: str, only: Callable[[str], bool] | None = None) -> bool:
    """Returns whether all files of a folder are there as they were written.

    Args:
        folder: The folder.
        only: Which of the files to look at, by their names; the others' contents and presence are taken on trust.
    """
    try:
        with open(os.path.join(folder, _MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        names = [name for name in manifest if only is None or only(name)]
        # All sizes first, as they cost next to nothing.
        return bool(names) and (
            all(os.stat(os.path.join(folder, name)).st_size == manifest[name][0] for name in names)
            and all(digest_of([os.path.join(folder, name)]) == manifest[name][1] for name in names)
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def digest_of(paths: list[str]) -> str:
    """Returns a digest of the contents of some files and of their order: 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
        # The end of one file is no beginning of the next.
        digest.update(os.path.getsize(path).to_bytes(8, "little"))
    return digest.hexdigest()


@contextlib.contextmanager
def _lock(cache: str, name: str) -> Iterator[None]:
    """Holds the folder's lock; the system lets go of it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # No such locks on Windows; there the last writer wins, with the same files.
        yield
        return
    with open(os.path.join(cache, f".{name}.lock"), "ab") as file:
        # Some network file systems have no locks; the rename at the end still keeps half a folder from being seen.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(folder: str, write: Callable[[str], None], what: str) -> None:
    """Writes a folder's files beside it and then puts them in its place."""
    cache, name = os.path.split(folder)
    _log.info("Writing %s to %s", what, folder)
    with contextlib.ExitStack() as stack:
        _remove_stale(cache, name)
        work = tempfile.mkdtemp(prefix=f".{name}-", dir=cache)
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        new = os.path.join(work, "new")
        write(new)
        _write_manifest(new)
        if os.path.lexists(folder):
            _log.warning("%s was damaged and is replaced", folder)
            os.rename(folder, os.path.join(work, "damaged"))
        os.rename(new, folder)


def _remove_stale(cache: str, name: str) -> None:
    """Removes what writers that were killed left behind."""
    with os.scandir(cache) as entries:
        for entry in entries:
            # By age, not only because the lock is ours: some file systems have no locks. Writing takes seconds.
            if entry.name.startswith(f".{name}-"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - entry.stat().st_mtime > _STALE_SECS:
                        shutil.rmtree(entry.path, ignore_errors=True)


def _write_manifest(folder: str) -> None:
    manifest = {}
    for current, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(current, name)
            manifest[os.path.relpath(path, folder)] = (os.path.getsize(path), digest_of([path]))
    with open(os.path.join(folder, _MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file)
