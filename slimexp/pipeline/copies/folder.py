"""A folder of files that is never larger than it may be, shared by any number of runs. TensorFlow is not imported here.

    FOLDER/ CACHEDIR.TAG  usage  tmp/  <settings>/<2 characters>/<18 characters>.jpg

- A file is written to `tmp/` and then renamed, so that there is never half a one under its name. What a killed run
  leaves in `tmp/` is removed by a later one, an hour after.
- `usage` holds the bytes that all files take together. It is changed under a lock, so that runs side by side keep to
  the limit together, and counted anew by each run before the first file that it adds.
- Where room is wanted, files that no run has used for a day go, whatever their settings, the least recently used first.
  Files in use are never removed: two runs whose photos do not fit together would else take them from each other without
  end. So a full folder stays as it is, and what finds no room is not stored.
- The last GB of the disk, or 5 % of a small one, is left alone: checkpoints go to the same disk as often as not.
- The folder may be deleted at any time, also while it is in use.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from slimexp.dataset.checks import counted

__all__ = ["SharedFolder", "in_bytes"]

_log = logging.getLogger(__name__)

_TAG = "CACHEDIR.TAG"
# The first line is what backup programs look for (bford.info/cachedir).
_TAG_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# Smaller copies of large photos, made by slimexp (pipeline.cache=shrunk). They are made again when they are missing.
"""
_USAGE = "usage"
_TMP = "tmp"
_SUFFIX = ".jpg"
_STALE_SECS = 3600
# A file counts as used by a run from when the run first asks for it. It is marked at most once in _MARK_SECS.
_MARK_SECS = 3600
_UNUSED_SECS = 24 * 3600
# Removing goes on until this share of the limit is free, so that not each further file lists the folder again.
_FREED_FRAC = 0.05
_DISK_RESERVE_FRAC = 0.05
_DISK_RESERVE_BYTES = 1 << 30

_START, _END = b"\xff\xd8", b"\xff\xd9"


