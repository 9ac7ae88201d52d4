"""Output collections: how layers report what they computed, and what scripts look for under `slim.utils`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.static_shapes import static_size, static_sizes

__all__ = [
    "append_tensor_alias",
    "channel_dimension",
    "collect_named_outputs",
    "constant_value",
    "convert_collection_to_dict",
    "gather_tensors_aliases",
    "get_tensor_aliases",
    "get_variable_collections",
    "last_dimension",
    "n_positive_integers",
    "smart_cond",
    "static_cond",
    "static_value",
    "two_element_tuple",
]


def append_tensor_alias(tensor: Any, alias: str) -> Any:
    """Gives a tensor one more alias; a trailing slash is dropped. Returns the tensor."""
    aliases = [*getattr(tensor, "aliases", []), alias.removesuffix("/")]
    tensor.aliases = aliases
    return tensor


def get_tensor_aliases(tensor: Any) -> list[str]:
    """Returns the aliases of a tensor, or its name without `:0` if it has none."""
    return list(getattr(tensor, "aliases", None) or [tensor.name.removesuffix(":0")])


def gather_tensors_aliases(tensors: Sequence[Any]) -> list[str]:
    """Returns the aliases of several tensors, one list."""
    return [alias for tensor in tensors for alias in get_tensor_aliases(tensor)]


def collect_named_outputs(collections: str | Sequence[str] | None, alias: str | None, outputs: Any) -> Any:
    """Puts a layer's output into collections, under an alias.

    Args:
        collections: Names of the collections; None for none.
        alias: The name under which `convert_collection_to_dict` lists the output.
        outputs: The tensor.

    Returns:
        The tensor.
    """
    if collections:
        # Only then: a normalizer that is not collected must not name the output of the layer that it belongs to.
        if alias:
            append_tensor_alias(outputs, alias)
        tf.compat.v1.add_to_collections(collections, outputs)
    return outputs


def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> dict[str, Any]:
    """Returns a collection as a dictionary from alias to tensor, in the order of the collection.

    Args:
        collection: Its name.
        clear_collection: Empty the collection afterwards.
    """
    outputs = OrderedDict(
        (alias, tensor) for tensor in tf.compat.v1.get_collection(collection) for alias in get_tensor_aliases(tensor)
    )
    if clear_collection:
        tf.compat.v1.get_default_graph().clear_collection(collection)
    return outputs


def get_variable_collections(
    variables_collections: Mapping[str, Sequence[str]] | Sequence[str] | None, name: str
) -> Sequence[str] | None:
    """Returns the collections for one of a layer's variables.

    Args:
        variables_collections: Names of collections for all variables, or a dictionary from a variable's name
            (`weights`, `biases`, ...) to its own.
        name: The variable's name within its layer.
    """
    if isinstance(variables_collections, Mapping):
        return variables_collections.get(name)
    return variables_collections


def last_dimension(shape: tf.TensorShape, min_rank: int = 1) -> int:
    """Returns the last dimension of a static shape.

    Raises:
        ValueError: If the rank is less than `min_rank`, or the rank or the last dimension is unknown.
    """
    return _dimension(shape, -1, "last", min_rank)


def channel_dimension(shape: tf.TensorShape, data_format: str, min_rank: int = 1) -> int:
    """Returns the channels dimension of a static shape.

    Args:
        shape: The shape.
        data_format: `channels_first` for the second dimension, else `channels_last`.
        min_rank: The least rank that the shape may have.

    Raises:
        ValueError: If the rank is less than `min_rank`, or the rank or the dimension is unknown.
    """
    return _dimension(shape, 1 if data_format == "channels_first" else -1, "channels", min_rank)


def _dimension(shape: tf.TensorShape, axis: int, name: str, min_rank: int) -> int:
    if shape.rank is None:
        raise ValueError("The rank of the inputs must be known, but the shape is unknown.")
    if shape.rank < min_rank:
        raise ValueError(f"The inputs must have rank {min_rank} or more, but their shape is {shape}.")
    size = static_sizes(shape)[axis]
    if size is None:
        raise ValueError(f"The {name} dimension of the inputs must be known, but their shape is {shape}.")
    return size


def two_element_tuple(int_or_tuple: int | Sequence[int] | tf.TensorShape) -> tuple[int, int]:
    """Returns height and width, given as one integer for both or as two.

    Raises:
        ValueError: If it is neither.
    """
    if isinstance(int_or_tuple, int):
        return int_or_tuple, int_or_tuple
    if isinstance(int_or_tuple, (list, tuple, tf.TensorShape)) and len(int_or_tuple) == 2:
        height, width = (static_size(size) for size in int_or_tuple)
        if height is not None and width is not None:
            return height, width
    raise ValueError(f"Height and width must be one integer or two, not {int_or_tuple!r}.")


def n_positive_integers(n: int, value: Any) -> tuple[int, ...]:
    """Returns n integers of 1 or more, given as one integer for all or as n.

    Raises:
        ValueError: If n is not a positive integer, or the value is neither.
    """
    if int(n) != n or n < 1:
        raise ValueError(f"The number of integers must be a positive integer, not {n!r}.")
    values = list(value) if hasattr(value, "__len__") and not isinstance(value, str) else [value] * int(n)
    try:
        integers = tuple(int(v) for v in values)
    except (TypeError, ValueError):
        integers = ()
    if len(integers) != n or min(integers) < 1:
        raise ValueError(f"Expected one positive integer or {n} of them, not {value!r}.")
    return integers


def constant_value(value_or_tensor_or_var: Any, dtype: tf.DType | None = None) -> Any:
    """Returns the value of a constant tensor, or what is no tensor as it is; None for any other tensor or variable.

    Args:
        value_or_tensor_or_var: A tensor, a variable, or a plain value.
        dtype: The type that a tensor or variable must have, or None.

    Raises:
        ValueError: For None, or a tensor or variable of another type.
    """
    value = value_or_tensor_or_var
    if value is None:
        raise ValueError("constant_value: there must be a value, not None.")
    if not isinstance(value, (tf.Tensor, tf.Variable)):
        return value
    if dtype is not None and value.dtype != dtype:
        raise ValueError(f"constant_value: the value has the type {value.dtype}, not {dtype}.")
    return tf.get_static_value(value) if isinstance(value, tf.Tensor) else None


def static_value(pred: Any) -> bool | None:
    """Returns a predicate's value if it is known while the graph is built, else None."""
    if isinstance(pred, (tf.Tensor, tf.Variable)):
        value = tf.get_static_value(pred) if isinstance(pred, tf.Tensor) else None
        return None if value is None else bool(value)
    return bool(pred)


def static_cond(pred: Any, fn1: Any, fn2: Any) -> Any:
    """Returns `fn1()` or `fn2()`, chosen while the graph is built by a plain bool.

    Raises:
        TypeError: If a function is not callable.
    """
    for fn in (fn1, fn2):
        if not callable(fn):
            raise TypeError(f"The branches must be callable, not {fn!r}.")
    return fn1() if pred else fn2()


def smart_cond(pred: Any, fn1: Any, fn2: Any, name: str | None = None) -> Any:
    """Returns `fn1()` or `fn2()`: chosen at once where `pred` is known, else by a `tf.cond` in the graph."""
    value = static_value(pred)
    if value is not None:
        return static_cond(value, fn1, fn2)
    return tf.compat.v1.cond(pred, fn1, fn2, name=name)
