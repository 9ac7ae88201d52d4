from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp import nets, slim

v1 = tf.compat.v1


def test_networks_are_where_scripts_of_old_look_for_them():
    assert slim.nets.vgg.vgg_d is slim.nets.vgg.vgg_16
    assert slim.nets.vgg.vgg_e is slim.nets.vgg.vgg_19
    assert slim.nets.vgg.vgg_a.default_image_size == 224
    assert slim.nets.vgg.vgg_16.head_scopes == nets.vgg_16.head_scopes
    assert slim.nets.alexnet.alexnet_v2 is nets.alexnet_v2
    assert slim.nets.overfeat.overfeat is nets.overfeat
    assert slim.nets.inception.inception_v3 is slim.nets.inception_v3.inception_v3 is nets.inception_v3
    assert slim.nets.lenet.lenet is nets.lenet
    assert slim.nets.cifarnet.cifarnet is nets.cifarnet
    assert (
        slim.nets.resnet_v1.resnet_v1.default_image_size == slim.nets.resnet_v2.resnet_v2_50.default_image_size == 224
    )


def test_slim_itself_knows_nothing_of_the_networks():
    package = Path(slim.__file__).parent
    for path in package.rglob("*.py"):
        if path.parent.name != "nets":
            assert "slimexp.nets" not in path.read_text(), path
    with pytest.raises(AttributeError, match=r"module 'slimexp\.slim' has no attribute 'net'"):
        _ = slim.net


@pytest.mark.parametrize("version", [1, 2])
def test_residual_networks_keep_their_logits_spatial(version):
    module = getattr(slim.nets, f"resnet_v{version}")
    net = getattr(module, f"resnet_v{version}_50")
    assert net.__name__ == f"resnet_v{version}_50"
    with tf.Graph().as_default(), slim.arg_scope(module.resnet_arg_scope()):
        logits, end_points = net(tf.ones([2, 33, 33, 3]), 5, True, False, 8, None, "own")
        assert logits.shape == (2, 5, 5, 5)
        assert "own/block4" in end_points
        block = getattr(module, f"resnet_v{version}_block")("block1", 4, 1, 1)
        small, _ = getattr(module, f"resnet_v{version}")(tf.ones([2, 33, 33, 3]), [block], 5, scope="small")
        assert small.shape == (2, 1, 1, 5)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_inception_arg_scopes_collect_moving_averages(version):
    module = getattr(slim.nets, f"inception_v{version}")
    with tf.Graph().as_default():
        with slim.arg_scope(getattr(module, f"inception_v{version}_arg_scope")(batch_norm_var_collection="averages")):
            getattr(module, f"inception_v{version}_base")(
                tf.ones([2, 80, 80, 3]), "Conv2d_2b_1x1" if version < 3 else "Conv2d_2a_3x3"
            )
        names = {v.op.name.rpartition("/")[2] for v in v1.get_collection("averages")}
        assert names == {"moving_mean", "moving_variance"}
        assert len(slim.losses.get_regularization_losses()) in (1, 2)


def test_arg_scopes_take_what_the_librarys_took():
    with tf.Graph().as_default():
        with slim.arg_scope(slim.nets.inception_v1.inception_v1_arg_scope(0.0, use_batch_norm=False)):
            slim.nets.inception_v1.inception_v1_base(tf.ones([2, 32, 32, 3]), "Conv2d_1a_7x7")
        assert [v.op.name for v in slim.get_model_variables()][1] == "InceptionV1/Conv2d_1a_7x7/biases"
    with tf.Graph().as_default():
        scope = slim.nets.inception_v3.inception_v3_arg_scope(
            batch_norm_decay=0.5, batch_norm_epsilon=0.1, updates_collections=None, use_fused_batchnorm=False
        )
        with slim.arg_scope(scope):
            slim.nets.inception_v3.inception_v3_base(tf.ones([2, 80, 80, 3]), "Conv2d_1a_3x3")
        assert v1.get_collection(v1.GraphKeys.UPDATE_OPS) == []
        types = {op.type for op in v1.get_default_graph().get_operations()}
        assert not any(op_type.startswith("FusedBatchNorm") for op_type in types)


@pytest.mark.parametrize(
    ("module", "net", "arguments"),
    [
        ("vgg", "vgg_a", (5, True, 0.5, False, "own")),
        ("inception_v1", "inception_v1_base", ("Conv2d_1a_7x7", "own")),
        ("inception_v2", "inception_v2_base", ("Conv2d_1a_7x7", 16, 1.0, "own")),
        ("inception_v3", "inception_v3_base", ("Conv2d_1a_3x3", 16, 1.0, "own")),
    ],
)
def test_scope_comes_where_the_library_had_it(module, net, arguments):
    with tf.Graph().as_default():
        getattr(getattr(slim.nets, module), net)(tf.ones([2, 32, 32, 3]), *arguments)
        assert all(v.op.name.startswith("own/") for v in slim.get_model_variables())
        assert slim.get_model_variables()


def test_arguments_that_the_library_lacked_come_behind():
    with tf.Graph().as_default():
        for module in (slim.nets.inception_v1, slim.nets.inception_v2):
            base = getattr(module, module.__name__.rpartition(".")[2] + "_base")
            _, end_points = base(tf.ones([2, 16, 16, 192]), "Mixed_3b", include_root_block=False)
            assert list(end_points) == ["Mixed_3b"]


@pytest.mark.parametrize("module", ["alexnet", "inception_v1", "inception_v2", "inception_v3", "overfeat"])
def test_the_initializer_that_scripts_take_from_the_networks(module):
    with tf.Graph().as_default(), v1.Session() as session:
        values = session.run(getattr(slim.nets, module).trunc_normal(0.5)([1000]))
    assert 0.35 < values.std() < 0.5
    assert np.abs(values).max() <= 1.0