class SharedFolder:
    """Keeps small JPEGs by name, up to a limit; threads and processes may use one folder at the same time.

    No fault of the disk is an error: what can't be read isn't there, and what can't be written isn't kept, which is
    said once.

    Attributes:
        path: The folder. It is made with the first file.
        max_bytes: What its files may take together.
        stopped: Why nothing more is stored by this run, or None.
    """

    def __init__(self, path: str, *, max_bytes: int) -> None:
        """Takes the place and the limit; nothing is read or written yet."""
        self.path = path
        self.max_bytes = max_bytes
        self.stopped: str | None = None
        self._started = False
        self._lock = threading.Lock()

    def has(self, name: str) -> bool:
        """Tells whether there is a file of this name, and marks it as used; its contents are not looked at."""
        path = self._file(name)
        try:
            status = os.stat(path)
        except OSError:
            return False
        _mark(path, status)
        return status.st_size > 0

    def find(self, name: str) -> bytes | None:
        """Returns a file's contents, or None if it isn't there or is no whole JPEG."""
        path = self._file(name)
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                contents = file.read()
        except OSError:
            return None
        # After a power cut a file may have its name and size but not its contents.
        if not (contents.startswith(_START) and contents.endswith(_END)):
            return None
        _mark(path, status)
        return contents

    def store(self, name: str, contents: bytes) -> bool:
        """Keeps a file if there is room.

        Args:
            name: `<settings>/<2 characters>/<more characters>`, without the suffix.
            contents: A JPEG.

        Returns:
            Whether it is kept.
        """
        if self.stopped is not None:
            return False
        try:
            return self._store(name, contents)
        except OSError as error:
            self._stop(f"{self.path} can't be written to ({error.strerror or error})")
            return False

    def usage(self) -> tuple[int, int]:
        """Counts what is there: files and bytes."""
        sizes = [size for _, size, _ in self._files()]
        return len(sizes), sum(sizes)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name + _SUFFIX)

    def _store(self, name: str, contents: bytes) -> bool:
        with self._lock:
            if not self._started:
                self._start()
                self._started = True
        try:
            return self._write(name, contents)
        except FileNotFoundError:  # Somebody deleted the folder.
            self._start()
            return self._write(name, contents)

    def _start(self) -> None:
        os.makedirs(os.path.join(self.path, _TMP), exist_ok=True)
        tag = os.path.join(self.path, _TAG)
        if not os.path.exists(tag):
            with open(tag, "w", encoding="utf-8") as file:
                file.write(_TAG_TEXT)
        with os.scandir(os.path.join(self.path, _TMP)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - entry.stat().st_mtime > _STALE_SECS:
                        os.remove(entry.path)
        with self._open_usage() as file:
            _set_total(file, self.usage()[1])

    def _write(self, name: str, contents: bytes) -> bool:
        """Writes a file in one piece if there is room for it, and says whether."""
        disk = shutil.disk_usage(self.path)
        if disk.free - len(contents) < min(_DISK_RESERVE_BYTES, _DISK_RESERVE_FRAC * disk.total):
            self._stop(f"the disk of {self.path} is nearly full ({in_bytes(disk.free)} free)")
            return False
        path = self._file(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Not `tempfile`: its files are for their owner alone, and a folder may be shared.
        work = os.path.join(self.path, _TMP, f"{os.getpid()}-{secrets.token_hex(8)}")
        try:
            with open(work, "xb") as file:
                file.write(contents)
            return self._place(work, path, len(contents)) or self._place_in_full(work, path, len(contents))
        finally:
            with contextlib.suppress(FileNotFoundError):  # As a rule it has another name by now.
                os.remove(work)

    def _place(self, work: str, path: str, size: int) -> bool:
        """Gives a finished file its name unless that is beyond the limit; says whether."""
        with self._open_usage() as file:
            try:
                total = int(file.read())
            except ValueError:  # It was deleted, with the rest or alone.
                total = self.usage()[1]
            if os.path.exists(path):
                total -= os.path.getsize(path)
            if total + size > self.max_bytes:
                return False
            os.replace(work, path)
            _set_total(file, total + size)
        return True

    def _place_in_full(self, work: str, path: str, size: int) -> bool:
        """Makes room for a file that found none; says whether there was any to be made."""
        with self._lock:
            if self.stopped is not None:
                return False
            # Another thread may have made room while this one waited.
            if self._place(work, path, size):
                return True
            self._make_room(size)
            if self._place(work, path, size):
                return True
            num_files, num_bytes = self.usage()
            self._stop(
                f"{self.path} is full ({counted(num_files, 'file')} of {in_bytes(num_bytes)} together, all used within "
                f"a day); raise pipeline.cache_max_bytes={self.max_bytes}, at about {in_bytes(size)} a photo"
            )
            return False

    def _make_room(self, size: int) -> None:
        """Removes files that no run has used for long, the least recently used first."""
        with self._open_usage() as file:
            files = sorted(self._files(), key=lambda entry: entry[2])
            total = sum(size for _, size, _ in files)
            goal = self.max_bytes - max(size, int(_FREED_FRAC * self.max_bytes))
            num_removed = 0
            for path, file_bytes, used in files:
                if total <= goal or time.time() - used < _UNUSED_SECS:
                    break
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
                total -= file_bytes
                num_removed += 1
            _set_total(file, total)
        if num_removed:
            _log.info("Removed %d files from %s that were not used for a day", num_removed, self.path)

    @contextlib.contextmanager
    def _open_usage(self) -> Iterator[TextIO]:
        """Opens the count of bytes for reading and writing; until it is closed, no other thread or process can."""
        handle = os.open(os.path.join(self.path, _USAGE), os.O_RDWR | os.O_CREAT, 0o666)
        with open(handle, "r+", encoding="ascii") as file:
            # Some file systems have no locks, nor has Windows; there runs side by side may exceed the limit somewhat.
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _files(self) -> Iterator[tuple[str, int, float]]:
        """Lists the files: path, bytes and when last used."""
        for settings in _folders(self.path):
            if os.path.basename(settings) == _TMP:
                continue
            for folder in _folders(settings):
                with contextlib.suppress(OSError), os.scandir(folder) as entries:
                    for entry in entries:
                        with contextlib.suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            yield entry.path, status.st_size, status.st_mtime

    def _stop(self, why: str) -> None:
        if self.stopped is None:
            self.stopped = why
            _log.warning(
                "Smaller copies of photos are no longer stored: %s. The run goes on with the same images, but makes "
                "each further copy again whenever it is read, which is slower than pipeline.cache=none.",
                why,
            )


def _mark(path: str, status: os.stat_result) -> None:
    if abs(time.time() - status.st_mtime) > _MARK_SECS:
        with contextlib.suppress(OSError):  # Somebody else's files can be used but not marked.
            os.utime(path)


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _set_total(file: TextIO, total: int) -> None:
    file.seek(0)
    file.truncate()
    file.write(str(total))


def in_bytes(number: int) -> str:
    """Returns a number of bytes as people say it, as in `31.5 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
