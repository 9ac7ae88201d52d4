"""Where a checkpoint is: found by the names of files, so that what is missing is known before TensorFlow is loaded."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from pathlib import Path

from slimexp.errors import UserError

__all__ = ["PARTS", "latest_checkpoint", "locate_checkpoint"]

# What the names of a V2 checkpoint's files end in, after its prefix.
PARTS = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_ARCHIVES = (".gz", ".tgz", ".tar", ".zip", ".bz2", ".xz")
_OTHERS = (".h5", ".hdf5", ".keras", ".pb", ".pt", ".pth", ".npz", ".npy", ".safetensors", ".onnx", ".tflite")
# What TF-Slim published for the networks that are here, trained on ImageNet, by file the date of its archive:
# vgg_16.ckpt is in vgg_16_2016_08_28.tar.gz.
_PAGE = "http://download.tensorflow.org/models/"
_PUBLISHED = {
    **dict.fromkeys(("inception_v1.ckpt", "inception_v2.ckpt", "inception_v3.ckpt"), "2016_08_28"),
    **dict.fromkeys(("vgg_16.ckpt", "vgg_19.ckpt"), "2016_08_28"),
    **dict.fromkeys(("resnet_v1_50.ckpt", "resnet_v1_101.ckpt", "resnet_v1_152.ckpt"), "2016_08_28"),
    **dict.fromkeys(("resnet_v2_50.ckpt", "resnet_v2_101.ckpt", "resnet_v2_152.ckpt"), "2017_04_14"),
}
_SHOWN = 5


def locate_checkpoint(path: str | os.PathLike[str], *, key: str) -> tuple[str, str]:
    """Finds the checkpoint that a path means.

    Args:
        path: A checkpoint's prefix or one of its files, a folder with checkpoints, a run's folder, or a SavedModel.
        key: The configuration key that it comes from, for messages.

    Returns:
        Its prefix, as `tf.train.load_checkpoint` takes it, and its kind: `V1`, `V2` or `SavedModel`.

    Raises:
        UserError: If there is none.
    """
    path = os.fspath(path)
    for prefix in dict.fromkeys([path, PARTS.sub("", path)]):
        if Path(f"{prefix}.index").is_file():
            return prefix, "V2"
    folder = Path(path)
    if folder.is_dir():
        if (folder / "variables" / "variables.index").is_file():
            return str(folder / "variables" / "variables"), "SavedModel"
        for place in (folder, folder / "checkpoints"):
            latest = latest_checkpoint(place)
            if latest is not None:
                return latest, "V2" if Path(f"{latest}.index").is_file() else "V1"
        raise UserError(
            f"{key}={path}: the folder holds no checkpoint: no *.index, no V1 file that its file `checkpoint` names, "
            f"no variables/ of a SavedModel, no checkpoints/ of a run.{_what_is_there(folder)}"
        )
    if folder.is_file():
        if folder.suffix in _ARCHIVES:
            raise UserError(f"{key}={path}: is packed; unpack it and name the file in it, e.g. by tar -xzf.")
        if folder.suffix in _OTHERS:
            raise UserError(
                f"{key}={path}: {folder.suffix} files are not read, only TensorFlow's checkpoints and SavedModels "
                "(their folder). For other formats write the values into a checkpoint first."
            )
        return path, "V1"
    if any(folder.parent.glob(f"{_literal(folder.name)}-?????-of-?????")):
        return path, "V1"
    raise UserError(f"{key}={path}: there is no such checkpoint.{_instead_of(folder)}")


def latest_checkpoint(folder: Path) -> str | None:
    """Returns the last checkpoint of a folder: the one that its file `checkpoint` names, else that of the last step."""
    try:
        state = (folder / "checkpoint").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        state = ""
    named = re.search(r'^model_checkpoint_path: "(.*)"', state, re.MULTILINE)
    if named:
        # A folder that was moved has the old place in it.
        for place in (folder / named.group(1), folder / Path(named.group(1)).name):
            if place.with_name(f"{place.name}.index").is_file() or place.is_file():
                return str(place)
    prefixes = [path.with_suffix("") for path in folder.glob("*.index") if not path.name.startswith(".")]
    return str(max(prefixes, key=_step)) if prefixes else None


def _step(prefix: Path) -> tuple[int, str]:
    number = re.search(r"-(\d+)$", prefix.name)
    return int(number.group(1)) if number else -1, prefix.name


def _what_is_there(folder: Path) -> str:
    if not folder.is_dir():
        parent = next((place for place in folder.parents if place.is_dir()), None)
        return f" There is no folder {folder}." + (f" {parent} is there." if parent else "")
    found = _names_in(folder)
    shown = ", ".join(found[:_SHOWN] + ["..."] * (len(found) > _SHOWN)) or "nothing"
    return f" In {folder} there is {shown}."


def _names_in(folder: Path) -> list[str]:
    """Returns what is in a folder, of checkpoints in several files their prefixes."""
    found = {path.name.removesuffix(".index") for path in folder.iterdir() if not path.name.startswith(".")}
    return sorted(name for name in found if not PARTS.search(name))


def _instead_of(missing: Path) -> str:
    """Says what there is in place of a checkpoint, and where to get it if it is one that was published."""
    folder = missing.parent
    near = difflib.get_close_matches(missing.name, _names_in(folder), n=_SHOWN) if folder.is_dir() else []
    there = f" In {folder} there is {', '.join(near)}." if near else _what_is_there(folder)
    date = _PUBLISHED.get(missing.name)
    if date is None:
        return there
    archive = f"{missing.stem}_{date}.tar.gz"
    if (folder / archive).is_file():
        return f" {folder / archive} is there: unpack it there (tar xzf {archive})."
    place = shlex.quote(str(folder.absolute()))
    make = "" if folder.is_dir() else f"mkdir -p {place} && "
    return (
        # Files that have nothing to do with it are of no use here.
        f"{there if near else ''} Nothing is downloaded; TF-Slim published it:\n"
        f"  {make}curl {_PAGE}{archive} | tar xz -C {place}"
    )


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
