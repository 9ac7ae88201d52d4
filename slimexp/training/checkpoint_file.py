"""Any checkpoint of TensorFlow: where it is, what is in it, and its values one by one.

Read are V2 bundles (`model.ckpt-7.index`, ours and TF1's), V1 files (`vgg_16.ckpt`), the latest of a folder, a run's
folder, the variables of a SavedModel, and checkpoints of objects (`tf.train.Checkpoint`, TF2's SavedModels), whose
variables go by the names that they were created with.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import difflib
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from slimexp.errors import UserError

__all__ = ["CheckpointFile", "Variable"]

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"
_PARTS = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
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
_FAULTS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, OSError)


@dataclasses.dataclass(frozen=True)
class Variable:
    """One entry of a checkpoint.

    Attributes:
        shape: Its shape.
        dtype: The name of its type, e.g. `float32`.
        key: What the file calls it; differs from the name in checkpoints of objects only.
    """

    shape: tuple[int, ...]
    dtype: str
    key: str


class CheckpointFile:
    """A checkpoint that was found and whose table of contents was read.

    Args:
        path: A checkpoint's prefix or one of its files, a folder with checkpoints, a run's folder, or a SavedModel.
        key: The configuration key that it comes from, for messages.

    Attributes:
        path: What was asked for.
        prefix: What was found, as `tf.train.load_checkpoint` takes it.
        kind: `V1`, `V2` or `SavedModel`.
        variables: Name -> entry, sorted by name.

    Raises:
        UserError: If there is none, or it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, key: str = "restore.checkpoint") -> None:
        self.path = os.fspath(path)
        self._key = key
        self.prefix, self.kind = _find(self.path, key)
        with self._reader() as reader:
            self.variables = dict(sorted(_contents(reader).items()))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each variable that holds numbers."""
        return {
            name: variable.shape
            for name, variable in self.variables.items()
            if tf.as_dtype(variable.dtype).is_floating or tf.as_dtype(variable.dtype).is_integer
        }

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names with their values, each read when it is its turn.

        Raises:
            UserError: If the file is damaged.
        """
        with self._reader() as reader:
            for name in names:
                try:
                    value = reader.get_tensor(self.variables[name].key)
                except _FAULTS as error:
                    raise self._damaged(error) from error
                yield name, np.asarray(value)

    def describe(self) -> str:
        """Returns where it is and how much is in it, in words."""
        what = {"V1": "a V1 checkpoint", "V2": "a checkpoint", "SavedModel": "a SavedModel"}[self.kind]
        return f"{self.prefix}, {what} of {len(self.variables)} variables"

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            try:
                prefix = stack.enter_context(_readable(self.prefix))
                # V1 in several files is read by a pattern.
                shards = "-?????-of-?????" if self.kind == "V1" and not Path(self.prefix).is_file() else ""
                reader = tf.compat.v1.train.NewCheckpointReader(prefix + shards)
            except _FAULTS as error:
                raise self._damaged(error) from error
            yield reader

    def _damaged(self, error: BaseException) -> UserError:
        message = str(getattr(error, "message", None) or getattr(error, "strerror", None) or error)
        line = message.splitlines()[0] if message else type(error).__name__
        # What TensorFlow puts around the cause.
        line = re.sub(r"Unable to open table file \S+: |: perhaps your file.*", "", line).strip(" .")
        return UserError(
            f"{self._key}={self.path}: the checkpoint {self.prefix} cannot be read: {line}. It is damaged, not copied "
            "to its end, or no TensorFlow checkpoint; fetch it again."
        )


def _find(path: str, key: str) -> tuple[str, str]:
    """Returns prefix and kind of the checkpoint that a path means."""
    for prefix in dict.fromkeys([path, _PARTS.sub("", path)]):
        if Path(f"{prefix}.index").is_file():
            return prefix, "V2"
    folder = Path(path)
    if folder.is_dir():
        if (folder / "variables" / "variables.index").is_file():
            return str(folder / "variables" / "variables"), "SavedModel"
        for place in (folder, folder / "checkpoints"):
            latest = _latest(place)
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


def _latest(folder: Path) -> str | None:
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
    return sorted(name for name in found if not _PARTS.search(name))


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


@contextlib.contextmanager
def _readable(prefix: str) -> Iterator[str]:
    """Yields a path without the characters that TensorFlow's reader takes for a pattern, by links if need be."""
    if not re.search(r"[*?\[\]{}\\]", prefix):
        yield prefix
        return
    path = Path(prefix).absolute()
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.iterdir():
            rest = file.name[len(path.name) :]
            if file.name.startswith(path.name) and (not rest or _PARTS.search(rest) or rest.startswith("-")):
                os.symlink(file, Path(folder) / f"model{rest}")
        yield str(Path(folder) / "model")


def _contents(reader: Any) -> dict[str, Variable]:
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    names = _object_names(reader) if _OBJECT_GRAPH in shapes else {}
    return {
        names.get(key, key.removesuffix(_ATTRIBUTE)): Variable(tuple(shape), dtypes[key].name, key)
        for key, shape in shapes.items()
        if key != _OBJECT_GRAPH
    }


def _object_names(reader: Any) -> dict[str, str]:
    """Returns the variables' own names by key; a name that two objects have is nobody's."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(_OBJECT_GRAPH))
    pairs = {a.checkpoint_key: a.full_name for node in graph.nodes for a in node.attributes if a.full_name}
    counts = collections.Counter(pairs.values())
    return {key: name for key, name in pairs.items() if counts[name] == 1}
