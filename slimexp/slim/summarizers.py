"""Summarize whole collections of a graph at once: all activations, weights, biases or variables (graph mode)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

__all__ = [
    "summarize_activation",
    "summarize_activations",
    "summarize_biases",
    "summarize_collection",
    "summarize_tensor",
    "summarize_tensors",
    "summarize_variables",
    "summarize_weights",
]

v1 = tf.compat.v1

_RECTIFIED = ("Relu", "Softplus", "Relu6")


def summarize_tensor(tensor: Any, tag: str | None = None) -> Any:
    """Adds a tensor to the graph's summaries: a scalar as such, any other as a histogram.

    Args:
        tensor: The tensor or variable.
        tag: Its name; by default that of its operation.

    Returns:
        The summary.
    """
    tag = tag or tensor.op.name
    # With a name of its own, as tf.compat.v1.summary would make that of the tag, which is taken, unique.
    name = f"{tag}_summary"
    if tensor.shape.rank == 0:
        summary = tf.raw_ops.ScalarSummary(tags=tag, values=tensor, name=name)
    else:
        summary = tf.raw_ops.HistogramSummary(tag=tag, values=tensor, name=name)
    v1.add_to_collection(v1.GraphKeys.SUMMARIES, summary)
    return summary


def summarize_activation(op: Any) -> Any:
    """Adds a histogram of an activation to the graph's summaries.

    After a ReLU, a softplus or a ReLU6 the share of zeros is added as well, and after a ReLU6 that of sixes.

    Args:
        op: The tensor that an activation function returned.

    Returns:
        The summary of the histogram.
    """
    name = op.op.name
    if op.op.type in _RECTIFIED:
        v1.summary.scalar(f"{name}/zeros", tf.reduce_mean(tf.cast(tf.less_equal(op, 0), tf.float32)))
    if op.op.type == "Relu6":
        v1.summary.scalar(f"{name}/sixes", tf.reduce_mean(tf.cast(tf.greater_equal(op, 6), tf.float32)))
    return v1.summary.histogram(f"{name}/activation", op)


def summarize_tensors(tensors: Iterable[Any], summarizer: Callable[[Any], Any] = summarize_tensor) -> list[Any]:
    """Returns the summaries that `summarizer` adds for each tensor."""
    return [summarizer(tensor) for tensor in tensors]


def summarize_collection(
    collection: str, name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_tensor
) -> list[Any]:
    """Adds the tensors of a collection to the graph's summaries.

    Args:
        collection: Its name.
        name_filter: A regular expression matched at the beginning of a tensor's name; None for all.
        summarizer: Adds the summary of one tensor and returns it.

    Returns:
        The summaries.
    """
    return summarize_tensors(v1.get_collection(collection, name_filter), summarizer)


summarize_variables = functools.partial(summarize_collection, v1.GraphKeys.GLOBAL_VARIABLES)
summarize_weights = functools.partial(summarize_collection, v1.GraphKeys.WEIGHTS)
summarize_biases = functools.partial(summarize_collection, v1.GraphKeys.BIASES)


def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_activation
) -> list[Any]:
    """Adds the collection of activations to the graph's summaries; see `summarize_collection`."""
    return summarize_collection(v1.GraphKeys.ACTIVATIONS, name_filter, summarizer)
