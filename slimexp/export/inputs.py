"""Which files predictions are asked for: an image, a folder, a pattern or a list file. Without TensorFlow."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from slimexp.errors import UserError
from slimexp.pipeline.images.formats import describe, identify

__all__ = ["SUFFIXES", "find_inputs"]

_log = logging.getLogger("slimexp")

# By which a folder's images are known. Whether one is an image indeed is seen when it is read.
SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "dib", "webp", "tif", "tiff"),
        *("jp2", "j2k", "jpx", "avif", "ppm", "pgm", "pbm", "pnm"),
    )
)
_KEY = "predict.input"
_HEAD_BYTES = 4096


def find_inputs(source: str, *, image_dir: str | None = None) -> list[bytes]:
    """Returns the files that `predict.input` means, in order.

    A folder's images are those below it with a usual suffix, sorted by path; hidden files and folders are left out. A
    pattern's files are sorted too. A list file has one path a line, with or without labels behind it as in a dataset's
    list, which are not looked at; its order is kept. Whether the listed files are there is seen when they are read.

    Args:
        source: The absolute path or pattern.
        image_dir: What relative paths in a list file count from; None: the file's own folder.

    Raises:
        UserError: If there is nothing, or a list cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        found = sorted(_images_below(os.fsencode(source)))
        if not found:
            raise UserError(
                f"{_KEY}={source}: the folder has no image ({', '.join(sorted(SUFFIXES))}), nor has one below it."
            )
    elif path.exists():
        found = _read_file(path, image_dir)
    elif glob.has_magic(source):
        matches = sorted(glob.glob(os.fsencode(source), recursive=True))
        found = [match for match in matches if os.path.isfile(match)]
        if not found:
            which = f"the pattern matches {len(matches)} folders and no file" if matches else "no file matches"
            raise UserError(f"{_KEY}={source}: {which}. ** stands for any number of folders: 'photos/**/*.jpg'.")
    else:
        parent = next((folder for folder in path.parents if folder.is_dir()), None)
        raise UserError(f"{_KEY}={source}: there is no such file or folder; {parent} is there.")
    if image_dir is not None and not (path.is_file() and path.suffix.lower() not in SUFFIXES):
        raise UserError(f"predict.image_dir={image_dir}: is for the paths in a list file, and {source} is none.")
    return found


def _images_below(top: bytes) -> Iterator[bytes]:
    """Yields the images below a folder; links to folders are followed, but not round in circles."""
    suffixes = frozenset(suffix.encode() for suffix in SUFFIXES)
    seen = set()
    for folder, folders, files in os.walk(top, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(b".")]
        for name in files:
            if not name.startswith(b".") and os.path.splitext(name)[1].lower() in suffixes:
                yield os.path.join(folder, name)


def _read_file(path: Path, image_dir: str | None) -> list[bytes]:
    """Returns an image's own path, or those in a list file."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise UserError(f"{_KEY}={path}: cannot be read: {error.strerror}.") from error
    if path.suffix.lower() in SUFFIXES or identify(head) is not None:
        return [os.fsencode(path)]
    if b"\0" in head:
        raise UserError(f"{_KEY}={path}: is neither an image nor a list of paths, but {describe(head)}.")
    return _read_list(path, os.fsencode(image_dir or path.parent))


def _read_list(path: Path, folder: bytes) -> list[bytes]:
    found = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip(b" \t\r\n")
            if not text or text.startswith(b"#"):
                continue
            name = _path_of(text, folder)
            if name is None or b"\0" in text:
                rule = "the closing quote mark is missing" if name is None else "a NUL byte"
                raise UserError(f"{path}:{number}: {text[:100]!r}: {rule}. A list is text, one path a line.")
            found.append(os.path.join(folder, name))
    if not found:
        raise UserError(f"{_KEY}={path}: the list is empty; it is to have one path a line.")
    return found


def _path_of(text: bytes, folder: bytes) -> bytes | None:
    """Returns the path at a line's beginning, as in a dataset's list; None if a quote mark is missing."""
    if text.startswith(b'"'):
        rest = text[1:].replace(b'""', b"\0")  # A doubled mark stands for itself.
        name, mark, _ = rest.partition(b'"')
        return name.replace(b"\0", b'"') if mark else None
    if b"\t" in text:
        return text.partition(b"\t")[0].rstrip(b" ")
    if b" " in text and not os.path.exists(os.path.join(folder, text)):
        return text.partition(b" ")[0]
    return text
