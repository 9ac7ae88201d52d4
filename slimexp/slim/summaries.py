"""Add summaries to the graph under readable names: `prefix/name` rather than that of an operation (graph mode).

slim.summaries.add_histogram_summaries(slim.get_model_variables())
slim.summaries.add_scalar_summary(total_loss, "total_loss", prefix="losses")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = [
    "add_histogram_summaries",
    "add_histogram_summary",
    "add_image_summaries",
    "add_image_summary",
    "add_scalar_summaries",
    "add_scalar_summary",
    "add_zero_fraction_summaries",
    "add_zero_fraction_summary",
]

v1 = tf.compat.v1


def add_histogram_summary(tensor: Any, name: str | None = None, prefix: str | None = None) -> Any:
    """Adds a histogram of a tensor or variable to the graph's summaries.

    Args:
        tensor: Of any shape.
        name: The summary's name; by default that of the tensor's operation.
        prefix: Put before the name, with a slash.

    Returns:
        The summary, a string tensor in the collection of summaries.
    """
    return v1.summary.histogram(_summary_name(tensor, name, prefix), tensor)


def add_image_summary(
    tensor: Any, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Any:
    """Adds images to the graph's summaries, the first three of the batch.

    Args:
        tensor: [batch, height, width, channels], uint8 or float32, with 1, 3 or 4 channels.
        name: The summary's name; by default that of the tensor's operation.
        prefix: Put before the name, with a slash.
        print_summary: Print the values as well whenever the summary is computed.

    Returns:
        The summary, a string tensor in the collection of summaries.
    """
    return _added(v1.summary.image, tensor, tensor, _summary_name(tensor, name, prefix), print_summary)


def add_scalar_summary(
    tensor: Any, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Any:
    """Adds a scalar to the graph's summaries.

    Args:
        tensor: A scalar.
        name: The summary's name; by default that of the tensor's operation.
        prefix: Put before the name, with a slash.
        print_summary: Print the value as well whenever the summary is computed.

    Returns:
        The summary, a string tensor in the collection of summaries.
    """
    return _added(v1.summary.scalar, tensor, tensor, _summary_name(tensor, name, prefix), print_summary)


def add_zero_fraction_summary(
    tensor: Any, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Any:
    """Adds the share of a tensor's elements that are zero to the graph's summaries, e.g. after a ReLU.

    Args:
        tensor: Of any shape.
        name: The summary's name; by default that of the tensor's operation. `zero_fraction` is put after it.
        prefix: Put before the name, with a slash.
        print_summary: Print the value as well whenever the summary is computed.

    Returns:
        The summary, a string tensor in the collection of summaries.
    """
    summary_name = _summary_name(tensor, name, prefix, "zero_fraction")
    fraction = tf.math.zero_fraction(tensor)
    return _added(v1.summary.scalar, tensor, fraction, summary_name, print_summary)


def add_histogram_summaries(tensors: Sequence[Any], prefix: str | None = None) -> list[Any]:
    """Adds a histogram of each tensor or variable; see `add_histogram_summary`."""
    return [add_histogram_summary(tensor, prefix=prefix) for tensor in tensors]


def add_image_summaries(tensors: Sequence[Any], prefix: str | None = None) -> list[Any]:
    """Adds the images of each tensor; see `add_image_summary`."""
    return [add_image_summary(tensor, prefix=prefix) for tensor in tensors]


def add_scalar_summaries(tensors: Sequence[Any], prefix: str | None = None, print_summary: bool = False) -> list[Any]:
    """Adds each scalar; see `add_scalar_summary`."""
    return [add_scalar_summary(tensor, prefix=prefix, print_summary=print_summary) for tensor in tensors]


def add_zero_fraction_summaries(tensors: Sequence[Any], prefix: str | None = None) -> list[Any]:
    """Adds the share of zeros of each tensor; see `add_zero_fraction_summary`."""
    return [add_zero_fraction_summary(tensor, prefix=prefix) for tensor in tensors]


def _summary_name(tensor: Any, name: str | None, prefix: str | None, postfix: str | None = None) -> str:
    return "/".join(part for part in (prefix, name or tensor.op.name, postfix) if part)


def _added(summarize: Callable[..., Any], tensor: Any, value: Any, name: str, print_summary: bool) -> Any:
    summary = summarize(name, value, collections=[] if print_summary else None)
    if print_summary:
        with tf.control_dependencies([tf.print(name, value)]):
            summary = tf.identity(summary)
        # The one that prints, and not also the one that it was made of.
        v1.add_to_collection(v1.GraphKeys.SUMMARIES, summary)
    return summary
