"""Tell how large the operations and variables of a graph are, as numbers and as a printed list (graph mode)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.static_shapes import static_sizes

__all__ = ["analyze_ops", "analyze_vars", "tensor_description"]


def tensor_description(var: Any) -> str:
    """Returns type and shape of a tensor or variable, e.g. `(float32_ref 3x3x64)` or `(float32 ?x10)`."""
    dimensions = (
        "unknown shape" if var.shape.rank is None else "x".join("?" if d is None else str(d) for d in static_sizes(var))
    )
    return f"({var.dtype.name} {dimensions})"


def analyze_ops(graph: tf.Graph, print_info: bool = False) -> int:
    """Adds up the sizes of what all operations of a graph return.

    Args:
        graph: The graph.
        print_info: Print each operation with the types and shapes of its outputs, and the total.

    Returns:
        The number of elements; outputs whose shape is not wholly known are left out.
    """
    if print_info:
        print("---------\nOperations: name -> (type shapes) [size]\n---------")
    total = 0
    for op in graph.get_operations():
        sizes = [_size(output) for output in op.outputs]
        op_size = sum(sizes)
        total += op_size
        if print_info:
            shapes = " ".join(tensor_description(output) for output in op.outputs)
            print(f"{op.name}\t->\t{shapes}\t[{op_size}]".replace("->\t\t", "->\t"))
    if print_info:
        print(f"---------\nTotal size: {total}")
    return total


def analyze_vars(variables: Sequence[Any], print_info: bool = False) -> tuple[int, int]:
    """Adds up the sizes of variables.

    Args:
        variables: E.g. `slim.get_model_variables()`.
        print_info: Print each with its type, shape, number of elements and bytes, and the totals.

    Returns:
        The number of elements, and the number of bytes.
    """
    if print_info:
        print("---------\nVariables: name (type shape) [size, bytes]\n---------")
    total_size = total_bytes = 0
    for var in variables:
        size = _size(var)
        num_bytes = size * var.dtype.size
        total_size += size
        total_bytes += num_bytes
        if print_info:
            print(f"{var.name} {tensor_description(var)} [{size}, bytes: {num_bytes}]")
    if print_info:
        print(f"---------\nTotal size of variables: {total_size}\nTotal bytes of variables: {total_bytes}")
    return total_size, total_bytes


def _size(tensor: Any) -> int:
    return math.prod(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else 0
