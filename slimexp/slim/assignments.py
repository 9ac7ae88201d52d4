"""Give variables of a graph their values from arrays or from a checkpoint (graph mode, with a session)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.slim.logs import logger as _log
from slimexp.slim.variables import get_unique_variable, get_variable_full_name

__all__ = [
    "assign_from_checkpoint",
    "assign_from_checkpoint_fn",
    "assign_from_values",
    "assign_from_values_fn",
]


def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """Returns an operation that assigns arrays to variables, and the feeds that it needs.

    Feeding keeps the values out of the graph definition, which may not exceed 2 GiB.

    Args:
        var_names_to_values: Full variable name -> array of the variable's shape.

    Returns:
        The operation, and the dictionary to run it with: `session.run(op, feed_dict)`.

    Raises:
        ValueError: If there is no such variable, or the shapes differ.
    """
    assigns = []
    feeds = {}
    for name, value in var_names_to_values.items():
        assign, placeholder = _assign(get_unique_variable(name), value, f"the value given for {name!r}")
        assigns.append(assign)
        feeds[placeholder] = np.asarray(value)
    return tf.group(*assigns), feeds


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], None]:
    """Returns a function of a session that assigns arrays to variables; see `assign_from_values`."""
    assign_op, feed_dict = assign_from_values(var_names_to_values)

    def init_fn(session: Any) -> None:
        session.run(assign_op, feed_dict)

    return init_fn


def assign_from_checkpoint(
    model_path: str,
    var_list: Sequence[Any] | Mapping[str, Any],
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> tuple[Any, dict[Any, Any]]:
    """Returns an operation that assigns variables from a checkpoint, and the feeds that it needs.

    Args:
        model_path: The checkpoint, e.g. `model.ckpt-1000`, or a folder for the latest one in it.
        var_list: The variables; or a dictionary from names in the checkpoint to variables (or to lists with the parts
            of a partitioned one).
        ignore_missing_vars: Leave out, with a warning, what the checkpoint lacks.
        reshape_variables: Let values whose number of elements is right take the variable's shape.

    Returns:
        The operation, and the dictionary to run it with.

    Raises:
        ValueError: If a variable is missing in the checkpoint or has another shape there.
    """
    reader = _reader(model_path)
    assigns = []
    feeds = {}
    for name, parts in _grouped(var_list).items():
        if not reader.has_tensor(name):
            message = f"The checkpoint {model_path} has no variable {name!r}"
            if not ignore_missing_vars:
                raise ValueError(f"{message}; leave it out of var_list, or pass ignore_missing_vars=True.")
            _log.warning("%s; it keeps its value.", message)
            continue
        value = reader.get_tensor(name)
        origin = f"{name!r} in {model_path}"
        for var in parts:
            info = getattr(var, "_save_slice_info", None)
            part = value
            if info:
                part = value[tuple(slice(o, o + n) for o, n in zip(info.var_offset, info.var_shape, strict=True))]
            if reshape_variables and part.size == var.shape.num_elements():
                part = part.reshape(var.shape.as_list())
            assign, placeholder = _assign(var, part, origin)
            assigns.append(assign)
            feeds[placeholder] = part
    return tf.group(*assigns), feeds


def assign_from_checkpoint_fn(
    model_path: str,
    var_list: Sequence[Any] | Mapping[str, Any],
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """Returns a function of a session that reads variables from a checkpoint.

    The arguments are those of `assign_from_checkpoint`.

    Returns:
        The function; None if `ignore_missing_vars` is set and the checkpoint has none of the variables.

    Raises:
        ValueError: If `var_list` is empty, or as in `assign_from_checkpoint`.
    """
    if not var_list:
        raise ValueError(f"There is no variable to read from {model_path}: var_list is empty.")
    assign_op, feed_dict = assign_from_checkpoint(model_path, var_list, ignore_missing_vars, reshape_variables)
    if not feed_dict:
        _log.warning("The checkpoint %s has none of the variables to restore.", model_path)
        return None

    def init_fn(session: Any) -> None:
        session.run(assign_op, feed_dict)

    return init_fn


def _reader(model_path: str) -> Any:
    # A path may name a checkpoint and a folder at once: then it is the checkpoint that is meant.
    if tf.io.gfile.exists(f"{model_path}.index"):
        return tf.compat.v1.train.NewCheckpointReader(model_path)
    return tf.train.load_checkpoint(model_path)


def _grouped(var_list: Sequence[Any] | Mapping[str, Any]) -> dict[str, list[Any]]:
    if isinstance(var_list, Mapping):
        return {name: list(var) if isinstance(var, (list, tuple)) else [var] for name, var in var_list.items()}
    grouped: dict[str, list[Any]] = {}
    for var in var_list:
        grouped.setdefault(get_variable_full_name(var), []).append(var)
    return grouped


def _assign(var: Any, value: Any, origin: str) -> tuple[Any, Any]:
    shape = np.shape(value)
    if not var.shape.is_compatible_with(shape):
        raise ValueError(
            f"The shape of {origin} is {list(shape)}, but the variable {var.name.split(':')[0]!r} has shape "
            f"{var.shape.as_list()}. Leave it out, or build the model with the sizes it was saved with."
        )
    placeholder = tf.compat.v1.placeholder(var.dtype.base_dtype, shape)
    return var.assign(placeholder), placeholder
