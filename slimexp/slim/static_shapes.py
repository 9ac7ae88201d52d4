"""What is known of a tensor's shape while the graph is built, as plain integers.

After `tf.compat.v1.disable_v2_behavior()` an item of a `TensorShape` is a `Dimension`: it is never None, and it is no
`int`. Code that looks at single dimensions goes through here, and so works in both worlds.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["static_size", "static_sizes"]


def static_sizes(tensor_or_shape: Any) -> list[int | None]:
    """Returns the size of each dimension, None where it is unknown.

    Args:
        tensor_or_shape: A tensor or variable, or a shape, of known rank.

    Raises:
        ValueError: If the rank is unknown.
    """
    shape = tensor_or_shape if isinstance(tensor_or_shape, tf.TensorShape) else tensor_or_shape.shape
    sizes: list[int | None] = shape.as_list()
    return sizes


def static_size(value: Any) -> int | None:
    """Returns one dimension, an integer or `Dimension`, as an integer; None if it is unknown."""
    size = value.value if isinstance(value, tf.compat.v1.Dimension) else value
    return None if size is None else int(size)
