"""The operating system's page cache: which files are in it, and how to get them out of it for a measurement."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

__all__ = ["evict", "is_cached"]

# A page that was read a moment ago may still be held by the processor that read it.
_ATTEMPTS = 3


def evict(paths: Sequence[bytes]) -> str | None:
    """Drops files from the page cache, so that the next read of them comes from where they are stored.

    It asks for nothing but permission to read them. The files themselves stay as they are.

    Args:
        paths: The files.

    Returns:
        Why it is not possible here, in words; None if they are out of the cache now.
    """
    if not hasattr(os, "posix_fadvise"):
        return "this operating system cannot be asked to forget files"
    kept = list(paths)
    try:
        for _ in range(_ATTEMPTS):
            for path in kept:
                _drop(path)
            kept = [path for path in kept if is_cached(path)]
    except OSError as error:
        return f"the files cannot be dropped from the cache: {error.strerror or error}"
    if 2 * len(kept) > len(paths):
        return "their file system keeps files in memory, or another program has them in use"
    return None


def is_cached(path: bytes) -> bool | None:
    """Tells whether the beginning of a file is in the page cache; None where the system does not say."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    file = os.open(path, os.O_RDONLY)
    try:
        # Such a read fails instead of waiting for the disk.
        return os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT) > 0
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    finally:
        os.close(file)


def _drop(path: bytes) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)  # What is not yet written cannot be dropped.
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
