from __future__ import annotations

import inspect
import re
import sys

import pytest
import tensorflow as tf

from slimexp import nets
from slimexp.nets.network import reduced_kernel_size

NETS = [getattr(nets, name) for name in nets.__all__ if hasattr(getattr(nets, name), "head_scopes")]


def test_all_networks_are_there():
    resnets = {f"resnet_v{version}_{depth}" for version in (1, 2) for depth in (50, 101, 152, 200)}
    plain = {"alexnet_v2", "cifarnet", "lenet", "overfeat", "vgg_16", "vgg_19", "vgg_a"}
    assert {net.__name__ for net in NETS} == resnets | plain | {"inception_v1", "inception_v2", "inception_v3"}


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_every_network_says_what_a_trainer_asks(net):
    assert inspect.isfunction(net)
    assert 1 <= net.min_image_size <= net.default_image_size
    assert "weight_decay" in inspect.signature(net.arg_scope).parameters
    third = "global_pool" if net.__name__.startswith("resnet") else "dropout_keep_prob"
    assert list(inspect.signature(net).parameters)[1:4] == ["num_classes", "is_training", third]
    assert re.search(r"arXiv|before arXiv", sys.modules[net.__module__].__doc__)
    assert net.__doc__.startswith("Builds ")
    root = inspect.signature(net).parameters["scope"].default
    assert all(scope.startswith(f"{root}/") for scope in net.head_scopes)
    assert net.head_scopes


def test_kernels_shrink_with_a_known_map():
    with tf.Graph().as_default():
        images = tf.compat.v1.placeholder(tf.float32, [None, 3, None, 8])
        assert reduced_kernel_size(images, [7, 7]) == [3, 7]
