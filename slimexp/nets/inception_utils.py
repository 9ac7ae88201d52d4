"""What the Inception networks share: their arg scope, and blocks of branches written as tables.

C. Szegedy et al.: Going deeper with convolutions, arXiv 1409.4842; Rethinking the Inception architecture for computer
vision, arXiv 1512.00567.

    with slim.arg_scope(inception_arg_scope(weight_decay=4e-5, batch_norm_decay=0.9997)):
        logits, end_points = inception_v3(images, num_classes=1001, is_training=True)

Departures: none from TF-Slim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp import slim

__all__ = [
    "AvgPool",
    "Block",
    "Branches",
    "Channels",
    "Conv",
    "MaxPool",
    "SeparableConv",
    "SideBySide",
    "build_until",
    "channels",
    "inception_arg_scope",
]


def inception_arg_scope(
    weight_decay: float = 0.00004,
    use_batch_norm: bool = True,
    batch_norm_decay: float = 0.9997,
    batch_norm_epsilon: float = 0.001,
    activation_fn: Callable[[Any], Any] | None = tf.nn.relu,
    batch_norm_updates_collections: str | Sequence[str] | None = tf.compat.v1.GraphKeys.UPDATE_OPS,
    batch_norm_scale: bool = False,
) -> Any:
    """Returns the arg scope to build an Inception network in.

    Args:
        weight_decay: Scale of the l2 penalty on all weights.
        use_batch_norm: Follow each convolution by batch norm; else by biases.
        batch_norm_decay: Of the moving averages. 0.9997 needs tens of thousands of steps: lower it for short runs.
        batch_norm_epsilon: Added to the variance.
        activation_fn: The activation.
        batch_norm_updates_collections: Collections for the updates of the moving averages; None runs them in place.
        batch_norm_scale: Whether batch norm has a `gamma`. Published checkpoints have none.
    """
    normalizer_params: dict[str, Any] = {}
    if use_batch_norm:
        normalizer_params = {
            "decay": batch_norm_decay,
            "epsilon": batch_norm_epsilon,
            "updates_collections": batch_norm_updates_collections,
            "scale": batch_norm_scale,
        }
    with (
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            weights_regularizer=slim.l2_regularizer(float(weight_decay)),
        ),
        slim.arg_scope(
            [slim.conv2d],
            weights_initializer=slim.variance_scaling_initializer(),
            activation_fn=activation_fn,
            normalizer_fn=slim.batch_norm if use_batch_norm else None,
            normalizer_params=normalizer_params,
        ) as scope,
    ):
        return scope


@dataclasses.dataclass(frozen=True)
class Channels:
    """How many channels a layer gets of its full number, and which dimension they are."""

    multiplier: float
    minimum: int
    axis: int = 3

    def __call__(self, full: int) -> int:
        return max(int(full * self.multiplier), self.minimum)


Block = Callable[[Any, str, Channels], Any]


def _initializer(stddev: float | None) -> dict[str, Any]:
    if stddev is None:
        return {}
    return {"weights_initializer": tf.compat.v1.truncated_normal_initializer(stddev=stddev)}


@dataclasses.dataclass(frozen=True)
class Conv:
    """A convolution.

    `num_filters` counts before the depth multiplier; None for `scope` takes the block's name; `stddev` is that of the
    initial weights, None for the arg scope's initializer.
    """

    num_filters: int
    kernel_size: tuple[int, int]
    scope: str | None = None
    stride: int = 1
    padding: str = "SAME"
    stddev: float | None = None

    def __call__(self, net: Any, name: str, depth: Channels) -> Any:
        return slim.conv2d(
            net,
            depth(self.num_filters),
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            scope=self.scope or name,
            **_initializer(self.stddev),
        )


@dataclasses.dataclass(frozen=True)
class SeparableConv:
    """A depthwise convolution with a depth multiplier of its own, up to `most`, followed by a pointwise one."""

    num_filters: int
    kernel_size: tuple[int, int]
    most: int
    stride: int = 1
    stddev: float | None = None

    def __call__(self, net: Any, name: str, depth: Channels) -> Any:
        num_filters = depth(self.num_filters)
        # More depthwise outputs than filters would be more parameters than a full convolution has use for.
        multiplier = max(1, min(num_filters // 3, self.most))
        return slim.separable_conv2d(
            net,
            num_filters,
            self.kernel_size,
            depth_multiplier=multiplier,
            stride=self.stride,
            padding="SAME",
            scope=name,
            **_initializer(self.stddev),
        )


@dataclasses.dataclass(frozen=True)
class MaxPool:
    """Maximum pooling."""

    kernel_size: tuple[int, int]
    scope: str | None = None
    stride: int = 1
    padding: str = "SAME"

    def __call__(self, net: Any, name: str, depth: Channels) -> Any:
        del depth
        return slim.max_pool2d(
            net, self.kernel_size, stride=self.stride, padding=self.padding, scope=self.scope or name
        )


@dataclasses.dataclass(frozen=True)
class AvgPool:
    """Average pooling."""

    kernel_size: tuple[int, int]
    scope: str | None = None
    stride: int = 1
    padding: str = "SAME"

    def __call__(self, net: Any, name: str, depth: Channels) -> Any:
        del depth
        return slim.avg_pool2d(
            net, self.kernel_size, stride=self.stride, padding=self.padding, scope=self.scope or name
        )


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """Layers that take the same input; their channels are joined."""

    layers: tuple[Block, ...]

    def __call__(self, net: Any, name: str, depth: Channels) -> Any:
        return tf.concat([layer(net, name, depth) for layer in self.layers], depth.axis)


@dataclasses.dataclass(frozen=True)
class Branches:
    """An Inception block: branches `Branch_0`, `Branch_1`, ... of layers in a row; their channels are joined."""

    branches: tuple[tuple[Block, ...], ...]

    def __call__(self, net: Any, name: str, depth: Channels) -> Any:
        outputs = []
        with tf.compat.v1.variable_scope(name):
            for i, branch in enumerate(self.branches):
                with tf.compat.v1.variable_scope(f"Branch_{i}"):
                    output = net
                    for layer in branch:
                        output = layer(output, name, depth)
                    outputs.append(output)
            return tf.concat(outputs, depth.axis)


def channels(net_name: str, depth_multiplier: float, min_depth: int, data_format: str = "NHWC") -> Channels:
    """Returns the function from a layer's full number of filters to the number it gets.

    Raises:
        ValueError: If `depth_multiplier` is not greater than 0, or there is no such data format.
    """
    if not depth_multiplier > 0:
        raise ValueError(f"{net_name}: depth_multiplier={depth_multiplier} must be greater than 0.")
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"{net_name}: data_format={data_format!r} must be NHWC or NCHW.")
    return Channels(depth_multiplier, min_depth, axis=1 if data_format == "NCHW" else 3)


def build_until(
    net_name: str, inputs: Any, blocks: Mapping[str, Block], final_endpoint: str, depth: Channels
) -> tuple[Any, dict[str, Any]]:
    """Builds blocks in a row up to an end point.

    Args:
        net_name: The network's name, for messages.
        inputs: The images.
        blocks: End point -> the block whose output it is, in their order.
        final_endpoint: The last one to build.
        depth: See `channels`.

    Returns:
        The final end point, and all end points by name.

    Raises:
        ValueError: If there is no such end point.
    """
    if final_endpoint not in blocks:
        raise ValueError(
            f"{net_name}: there is no final_endpoint {final_endpoint!r}; it is one of {', '.join(blocks)}."
        )
    end_points: dict[str, Any] = {}
    net = inputs
    for name, block in blocks.items():
        net = end_points[name] = block(net, name, depth)
        if name == final_endpoint:
            break
    return net, end_points
