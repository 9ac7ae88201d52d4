"""Networks: functions from images to logits and end points, with TF-Slim's scopes and variable names."""

from __future__ import annotations

from slimexp.nets.alexnet import alexnet_v2, alexnet_v2_arg_scope
from slimexp.nets.cifarnet import cifarnet, cifarnet_arg_scope
from slimexp.nets.inception_utils import inception_arg_scope
from slimexp.nets.inception_v1 import inception_v1, inception_v1_arg_scope, inception_v1_base
from slimexp.nets.inception_v2 import inception_v2, inception_v2_arg_scope, inception_v2_base
from slimexp.nets.inception_v3 import inception_v3, inception_v3_arg_scope, inception_v3_base
from slimexp.nets.lenet import lenet, lenet_arg_scope
from slimexp.nets.network import Network
from slimexp.nets.overfeat import overfeat, overfeat_arg_scope
from slimexp.nets.resnet_utils import resnet_arg_scope
from slimexp.nets.resnet_v1 import resnet_v1_50, resnet_v1_101, resnet_v1_152, resnet_v1_200
from slimexp.nets.resnet_v2 import resnet_v2_50, resnet_v2_101, resnet_v2_152, resnet_v2_200
from slimexp.nets.vgg import vgg_16, vgg_19, vgg_a, vgg_arg_scope

__all__ = [
    "Network",
    "alexnet_v2",
    "alexnet_v2_arg_scope",
    "cifarnet",
    "cifarnet_arg_scope",
    "inception_arg_scope",
    "inception_v1",
    "inception_v1_arg_scope",
    "inception_v1_base",
    "inception_v2",
    "inception_v2_arg_scope",
    "inception_v2_base",
    "inception_v3",
    "inception_v3_arg_scope",
    "inception_v3_base",
    "lenet",
    "lenet_arg_scope",
    "overfeat",
    "overfeat_arg_scope",
    "resnet_arg_scope",
    "resnet_v1_50",
    "resnet_v1_101",
    "resnet_v1_152",
    "resnet_v1_200",
    "resnet_v2_50",
    "resnet_v2_101",
    "resnet_v2_152",
    "resnet_v2_200",
    "vgg_16",
    "vgg_19",
    "vgg_a",
    "vgg_arg_scope",
]
