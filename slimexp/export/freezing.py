"""Puts the values of a checkpoint into a graph, as constants: the second of the two steps to a file that runs alone.

It works on the graph's definition, without a session: each variable's node becomes a constant of the same name, so the
names of all other nodes stay what they were.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message, text_format  # type: ignore[import-untyped]  # TensorFlow brings it, without types.

from slimexp.errors import UserError

__all__ = ["find_outputs", "freeze", "read_graph", "variables_needed"]

_REFERENCES = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
_HANDLE = "VarHandleOp"
_READ = "ReadVariableOp"
# What has to do with making, saving and watching, and is never what a model is for.
_NO_OUTPUTS = frozenset(
    {
        "Assert",
        "Assign",
        "AssignAdd",
        "AssignSub",
        "AssignVariableOp",
        "Const",
        "HistogramSummary",
        "ImageSummary",
        "MergeSummary",
        "MergeV2Checkpoints",
        "NoOp",
        "Placeholder",
        "RestoreV2",
        "SaveV2",
        "ScalarSummary",
        "ShardedFilename",
        "VarIsInitializedOp",
        *_REFERENCES,
        _HANDLE,
        _READ,
    }
)
_MOST_NAMED = 5


def read_graph(path: str, *, binary: bool, key: str = "--input_graph") -> Any:
    """Reads a graph's definition from a file.

    Args:
        path: The file.
        binary: Whether it is a serialized message and not text.
        key: The option that the path comes from, for messages.

    Raises:
        UserError: If it is not there, or no graph of that kind.
    """
    definition = tf.compat.v1.GraphDef()
    other = "leave --input_binary out" if binary else "add --input_binary=true"
    try:
        contents = Path(path).read_bytes()
        if binary:
            definition.ParseFromString(contents)
        else:
            text_format.Merge(contents.decode("utf-8"), definition)
    except OSError as error:
        raise UserError(f"{key}={path}: cannot be read: {error.strerror}.") from error
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        kind = "serialized" if binary else "text"
        raise UserError(f"{key}={path}: is no graph as {kind}; perhaps it is the other kind: {other}.") from error
    if not definition.node:
        raise UserError(f"{key}={path}: the graph has no nodes.")
    return definition


def find_outputs(definition: Any) -> list[str]:
    """Returns the names of the nodes that a graph seems to be for: they follow from its input, and nothing from them.

    Of several the ones are left out that TF-Slim's auxiliary heads, and other networks' side exits, end in: those that
    depend on fewer nodes than another one that is found.
    """
    taken = {_node_of(name) for node in definition.node for name in node.input}
    inputs = {node.name for node in definition.node if node.op == "Placeholder"}
    depth = {}
    for node in definition.node:
        if node.name not in taken and node.op not in _NO_OUTPUTS:
            needed = _needed(definition, [node.name])
            if needed & inputs or not inputs:
                depth[node.name] = len(needed)
    return [name for name in depth if depth[name] == max(depth.values())]


def variables_needed(definition: Any, outputs: Sequence[str]) -> list[str]:
    """Returns the names of the variables that the outputs depend on, in the graph's order."""
    needed = _needed(definition, outputs)
    return [
        node.name for node in definition.node if node.name in needed and (node.op in _REFERENCES or node.op == _HANDLE)
    ]


def freeze(
    definition: Any,
    outputs: Sequence[str],
    values: Callable[[Sequence[str]], Iterable[tuple[str, np.ndarray]]],
    *,
    available: Collection[str],
    origin: str,
    clear_devices: bool = True,
    key: str = "--output_node_names",
) -> Any:
    """Returns the part of a graph that the outputs depend on, with constants in the place of variables.

    Args:
        definition: A graph's definition, of TensorFlow 1 or 2; not changed.
        outputs: The names of the nodes that are wanted.
        values: From names of variables to these with their values, one after the other.
        available: The names that `values` can be asked for.
        origin: Where the values come from, for messages.
        clear_devices: Whether to leave open where nodes are to run.
        key: The option that the outputs come from, for messages.

    Returns:
        A new definition; all nodes have the names that they had.

    Raises:
        UserError: If an output is not in the graph, a variable has no value or one of another shape or type, or a node
            writes to a variable.
    """
    nodes = {node.name: node for node in definition.node}
    for name in outputs:
        if name not in nodes:
            found = find_outputs(definition)
            raise UserError(
                f"{key}={','.join(outputs)}: the graph has no node {name}.{_nearest(name, nodes)}"
                + (f" Its outputs seem to be {_some(found)}." if found else "")
            )
    needed = _needed(definition, outputs)
    variables = variables_needed(definition, outputs)
    missing = [name for name in variables if name not in available]
    if missing:
        raise UserError(
            f"{origin} lacks {len(missing)} of the {len(variables)} variables that the outputs depend on: "
            f"{_some(missing)}.{_nearest(missing[0], available)} The graph and the "
            "checkpoint must be of the same network, with the same number of classes."
        )
    frozen = tf.compat.v1.GraphDef()
    frozen.versions.CopyFrom(definition.versions)
    frozen.library.CopyFrom(definition.library)
    constants = {}
    for name, value in values(variables):
        constants[name] = _constant(nodes[name], value, origin)
    for node in definition.node:
        if node.name not in needed:
            continue
        new = frozen.node.add()
        if node.name in constants:
            new.CopyFrom(constants.pop(node.name))
        elif node.op == _READ:
            _become_identity(new, node)
        else:
            handles = [name for name in node.input if nodes[_node_of(name)].op == _HANDLE]
            if handles:
                raise UserError(
                    f"the node {node.name} ({node.op}) works on the variable {handles[0]} itself, so it cannot become "
                    "a constant. Export an inference graph (is_training=false), without what trains or saves."
                )
            new.CopyFrom(node)
        new.attr.pop("_class", None)  # What was to be kept together with a variable no longer is.
        if clear_devices:
            new.device = ""
    return frozen


def _needed(definition: Any, outputs: Sequence[str]) -> set[str]:
    inputs = {node.name: [_node_of(name) for name in node.input] for node in definition.node}
    needed, waiting = set(outputs), list(outputs)
    while waiting:
        for name in inputs.get(waiting.pop(), ()):
            if name not in needed:
                needed.add(name)
                waiting.append(name)
    return needed


def _node_of(name: str) -> str:
    """Returns the node of an input: without the number of its output, and the sign of a control dependency."""
    return name.removeprefix("^").partition(":")[0]


def _constant(node: Any, value: np.ndarray, origin: str) -> Any:
    dtype = tf.as_dtype(node.attr["dtype"].type)
    shape = tf.TensorShape(node.attr["shape"].shape)
    if not shape.is_compatible_with(value.shape) or dtype.as_numpy_dtype != value.dtype:
        raise UserError(
            f"{node.name}: is {dtype.name} {shape} in the graph and {value.dtype} {list(value.shape)} in {origin}. The "
            "graph and the checkpoint must be of the same network, with the same number of classes."
        )
    constant = tf.compat.v1.NodeDef(name=node.name, op="Const", device=node.device)
    constant.attr["dtype"].type = dtype.as_datatype_enum
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return constant


def _become_identity(new: Any, node: Any) -> None:
    new.name, new.op, new.device = node.name, "Identity", node.device
    new.attr["T"].type = node.attr["dtype"].type
    new.input.extend(node.input)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _nearest(name: str, names: Collection[str] | Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" The nearest is {close[0]}." if close else ""
