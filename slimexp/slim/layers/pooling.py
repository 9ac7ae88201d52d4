"""Pooling over windows of images, volumes and sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import (
    OutputsCollections,
    channels_first,
    known_rank,
    n_positive,
    normal_padding,
    scoped_alias,
)

__all__ = ["avg_pool2d", "avg_pool3d", "max_pool2d", "max_pool3d", "pool"]


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: OutputsCollections = None,
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
    return _pool(
        "avg_pool2d",
        ("AvgPool2D", "AvgPool"),
        tf.nn.avg_pool2d,
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: OutputsCollections = None,
    scope: str | None = None,
) -> Any:
    """Takes the maximum over windows; the arguments are those of `avg_pool2d`, the default scope is `MaxPool2D`."""
    return _pool(
        "max_pool2d",
        ("MaxPool2D", "MaxPool"),
        tf.nn.max_pool2d,
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def avg_pool3d(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 2,
    padding: str = "VALID",
    data_format: str = "NDHWC",
    outputs_collections: OutputsCollections = None,
    scope: str | None = None,
) -> Any:
    """Averages over windows of volumes [batch, depth, height, width, channels].

    The arguments are those of `avg_pool2d`, with `NDHWC` or `NCDHW` (on any device); the default scope is `AvgPool3D`.
    """
    return _pool(
        "avg_pool3d",
        ("AvgPool3D", "AvgPool3D"),
        tf.nn.avg_pool3d,
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def max_pool3d(
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 2,
    padding: str = "VALID",
    data_format: str = "NDHWC",
    outputs_collections: OutputsCollections = None,
    scope: str | None = None,
) -> Any:
    """Takes the maximum over windows of volumes [batch, depth, height, width, channels].

    The arguments are those of `avg_pool2d`, with `NDHWC` or `NCDHW` (on any device); the default scope is `MaxPool3D`.
    """
    return _pool(
        "max_pool3d",
        ("MaxPool3D", "MaxPool3D"),
        tf.nn.max_pool3d,
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def pool(
    inputs: Any,
    kernel_size: int | Sequence[int],
    pooling_type: str,
    padding: str = "VALID",
    data_format: str | None = None,
    dilation_rate: int | Sequence[int] = 1,
    stride: int | Sequence[int] = 1,
    outputs_collections: OutputsCollections = None,
    scope: str | None = None,
) -> Any:
    """Pools over windows in one, two or three spatial dimensions, with gaps within the window if wanted.

    Args:
        inputs: [batch, *spatial, channels], or [batch, channels, *spatial] where `data_format` begins with `NC`.
        kernel_size: The window's size, one for all spatial dimensions or one for each.
        pooling_type: `AVG` or `MAX`.
        padding: `SAME` or `VALID`.
        data_format: `NWC`, `NHWC` or `NDHWC`, the default; or `NCW`, `NCHW`, `NCDHW`.
        dilation_rate: The step between the elements of a window; not together with a stride.
        stride: The step between windows.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `avg_pool` or `max_pool`.

    Returns:
        The pooled inputs.

    Raises:
        ValueError: If rank, sizes, pooling type, padding or data format do not fit.
    """
    if pooling_type not in ("AVG", "MAX"):
        raise ValueError(f"pool: pooling_type={pooling_type!r} must be AVG or MAX.")
    padding = normal_padding("pool", padding)
    with tf.compat.v1.name_scope(scope, f"{pooling_type.lower()}_pool", [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        n = known_rank("pool", inputs, 3, 5) - 2
        channels_first("pool", data_format, n)
        window = n_positive("pool", "kernel_size", kernel_size, n)
        rates = n_positive("pool", "dilation_rate", dilation_rate, n)
        strides = n_positive("pool", "stride", stride, n)
        if max(strides) > 1 and max(rates) > 1:
            raise ValueError(f"pool: stride={stride!r} and dilation_rate={dilation_rate!r} cannot both exceed 1.")
        outputs = tf.nn.pool(inputs, window, pooling_type, strides, padding, data_format, rates, name=sc)
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)


def _pool(
    layer: str,
    names: tuple[str, str],
    op: Callable[..., Any],
    inputs: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: str,
    data_format: str,
    outputs_collections: OutputsCollections,
    scope: str | None,
) -> Any:
    n = 3 if layer.endswith("3d") else 2
    first = channels_first(layer, data_format, n)
    padding = normal_padding(layer, padding)
    with tf.compat.v1.name_scope(scope, names[0], [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        known_rank(layer, inputs, n + 2, n + 2)
        kernel = n_positive(layer, "kernel_size", kernel_size, n)
        strides = n_positive(layer, "stride", stride, n)
        if n == 3 and first:
            # No device pools volumes with the channels in front.
            inputs = tf.transpose(inputs, [0, 2, 3, 4, 1])
            outputs = op(inputs, kernel, strides, padding, "NDHWC", name=names[1])
            outputs = tf.transpose(outputs, [0, 4, 1, 2, 3])
        else:
            outputs = op(inputs, kernel, strides, padding, data_format, name=names[1])
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)
