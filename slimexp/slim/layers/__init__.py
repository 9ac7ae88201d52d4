"""Layers: functions of tensors that keep their variables in variable scopes."""

from __future__ import annotations

from slimexp.slim.layers.convolutions import (
    conv1d,
    conv2d,
    conv3d,
    convolution,
    convolution1d,
    convolution2d,
    convolution3d,
)
from slimexp.slim.layers.dense import bias_add, fully_connected, linear, relu, relu6
from slimexp.slim.layers.dropping import dropout
from slimexp.slim.layers.normalization import batch_norm
from slimexp.slim.layers.pooling import avg_pool2d, max_pool2d
from slimexp.slim.layers.repetition import repeat, stack
from slimexp.slim.layers.shaping import flatten, one_hot_encoding, scale_gradient, softmax, unit_norm

__all__ = [
    "avg_pool2d",
    "batch_norm",
    "bias_add",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution3d",
    "dropout",
    "flatten",
    "fully_connected",
    "linear",
    "max_pool2d",
    "one_hot_encoding",
    "relu",
    "relu6",
    "repeat",
    "scale_gradient",
    "softmax",
    "stack",
    "unit_norm",
]
