"""Any checkpoint of TensorFlow: where it is, what is in it, and its values one by one.

Read are V2 bundles (`model.ckpt-7.index`, ours and TF1's), V1 files (`vgg_16.ckpt`), the latest of a folder, a run's
folder, the variables of a SavedModel, and checkpoints of objects (`tf.train.Checkpoint`, TF2's SavedModels), whose
variables go by the names that they were created with.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from slimexp.errors import UserError
from slimexp.training.checkpoint_place import PARTS, locate_checkpoint

__all__ = ["CheckpointFile", "Variable"]

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"
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
        self.prefix, self.kind = locate_checkpoint(self.path, key=key)
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
            if file.name.startswith(path.name) and (not rest or PARTS.search(rest) or rest.startswith("-")):
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
