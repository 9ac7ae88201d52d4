"""The global step: the int64 scalar `global_step` that counts updates and is saved with the model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = [
    "assert_global_step",
    "assert_or_get_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
]


def get_global_step(graph: tf.Graph | None = None) -> Any:
    """Returns the global step of a graph (the default one), or None if it has none."""
    return tf.compat.v1.train.get_global_step(graph)


def create_global_step(graph: tf.Graph | None = None) -> Any:
    """Creates the global step.

    Raises:
        ValueError: If the graph has one.
    """
    return tf.compat.v1.train.create_global_step(graph)


def get_or_create_global_step(graph: tf.Graph | None = None) -> Any:
    """Returns the global step of a graph (the default one), creating it if needed."""
    return tf.compat.v1.train.get_or_create_global_step(graph)


def assert_global_step(global_step_tensor: Any) -> None:
    """Raises a TypeError unless the argument is an integer scalar, as a global step must be."""
    tf.compat.v1.train.assert_global_step(global_step_tensor)


def assert_or_get_global_step(graph: tf.Graph | None = None, global_step_tensor: Any = None) -> Any:
    """Returns the given global step after a check, or the graph's if none is given."""
    if global_step_tensor is None:
        return get_global_step(graph)
    assert_global_step(global_step_tensor)
    return global_step_tensor
