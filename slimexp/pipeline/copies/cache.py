"""Photos bigger than needed: the first epoch stores a small copy of each, and later epochs and runs read that.

What is read is the same whether a copy was there already, has just been made, or could not be stored: all images of
a run are made from the small copies, from its first batch on. They differ from those without the cache, as a copy is
a picture encoded anew.

It is used in two places. `locate` is given many names at once and looks which of them have a copy; `read` takes the
place of `tf.io.read_file`. So a photo that has a copy costs Python no call of its own, and no reader waits for another
one's turn with the interpreter; only what has no copy yet is looked at, and made smaller, in Python, and there most of
the time goes by in Pillow's code, where other threads may run. Neither has any state in the graph: TensorFlow's
deterministic mode would then call the graph for one image at a time.

Measured by `scripts/measure_shrunk.py` on JPEGs of about 1600 x 1200 and 633 KB, from which windows of 0.08 to 1 of the
area are made into 224 x 224, with two threads on two cores that others used too:

| | images per CPU second | against the first epoch | against none |
|---|---|---|---|
| without | 161 | 2.5 | 1.0 |
| first epoch | 63 | 1.0 | 0.39 |
| second epoch | 492 | 7.8 | 3.1 |
| first epoch of a later run | 532 | 8.4 | 3.3 |

So from the fourth epoch on it has paid for itself. PSNR of the finished images, against the original in full resized
with antialiasing ("enlarged" are those whose window has fewer than 224 pixels a side in the copy):

| | KB a photo | PSNR | of those not enlarged | of those enlarged | share of these |
|---|---|---|---|---|---|
| without | 633 | 35.4 dB | 35.4 dB | - | 0 % |
| short side 768 | 220 | 35.3 dB | 35.3 dB | - | 0 % |
| short side 512 | 101 | 35.9 dB | 35.8 dB | 36.8 dB | 7 % |
| short side 384 | 61 | 36.3 dB | 36.6 dB | 35.2 dB | 19 % |

The copies come out ahead because they were made smaller with antialiasing, which TensorFlow's resize does without.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from slimexp.cache_dir import default_cache_dir
from slimexp.dataset.checks import counted
from slimexp.errors import UserError
from slimexp.pipeline.copies.folder import SharedFolder, in_bytes
from slimexp.pipeline.copies.recipe import QUALITY, RECIPE_VERSION, shrink
from slimexp.pipeline.images.formats import identify
from slimexp.pipeline.images.jpeg_header import END, read_jpeg_header

__all__ = ["ShrunkCache", "explain_short_side"]

_SUBFOLDER = "shrunk"
_SUFFIX = ".jpg"
# Nearly every header is within this many bytes, so that the rest of a photo that needs no copy isn't read here.
_HEADER_BYTES = 1 << 16

# What `locate` puts before a name, of fixed widths, so that the graph can take it apart: one of these, and where the
# name's copy is. A name alone, which is absolute and so begins with neither, is one of which nothing is known.
_HAS_COPY, _AS_IT_IS = b"+", b"="
_COPY_CHARS = 21  # 100 bits in base 32, with a slash behind the first two characters.
_PATH_AT = len(_HAS_COPY) + _COPY_CHARS
_NO_COPY = b" " * _COPY_CHARS

# On a local disk a file is looked up in some 10 us. Where it takes longer than this, on a network, the rest of the
# names that came together are looked up in parallel: at 5 ms a call, 1600 photos a second.
_SLOW_SECS = 1e-3
_SLOW_THREADS = 16
_NUM_TIMED = 4


class ShrunkCache:
    """Reads image files, and in place of a large photo its small copy, which it makes first if there is none.

    A photo is large if its short side is over `short_side`. Anything else is read as it is: small photos, other
    formats, JPEGs with four colour components, damaged files and missing ones, which then fail where they always do. A
    copy belongs to the original's path, size and time of change, and to the settings.

    It can be used by any number of threads and pipelines at once, but only within its process.
    """

    def __init__(
        self, folder: str | None = None, *, short_side: int = 512, max_bytes: int = 20 * 10**9, quality: int = QUALITY
    ) -> None:
        """Takes the settings; nothing is read or written yet.

        Args:
            folder: Where the copies are kept; None: `shrunk/` in the cache folder (`default_cache_dir`). Runs may
                share it, also with other settings.
            short_side: The short side of a copy, in pixels, at least 1.
            max_bytes: What all copies in the folder may take together, at least 1.
            quality: libjpeg's quality of the copies, 1..100.

        Raises:
            UserError: If a value is outside its range.
        """
        if short_side < 1:
            raise UserError(f"pipeline.cache_short_side={short_side} is refused: it must be at least 1 pixel.")
        if max_bytes < 1:
            raise UserError(f"pipeline.cache_max_bytes={max_bytes} is refused: it must be at least 1.")
        if not 1 <= quality <= 100:
            raise UserError(f"quality={quality} is refused: it must be in 1..100.")
        if folder is not None and "://" in folder:
            raise UserError(f"pipeline.cache_dir={folder} is refused: it must be a folder of this machine, not a URL.")
        path = os.path.join(default_cache_dir(), _SUBFOLDER) if folder is None else os.path.expanduser(folder)
        self._folder = SharedFolder(os.path.abspath(path), max_bytes=max_bytes)
        self._short_side = short_side
        self._quality = quality
        self._settings = f"{short_side}-q{quality}-r{RECIPE_VERSION}"
        self._lock = threading.Lock()
        # Of files that are read as they are, 64 bits of the digest that names copies: some 80 bytes a file.
        self._as_they_are: set[int] = set()
        self._num_made = self._num_hits = self._num_not_stored = 0

    def locate(self, paths: tf.Tensor) -> tf.Tensor:
        """Looks which of some files have a small copy.

        Args:
            paths: string [n], absolute file names.

        Returns:
            string [n], for `read`. They are to be read soon: a copy may be removed after a day without use.
        """
        located = tf.numpy_function(self._locate_all, [paths], tf.string, stateful=False)
        return tf.ensure_shape(located, paths.shape)

    def read(self, located: tf.Tensor) -> tf.Tensor:
        """Reads a file or its small copy.

        Args:
            located: string [], what `locate` made of a file's name. The absolute name itself will do, but then the copy
                is looked for, and read, in Python.

        Returns:
            string [], the contents: a JPEG whose short side is `short_side`, or the file as it is.

        Raises:
            tf.errors.NotFoundError: (When run) If there is no such file; and so on, as `tf.io.read_file`.
        """
        kind = tf.strings.substr(located, 0, 1)
        has_copy = tf.equal(kind, _HAS_COPY)
        is_known = tf.logical_or(has_copy, tf.equal(kind, _AS_IT_IS))
        path = tf.cond(is_known, lambda: tf.strings.substr(located, _PATH_AT, tf.int32.max), lambda: located)

        # A branch's ops cost time in each picture, also if it is not taken, unless they are a function.
        @tf.function(experimental_attributes={"_noinline": True})
        def look(path: tf.Tensor) -> tf.Tensor:
            contents, is_copy = tf.numpy_function(self._find_or_make, [path], (tf.string, tf.bool), stateful=False)
            # The graph reads what stays as it is, and so fails as it always does if it can't be read.
            return tf.cond(is_copy, lambda: contents, lambda: tf.io.read_file(path))

        @tf.function(experimental_attributes={"_noinline": True})
        def read_copy(located: tf.Tensor, path: tf.Tensor) -> tf.Tensor:
            prefix = os.path.join(self._folder.path, self._settings, "")
            copy = tf.strings.join([prefix, tf.strings.substr(located, len(_HAS_COPY), _COPY_CHARS), _SUFFIX])
            contents = tf.cond(_exists(copy, prefix), lambda: tf.io.read_file(copy), lambda: b"")
            # After a power cut a file may have its name and size but not its contents.
            is_whole = tf.equal(tf.strings.substr(tf.strings.join([b"  ", contents]), -2, 2), END)
            return tf.cond(is_whole, lambda: contents, lambda: look(path))

        contents = tf.cond(
            has_copy,
            lambda: read_copy(located, path),
            lambda: tf.cond(is_known, lambda: tf.io.read_file(path), lambda: look(path)),
        )
        return tf.ensure_shape(contents, [])

    def summary(self) -> str:
        """Returns what was made and read, and what the folder takes, in a sentence or two for people."""
        with self._lock:
            made, hits, not_stored = self._num_made, self._num_hits, self._num_not_stored
            as_they_are = len(self._as_they_are)
        num_files, num_bytes = self._folder.usage()
        times, files = counted(hits, "time"), counted(as_they_are, "file")
        text = (
            f"Smaller copies of photos (short side {self._short_side}): {made} made, {times} one was read that was "
            f"there, {files} read as {'it is' if as_they_are == 1 else 'they are'}. {self._folder.path} holds "
            f"{counted(num_files, 'file')} of {in_bytes(num_bytes)} together, and may hold "
            f"{in_bytes(self._folder.max_bytes)}."
        )
        if self._folder.stopped is not None:
            times = counted(not_stored, "time")
            text += f" Nothing more was stored, as {self._folder.stopped}; {times} a copy was made only to be read."
        return text

    def _locate_all(self, paths: np.ndarray) -> np.ndarray:
        names = paths.tolist()
        started = time.perf_counter()
        located = [self._locate(path) for path in names[:_NUM_TIMED]]
        if time.perf_counter() - started > _SLOW_SECS * _NUM_TIMED:
            with ThreadPoolExecutor(_SLOW_THREADS) as pool:
                located += pool.map(self._locate, names[_NUM_TIMED:])
        else:
            located += map(self._locate, names[_NUM_TIMED:])
        num_hits = sum(name.startswith(_HAS_COPY) for name in located)
        with self._lock:
            self._num_hits += num_hits
        return np.array(located, object)

    def _locate(self, path: bytes) -> bytes:
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # ValueError: a NUL in the name.
            return path
        copy, key = _copy_of(path, status)
        if key in self._as_they_are:
            return _AS_IT_IS + _NO_COPY + path
        if self._folder.has(f"{self._settings}/{copy}"):
            return _HAS_COPY + copy.encode() + path
        return path

    def _find_or_make(self, path: bytes) -> tuple[bytes, bool]:
        """Returns the contents of a file's copy, and whether there is to be one."""
        try:
            status = os.stat(path)
            # Reading a named pipe would wait without end.
            if not stat.S_ISREG(status.st_mode):
                return b"", False
            copy, key = _copy_of(path, status)
            name = f"{self._settings}/{copy}"
            contents = self._folder.find(name)
            if contents is not None:
                with self._lock:
                    self._num_hits += 1
                return contents, True
            contents = self._make(path)
        except (OSError, ValueError):
            return b"", False
        if contents is None:
            with self._lock:
                self._as_they_are.add(key)
            return b"", False
        is_stored = self._folder.store(name, contents)
        with self._lock:
            self._num_made += is_stored
            self._num_not_stored += not is_stored
        return contents, True

    def _make(self, path: bytes) -> bytes | None:
        """Returns the small copy of a file, or None if it is to be read as it is."""
        with open(path, "rb") as file:
            contents = file.read(_HEADER_BYTES)
            if identify(contents) != "JPEG":
                return None
            header = read_jpeg_header(contents)
            if header.scan_start < 0:
                contents += file.read()
                header = read_jpeg_header(contents)
            is_large = min(header.width, header.height) > self._short_side
            if header.scan_start < 0 or header.num_components not in (1, 3) or not is_large:
                return None
            contents += file.read()
        return shrink(contents, header, short_side=self._short_side, quality=self._quality)


