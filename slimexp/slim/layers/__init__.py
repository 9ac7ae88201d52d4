"""Layers: functions of tensors that keep their variables in variable scopes.

As in TF-Slim, initializers, regularizers, `optimize_loss` and the functions that summarize layers are found here too.
"""

from __future__ import annotations

from slimexp.slim.initializers import variance_scaling_initializer, xavier_initializer, xavier_initializer_conv2d
from slimexp.slim.layers.convolutions import (
    conv1d,
    conv2d,
    conv3d,
    convolution,
    convolution1d,
    convolution2d,
    convolution3d,
)
from slimexp.slim.layers.dense import bias_add, elu, fully_connected, linear, relu, relu6
from slimexp.slim.layers.depthwise import (
    conv2d_in_plane,
    convolution2d_in_plane,
    separable_conv2d,
    separable_convolution2d,
)
from slimexp.slim.layers.divisive import GDN, gdn
from slimexp.slim.layers.dropping import dropout
from slimexp.slim.layers.features import bucketize, dense_to_sparse, maxout, poincare_normalize, spatial_softmax
from slimexp.slim.layers.group_normalization import group_norm, instance_norm, layer_norm
from slimexp.slim.layers.legacy import legacy_fully_connected, legacy_linear, legacy_relu
from slimexp.slim.layers.normalization import batch_norm
from slimexp.slim.layers.pooling import avg_pool2d, avg_pool3d, max_pool2d, max_pool3d, pool
from slimexp.slim.layers.repetition import repeat, stack
from slimexp.slim.layers.reversible import RevBlock, recompute_grad, rev_block
from slimexp.slim.layers.sequences import images_to_sequence, sequence_to_images
from slimexp.slim.layers.shaping import flatten, one_hot_encoding, scale_gradient, softmax, unit_norm
from slimexp.slim.layers.transposed import (
    conv2d_transpose,
    conv3d_transpose,
    convolution2d_transpose,
    convolution3d_transpose,
)
from slimexp.slim.optimizers import OPTIMIZER_CLS_NAMES, OPTIMIZER_SUMMARIES, adaptive_clipping_fn, optimize_loss
from slimexp.slim.regularizers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)
from slimexp.slim.summarizers import (
    summarize_activation,
    summarize_activations,
    summarize_biases,
    summarize_collection,
    summarize_tensor,
    summarize_tensors,
    summarize_variables,
    summarize_weights,
)

__all__ = [
    "GDN",
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "RevBlock",
    "adaptive_clipping_fn",
    "apply_regularization",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bias_add",
    "bucketize",
    "conv1d",
    "conv2d",
    "conv2d_in_plane",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution2d_in_plane",
    "convolution2d_transpose",
    "convolution3d",
    "convolution3d_transpose",
    "dense_to_sparse",
    "dropout",
    "elu",
    "flatten",
    "fully_connected",
    "gdn",
    "group_norm",
    "images_to_sequence",
    "instance_norm",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "legacy_fully_connected",
    "legacy_linear",
    "legacy_relu",
    "linear",
    "max_pool2d",
    "max_pool3d",
    "maxout",
    "one_hot_encoding",
    "optimize_loss",
    "poincare_normalize",
    "pool",
    "recompute_grad",
    "relu",
    "relu6",
    "repeat",
    "rev_block",
    "scale_gradient",
    "separable_conv2d",
    "separable_convolution2d",
    "sequence_to_images",
    "softmax",
    "spatial_softmax",
    "stack",
    "sum_regularizer",
    "summarize_activation",
    "summarize_activations",
    "summarize_biases",
    "summarize_collection",
    "summarize_tensor",
    "summarize_tensors",
    "summarize_variables",
    "summarize_weights",
    "unit_norm",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]
