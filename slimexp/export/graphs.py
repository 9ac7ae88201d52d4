"""Inference graphs of their own: free batch size, dropout off, batch norm by its moving averages, TF-Slim's names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["INPUT", "SCORES", "InferenceGraph", "inference_graph", "is_softmax_of"]

# The name that TF-Slim's export gives the input.
INPUT = "input"
# The node that is added where the network itself makes no probabilities.
SCORES = "scores"

Trace = Callable[[tf.Tensor], tuple[tf.Tensor, dict[str, tf.Tensor]]]
_PASSED = ("Reshape", "Identity", "Squeeze")


@dataclasses.dataclass(frozen=True)
class InferenceGraph:
    """A network's graph, with variables of its own that have no values yet.

    Attributes:
        definition: The graph.
        input: The name of the placeholder of the images.
        logits: The name of the node of the logits.
        scores: The name of the node of the probabilities; None if none was asked for and the network makes none.
        shapes: Variable name -> shape.
    """

    definition: Any
    input: str
    logits: str
    scores: str | None
    shapes: dict[str, tuple[int, ...]]


def inference_graph(
    trace: Trace,
    *,
    image_size: int,
    batch_size: int | None = None,
    task: str | None = None,
) -> InferenceGraph:
    """Builds a network in a graph of its own.

    Args:
        trace: From images to logits and end points, e.g. `Classifier.trace` with `is_training=False`.
        image_size: The images' side in pixels.
        batch_size: The images in a batch; None leaves that open.
        task: `single` or `multi`: the graph gets a node of the probabilities, softmax or sigmoid, unless the network
            has it among its end points. None: the network as it is.
    """
    with tf.Graph().as_default() as graph:
        # Initial values are never computed here, but deterministic mode refuses them without a seed.
        tf.compat.v1.set_random_seed(0)
        images = tf.compat.v1.placeholder(tf.float32, [batch_size, image_size, image_size, 3], name=INPUT)
        logits, end_points = trace(images)
        if task == "multi":
            scores = tf.sigmoid(logits, name=SCORES)
        else:  # Networks call it `Predictions`, or `predictions`.
            scores = next((value for value in end_points.values() if is_softmax_of(value, logits)), None)
            if scores is None and task is not None:
                scores = tf.nn.softmax(logits, name=SCORES)
        return InferenceGraph(
            definition=graph.as_graph_def(add_shapes=False),
            input=images.op.name,
            logits=logits.op.name,
            scores=None if scores is None else scores.op.name,
            shapes={variable.op.name: tuple(variable.shape.as_list()) for variable in tf.compat.v1.global_variables()},
        )


def is_softmax_of(predictions: Any, logits: Any) -> bool:
    """Tells by the graph whether one tensor is the softmax of the other, over its last dimension."""
    if getattr(predictions, "shape", None) is None or predictions.shape.rank != logits.shape.rank:
        return False
    op, wanted = _behind(predictions.op), _behind(logits.op)
    return op.type == "Softmax" and _behind(op.inputs[0].op) is wanted


def _behind(op: Any) -> Any:
    """Returns the operation that the values come from, which others have only put into shape."""
    while op.type in _PASSED:
        op = op.inputs[0].op
    return op
