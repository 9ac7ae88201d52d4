"""What a network is made of: its variables, and what each layer costs. Built in a graph of its own, never executed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.training.classifier import Classifier

__all__ = ["ModelTable", "VariableRow", "model_table"]


@dataclasses.dataclass(frozen=True)
class VariableRow:
    """One variable of a network.

    Attributes:
        name: Its name.
        shape: Its shape.
        dtype: The name of its type.
        is_trainable: False for moving averages and the like.
        flops: Of the convolutions and matrix products with it, for one image, forward: two for each multiplication and
            addition.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_trainable: bool
    flops: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class ModelTable:
    """The variables of a network in the order of their creation, and its totals.

    Attributes:
        rows: The variables.
        num_values: In all variables.
        num_bytes: Of all variables.
        flops: From an image to the logits; heads beside the way, as in training, do not count.
    """

    rows: list[VariableRow]
    num_values: int
    num_bytes: int
    flops: int


def model_table(classifier: Classifier) -> ModelTable:
    """Returns the table of a classifier's network; it need not have been built."""
    with tf.Graph().as_default() as graph:
        size = classifier.image_size
        images = tf.compat.v1.placeholder(tf.float32, [1, size, size, 3])
        logits = classifier.trace(images, is_training=False)[0]
        variables = tf.compat.v1.global_variables()
        trainable = {variable.op.name for variable in tf.compat.v1.trainable_variables()}
        costs = {op: _flops(op) for op in graph.get_operations()}
        by_variable: dict[str, int] = {}
        for op, flops in costs.items():
            name = _variable_of(op) if flops else None
            if name is not None:
                by_variable[name] = by_variable.get(name, 0) + flops
        rows = [
            VariableRow(
                name=variable.op.name,
                shape=tuple(variable.shape),
                dtype=variable.dtype.base_dtype.name,
                is_trainable=variable.op.name in trainable,
                flops=by_variable.get(variable.op.name, 0),
            )
            for variable in variables
        ]
        num_values, num_bytes = slim.model_analyzer.analyze_vars(variables)
        return ModelTable(rows, num_values, num_bytes, sum(costs[op] for op in _needed_for(logits.op)))


def _flops(op: Any) -> int:
    if op.type in ("Conv2D", "Conv3D", "DepthwiseConv2dNative"):
        kernel, outputs = op.inputs[1].shape, op.outputs[0].shape
        # A depthwise kernel is [h, w, in, multiplier]: each output has one of its inputs.
        per_output = math.prod(kernel[:-2] if op.type == "DepthwiseConv2dNative" else kernel[:-1])
    elif op.type in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):  # A transposed convolution, forward.
        kernel, outputs = op.inputs[1].shape, op.inputs[2].shape
        per_output = math.prod(kernel[:-1])
    elif op.type in ("MatMul", "BatchMatMulV2"):
        outputs = op.outputs[0].shape
        per_output = op.inputs[0].shape[-2 if op.get_attr(_TRANSPOSES[op.type]) else -1]
    else:
        return 0
    return 2 * outputs.num_elements() * per_output


_TRANSPOSES = {"MatMul": "transpose_a", "BatchMatMulV2": "adj_x"}


def _variable_of(op: Any) -> str | None:
    """Returns the name of the variable that an operation multiplies by."""
    source = op.inputs[1].op
    while source.inputs and source.type in ("ReadVariableOp", "Identity", "Reshape", "Transpose", "Cast"):
        source = source.inputs[0].op
    return source.name if source.type in ("VarHandleOp", "VariableV2") else None


def _needed_for(op: Any) -> list[Any]:
    needed, waiting = {op: None}, [op]
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op not in needed:
                needed[tensor.op] = None
                waiting.append(tensor.op)
    return list(needed)
