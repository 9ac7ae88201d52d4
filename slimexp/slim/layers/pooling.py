"""Pooling over windows of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import channels_first, n_positive, scoped_alias

__all__ = ["avg_pool2d", "max_pool2d"]


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | None = None,
) -> Any:
    """Averages over windows; with `SAME` padding only the elements inside the image count.

    Args:
        inputs: [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`.
        kernel_size: The window's size, one for both dimensions or one for each.
        stride: The step between windows, likewise.
        padding: `SAME` or `VALID`.
        data_format: `NHWC` or `NCHW`.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `AvgPool2D`.

    Returns:
        The pooled images.

    Raises:
        ValueError: If rank, sizes, padding or data format do not fit.
    """
    return _pool2d(
        "AvgPool", tf.nn.avg_pool2d, inputs, kernel_size, stride, padding, data_format, outputs_collections, scope
    )


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | None = None,
) -> Any:
    """Takes the maximum over windows.

    Args:
        inputs: [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`.
        kernel_size: The window's size, one for both dimensions or one for each.
        stride: The step between windows, likewise.
        padding: `SAME` or `VALID`.
        data_format: `NHWC` or `NCHW`.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `MaxPool2D`.

    Returns:
        The pooled images.

    Raises:
        ValueError: If rank, sizes, padding or data format do not fit.
    """
    return _pool2d(
        "MaxPool", tf.nn.max_pool2d, inputs, kernel_size, stride, padding, data_format, outputs_collections, scope
    )


def _pool2d(
    op_name: str,
    op: Callable[..., Any],
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: str,
    data_format: str,
    outputs_collections: str | Sequence[str] | None,
    scope: str | None,
) -> Any:
    layer = "avg_pool2d" if op_name == "AvgPool" else "max_pool2d"
    channels_first(layer, data_format, 2)
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"{layer}: padding={padding!r} must be SAME or VALID.")
    with tf.compat.v1.name_scope(scope, f"{op_name}2D", [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        if inputs.shape.rank != 4:
            raise ValueError(f"{layer}: the inputs must have rank 4, not shape {inputs.shape}.")
        kernel = n_positive(layer, "kernel_size", kernel_size, 2)
        strides = n_positive(layer, "stride", stride, 2)
        outputs = op(inputs, kernel, strides, padding, data_format, name=op_name)
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)
