from __future__ import annotations

import inspect

import pytest
import tensorflow as tf

from slimexp import nets
from slimexp.nets.network import reduced_kernel_size

NETS = [nets.lenet, nets.cifarnet, nets.vgg_a, nets.vgg_16, nets.vgg_19, nets.inception_v1, nets.inception_v3]


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_every_network_says_what_a_trainer_asks(net):
    assert inspect.isfunction(net)
    assert 1 <= net.min_image_size <= net.default_image_size
    assert "weight_decay" in inspect.signature(net.arg_scope).parameters
    assert list(inspect.signature(net).parameters)[1:4] == ["num_classes", "is_training", "dropout_keep_prob"]
    root = inspect.signature(net).parameters["scope"].default
    assert all(scope.startswith(f"{root}/") for scope in net.head_scopes)
    assert net.head_scopes


def test_kernels_shrink_with_a_known_map():
    with tf.Graph().as_default():
        images = tf.compat.v1.placeholder(tf.float32, [None, 3, None, 8])
        assert reduced_kernel_size(images, [7, 7]) == [3, 7]