def explain_short_side(short_side: int, *, size_px: int, window_sides: np.ndarray) -> str | None:
    """Says what a preprocessing loses by small copies, if that is much: if it enlarges more than half of its windows.

    Args:
        short_side: The short side of the copies, in pixels.
        size_px: The side of the finished images.
        window_sides: float or int [n], the shorter sides of windows that the preprocessing chose, by chance as in
            training, from a photo whose short side is `short_side`.

    Returns:
        A warning, or None.
    """
    sides = np.asarray(window_sides, np.float64)
    enlarged_frac = float(np.mean(sides < size_px))
    if enlarged_frac <= 0.5:
        return None
    enough = int(np.ceil(short_side * size_px / max(float(np.median(sides)), 1.0)))
    return (
        f"pipeline.cache_short_side={short_side} is small for this preprocessing: {enlarged_frac:.0%} of its crops "
        f"have fewer pixels than the {size_px} x {size_px} that the network takes, so that detail is lost which the "
        f"original photos may have. With pipeline.cache_short_side={enough} half of them would have enough."
    )


def _copy_of(path: bytes, status: os.stat_result) -> tuple[str, int]:
    """Returns the name of a file's copy, whether there is one or not, and a number for the file."""
    digest = hashlib.blake2b(b"%d %d %s" % (status.st_size, status.st_mtime_ns, path), digest_size=16).digest()
    name = base64.b32encode(digest).decode("ascii").lower()[: _COPY_CHARS - 1]
    return f"{name[:2]}/{name[2:]}", int.from_bytes(digest[:8], "big")


def _exists(path: tf.Tensor, prefix: str) -> tf.Tensor:
    """Tells whether there is a file, in the graph."""
    if re.search(r"[\\*?\[]", prefix):
        # The op would take these for a pattern; escaped, it lists all folders on the way, which can take milliseconds.
        return tf.ensure_shape(tf.numpy_function(os.path.exists, [path], tf.bool, stateful=False), [])
    return tf.size(tf.io.matching_files(path)) > 0
