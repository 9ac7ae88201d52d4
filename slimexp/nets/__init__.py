"""Networks: functions from images to logits and end points, with TF-Slim's scopes and variable names."""

from __future__ import annotations

from slimexp.nets.cifarnet import cifarnet, cifarnet_arg_scope
from slimexp.nets.inception_utils import inception_arg_scope
from slimexp.nets.inception_v1 import inception_v1, inception_v1_arg_scope, inception_v1_base
from slimexp.nets.inception_v3 import inception_v3, inception_v3_arg_scope, inception_v3_base
from slimexp.nets.lenet import lenet, lenet_arg_scope
from slimexp.nets.network import Network
from slimexp.nets.vgg import vgg_16, vgg_19, vgg_a, vgg_arg_scope

__all__ = [
    "Network",
    "cifarnet",
    "cifarnet_arg_scope",
    "inception_arg_scope",
    "inception_v1",
    "inception_v1_arg_scope",
    "inception_v1_base",
    "inception_v3",
    "inception_v3_arg_scope",
    "inception_v3_base",
    "lenet",
    "lenet_arg_scope",
    "vgg_16",
    "vgg_19",
    "vgg_a",
    "vgg_arg_scope",
]
