"""Provides real images without a download: scikit-learn's handwritten digits, written once as JPEG files and lists.

The 1797 digits (E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998; the part that scikit-learn carries) are 8 x 8 pixels with 17 grey values. They are enlarged to
28 x 28, white on black, so that they look to a network as MNIST's do. What is written is an ordinary folder of images
with two list files, for users to look at:

    digits-v1/ train.txt  eval.txt  images/<digit>/<number>.jpg  manifest.json
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from slimexp.cache_dir import default_cache_dir
from slimexp.dataset.listfile import load_listfile
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError

__all__ = ["load_digits"]

_log = logging.getLogger(__name__)

_FOLDER = "digits-v1"
_SIDE_PX = 28
_JPEG_QUALITY = 95
_EVAL_FRACTION = 0.2
_SPLIT_SEED = 0
_MANIFEST = "manifest.json"
_STALE_SECS = 3600


def load_digits(*, cache_dir: str | None = None, check_files: bool = True, name: str = "digits") -> Dataset:
    """Loads the digits, and writes them first if they aren't there.

    About a fifth of each digit's images is held out for evaluation, always the same ones.

    Args:
        cache_dir: The folder in which `digits-v1/` is kept; by default `$SLIMEXP_CACHE`, else
            `$XDG_CACHE_HOME/slimexp`, else `~/.cache/slimexp`. Several programs may start with an empty one at once.
        check_files: Whether to look if each image is there, and to write all anew if not.
        name: The dataset's name, for run names.

    Returns:
        A single-label dataset of the classes "0" to "9", grey JPEGs of 28 x 28 pixels.

    Raises:
        UserError: If the folder can't be written.
    """
    cache = os.path.abspath(os.path.expanduser(cache_dir or default_cache_dir()))
    folder = os.path.join(cache, _FOLDER)
    if not _is_complete(folder, check_files):
        try:
            os.makedirs(cache, exist_ok=True)
            with _lock(cache):
                # Another program may have written it while this one waited.
                if not _is_complete(folder, check_files):
                    _write(folder)
        except OSError as error:
            raise UserError(
                f"the digits can't be written to {cache} ({error.strerror or error}); name a folder that can be, with "
                "some 8 MB to spare: dataset.cache_dir=…, or the environment variable SLIMEXP_CACHE."
            ) from error
    dataset = load_listfile(
        train_list=os.path.join(folder, "train.txt"),
        eval_list=os.path.join(folder, "eval.txt"),
        class_names=[str(digit) for digit in range(10)],
        check_files=check_files,
        name=name,
    )
    return dataclasses.replace(dataset, image_side_px=_SIDE_PX)


def _is_complete(folder: str, check_files: bool) -> bool:
    """Returns whether all files of the manifest are there, each of the size it was written with."""
    try:
        with open(os.path.join(folder, _MANIFEST), encoding="utf-8") as file:
            sizes = json.load(file)
        names = {"train.txt", "eval.txt", *(sizes if check_files else ())}
        return all(os.stat(os.path.join(folder, name)).st_size == sizes[name] for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def _lock(cache: str) -> Iterator[None]:
    """Holds the cache's lock; the system lets go of it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # No such locks on Windows; there the last writer wins, with the same files.
        yield
        return
    with open(os.path.join(cache, f".{_FOLDER}.lock"), "ab") as file:
        # Some network file systems have no locks; the rename at the end still keeps half a cache from being seen.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(folder: str) -> None:
    """Writes the digits beside the folder and then puts them in its place."""
    cache = os.path.dirname(folder)
    _log.info("Writing the digits to %s", folder)
    with contextlib.ExitStack() as stack:
        _remove_stale(cache)
        work = tempfile.mkdtemp(prefix=f".{_FOLDER}-", dir=cache)
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        new = os.path.join(work, "new")
        _write_files(new)
        if os.path.lexists(folder):
            _log.warning("%s was damaged and is replaced", folder)
            os.rename(folder, os.path.join(work, "damaged"))
        os.rename(new, folder)


def _remove_stale(cache: str) -> None:
    """Removes what writers that were killed left behind."""
    with os.scandir(cache) as entries:
        for entry in entries:
            # By age, not only because the lock is ours: some file systems have no locks. Writing takes seconds.
            if entry.name.startswith(f".{_FOLDER}-"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - entry.stat().st_mtime > _STALE_SECS:
                        shutil.rmtree(entry.path, ignore_errors=True)


def _write_files(folder: str) -> None:
    # Imported here, as it takes a second and is needed only once.
    from PIL import Image
    from sklearn.datasets import load_digits as load_from_sklearn

    digits = load_from_sklearn()
    # 0..16 -> 0..255; white on black already, as MNIST's.
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    classes = digits.target.tolist()
    sizes = {}
    for digit in range(10):
        os.makedirs(os.path.join(folder, "images", str(digit)))
    for number, (image, digit) in enumerate(zip(pixels, classes, strict=True)):
        path = _image_path(number, digit)
        large = Image.fromarray(image).resize((_SIDE_PX, _SIDE_PX), Image.Resampling.BICUBIC)
        large.save(os.path.join(folder, path), "JPEG", quality=_JPEG_QUALITY)
        sizes[path] = os.path.getsize(os.path.join(folder, path))
    is_eval = _choose_eval(classes)
    for name, chosen in (("train.txt", ~is_eval), ("eval.txt", is_eval)):
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
            file.write("# Handwritten digits: PATH CLASS\n")
            file.writelines(f"{_image_path(i, classes[i])} {classes[i]}\n" for i in np.flatnonzero(chosen).tolist())
        sizes[name] = os.path.getsize(os.path.join(folder, name))
    # Last: a folder without it isn't complete.
    with open(os.path.join(folder, _MANIFEST), "w", encoding="utf-8") as file:
        json.dump(sizes, file)


def _image_path(number: int, digit: int) -> str:
    return f"images/{digit}/{number:04d}.jpg"


def _choose_eval(classes: list[int]) -> np.ndarray:
    """Returns which images are held out, bool [n]: the same fraction of each class."""
    rng = np.random.default_rng(_SPLIT_SEED)
    is_eval = np.zeros(len(classes), bool)
    for digit in np.unique(classes):
        members = rng.permutation(np.flatnonzero(np.equal(classes, digit)))
        is_eval[members[: round(len(members) * _EVAL_FRACTION)]] = True
    return is_eval
