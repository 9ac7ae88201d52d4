"""TF-Slim's way of writing networks, on current TensorFlow.

In a graph of old, with `tf.compat.v1` as `tf`, everything works as scripts for TF-Slim expect it: collections, Savers,
Sessions. The same functions work inside `tf.function` under a `tf.distribute` strategy, with a `VariableStore`:

    from slimexp import slim

    with slim.arg_scope([slim.conv2d], weights_regularizer=slim.l2_regularizer(5e-4)):
        net = slim.repeat(images, 2, slim.conv2d, 64, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2], scope="pool1")
"""

from __future__ import annotations

from slimexp.slim import learning, losses, training, utils
from slimexp.slim.arg_scopes import (
    add_arg_scope,
    arg_scope,
    arg_scope_func_key,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)
from slimexp.slim.assignments import (
    assign_from_checkpoint,
    assign_from_checkpoint_fn,
    assign_from_values,
    assign_from_values_fn,
)
from slimexp.slim.collecting import Collected, collected
from slimexp.slim.global_step import (
    assert_global_step,
    assert_or_get_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
)
from slimexp.slim.initializers import (
    variance_scaling_initializer,
    xavier_initializer,
    xavier_initializer_conv2d,
)
from slimexp.slim.layers import (
    avg_pool2d,
    batch_norm,
    bias_add,
    conv1d,
    conv2d,
    conv3d,
    convolution,
    convolution1d,
    convolution2d,
    convolution3d,
    dropout,
    flatten,
    fully_connected,
    linear,
    max_pool2d,
    one_hot_encoding,
    relu,
    relu6,
    repeat,
    scale_gradient,
    softmax,
    stack,
    unit_norm,
)
from slimexp.slim.randomness import stateless_randomness
from slimexp.slim.regularizers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)
from slimexp.slim.store import VariableStore
from slimexp.slim.variables import (
    VariableDeviceChooser,
    add_model_variable,
    filter_variables,
    get_local_variables,
    get_model_variables,
    get_trainable_variables,
    get_unique_variable,
    get_variable_full_name,
    get_variables,
    get_variables_by_name,
    get_variables_by_suffix,
    get_variables_to_restore,
    global_variable,
    local_variable,
    model_variable,
    variable,
)

__all__ = [
    "Collected",
    "VariableDeviceChooser",
    "VariableStore",
    "add_arg_scope",
    "add_model_variable",
    "apply_regularization",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "assert_global_step",
    "assert_or_get_global_step",
    "assign_from_checkpoint",
    "assign_from_checkpoint_fn",
    "assign_from_values",
    "assign_from_values_fn",
    "avg_pool2d",
    "batch_norm",
    "bias_add",
    "collected",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution3d",
    "create_global_step",
    "current_arg_scope",
    "dropout",
    "filter_variables",
    "flatten",
    "fully_connected",
    "get_global_step",
    "get_local_variables",
    "get_model_variables",
    "get_or_create_global_step",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variable_full_name",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "global_variable",
    "has_arg_scope",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "learning",
    "linear",
    "local_variable",
    "losses",
    "max_pool2d",
    "model_variable",
    "one_hot_encoding",
    "relu",
    "relu6",
    "repeat",
    "scale_gradient",
    "softmax",
    "stack",
    "stateless_randomness",
    "sum_regularizer",
    "training",
    "unit_norm",
    "utils",
    "variable",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]
