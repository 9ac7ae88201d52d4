"""Provides real images without a download: scikit-learn's handwritten digits, written once as JPEG files and lists.

The 1797 digits (E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998; the part that scikit-learn carries) are 8 x 8 pixels with 17 grey values. They are enlarged to
28 x 28, white on black, so that they look to a network as MNIST's do. What is written is an ordinary folder of images
with two list files, for users to look at:

    digits-v2/ train.txt  eval.txt  images/<digit>/<number>.jpg  manifest.json
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from slimexp.cache_dir import default_cache_dir
from slimexp.dataset.kept_folder import is_complete, make_once
from slimexp.dataset.listfile import load_listfile
from slimexp.dataset.split import Dataset

__all__ = ["load_digits"]

_FOLDER = "digits-v2"
_SIDE_PX = 28
_JPEG_QUALITY = 95
_EVAL_FRACTION = 0.2
_SPLIT_SEED = 0


def load_digits(*, cache_dir: str | None = None, check_files: bool = True, name: str = "digits") -> Dataset:
    """Loads the digits, and writes them first if they aren't there.

    About a fifth of each digit's images is held out for evaluation, always the same ones.

    Args:
        cache_dir: The folder in which `digits-v2/` is kept; by default `$SLIMEXP_CACHE`, else
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
    make_once(folder, _write_files, what="the digits", num_mb=8, check=_check if check_files else _check_lists)
    dataset = load_listfile(
        train_list=os.path.join(folder, "train.txt"),
        eval_list=os.path.join(folder, "eval.txt"),
        class_names=[str(digit) for digit in range(10)],
        check_files=check_files,
        name=name,
    )
    return dataclasses.replace(dataset, image_side_px=_SIDE_PX)


def _check(folder: str) -> bool:
    return is_complete(folder)


def _check_lists(folder: str) -> bool:
    return is_complete(folder, only=lambda name: name.endswith(".txt"))


def _write_files(folder: str) -> None:
    # Imported here, as it takes a second and is needed only once.
    from PIL import Image
    from sklearn.datasets import load_digits as load_from_sklearn

    digits = load_from_sklearn()
    # 0..16 -> 0..255; white on black already, as MNIST's.
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    classes = digits.target.tolist()
    for digit in range(10):
        os.makedirs(os.path.join(folder, "images", str(digit)))
    for number, (image, digit) in enumerate(zip(pixels, classes, strict=True)):
        path = _image_path(number, digit)
        large = Image.fromarray(image).resize((_SIDE_PX, _SIDE_PX), Image.Resampling.BICUBIC)
        large.save(os.path.join(folder, path), "JPEG", quality=_JPEG_QUALITY)
    is_eval = _choose_eval(classes)
    for name, chosen in (("train.txt", ~is_eval), ("eval.txt", is_eval)):
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
            file.write("# Handwritten digits: PATH CLASS\n")
            file.writelines(f"{_image_path(i, classes[i])} {classes[i]}\n" for i in np.flatnonzero(chosen).tolist())


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
