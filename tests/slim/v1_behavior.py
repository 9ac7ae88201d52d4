"""A program of old, which begins with `disable_v2_behavior`, through most of the library.

There, items of shapes are `Dimension`s and variables are ref variables. It is switched off for a whole process, so
`test_v1_behavior.py` runs this file in one of its own:

    python -m tests.slim.v1_behavior FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from slimexp import nets, slim

IMAGES = np.random.RandomState(0).uniform(-1, 1, [4, 16, 16, 4]).astype(np.float32)
LABELS = [0, 2, 1, 2]

LAYERS = {
    "avg_pool2d": lambda x: slim.avg_pool2d(x, [2, 2]),
    "avg_pool2d_of_shape": lambda x: slim.avg_pool2d(x, x.get_shape()[1:3]),
    "batch_norm": slim.batch_norm,
    "batch_norm_fused": lambda x: slim.batch_norm(x, fused=True),
    "batch_norm_renorm": lambda x: slim.batch_norm(x, renorm=True, zero_debias_moving_mean=True),
    "bias_add": slim.bias_add,
    "conv2d": lambda x: slim.conv2d(x, 3, [3, 3], normalizer_fn=slim.batch_norm),
    "conv2d_in_plane": lambda x: slim.conv2d_in_plane(x, [3, 3]),
    "conv2d_transpose": lambda x: slim.conv2d_transpose(x, 3, [3, 3], stride=2),
    "dropout": slim.dropout,
    "flatten": slim.flatten,
    "fully_connected": lambda x: slim.fully_connected(x, 3),
    "gdn": slim.gdn,
    "group_norm": lambda x: slim.group_norm(x, 2),
    "images_to_sequence": slim.images_to_sequence,
    "instance_norm": slim.instance_norm,
    "layer_norm": slim.layer_norm,
    "legacy_fully_connected": lambda x: slim.legacy_fully_connected(x, 3),
    "max_pool2d": lambda x: slim.max_pool2d(x, [2, 2]),
    "maxout": lambda x: slim.maxout(x, 2),
    "pool": lambda x: slim.pool(x, [2, 2], "MAX"),
    "repeat": lambda x: slim.repeat(x, 2, slim.conv2d, 3, [3, 3]),
    "separable_conv2d": lambda x: slim.separable_conv2d(x, 3, [3, 3], 2),
    "softmax": slim.softmax,
    "spatial_softmax": slim.spatial_softmax,
    "stack": lambda x: slim.stack(x, slim.fully_connected, [3, 2]),
    "unit_norm": lambda x: slim.unit_norm(x, 3),
}

# They take images of any size, which nothing knows while the graph is built; the other networks have dense layers.
ANY_SIZE = [
    slim.nets.alexnet.alexnet_v2,
    slim.nets.inception.inception_v1,
    slim.nets.inception.inception_v2,
    slim.nets.inception.inception_v3,
    slim.nets.overfeat.overfeat,
    slim.nets.resnet_v1.resnet_v1_50,
    slim.nets.resnet_v2.resnet_v2_50,
    slim.nets.vgg.vgg_16,
    slim.nets.vgg.vgg_19,
    slim.nets.vgg.vgg_a,
]


def run(*fetches):
    """Runs in a session with all variables at their start."""
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return [session.run(fetch) for fetch in fetches]


def check_layers() -> None:
    for name, layer in LAYERS.items():
        for static in ([4, 16, 16, 4], [None, 16, 16, 4], [None, None, None, 4]):
            if static[1] is None and name in ("avg_pool2d_of_shape", "group_norm", "layer_norm"):
                continue
            with tf.Graph().as_default():
                x = tf.placeholder_with_default(IMAGES, static)
                y = layer(x)
                (value,) = run(y)
                assert y.shape.is_compatible_with(value.shape), name
                assert np.isfinite(value).all(), name


def check_messages() -> None:
    unknown = tf.placeholder(tf.float32, [None, 8, 8, None])
    for layer in ("conv2d", "bias_add", "batch_norm", "legacy_fully_connected", "gdn", "maxout"):
        with pytest.raises(ValueError, match="undefined channels dimension"):
            LAYERS[layer](unknown)
    with pytest.raises(ValueError, match="The last dimension of the inputs must be known"):
        slim.fully_connected(unknown, 3)
    with pytest.raises(ValueError, match=r"kernel_size=.* must be known while the graph is built"):
        slim.max_pool2d(unknown, unknown.shape[2:])
    with pytest.raises(ValueError, match="Height and width must be one integer or two"):
        slim.utils.two_element_tuple(unknown.shape[2:])
    with pytest.raises(ValueError, match="k, must be known"):
        slim.metrics.streaming_sparse_average_precision_at_top_k(tf.placeholder(tf.int64, [4, None]), [[1]] * 4)
    with pytest.raises(ValueError, match="vgg_16: images of 16 x 300 pixels are too small"):
        slim.nets.vgg.vgg_16(tf.zeros([1, 16, 300, 3]))
    with pytest.raises(ValueError, match="images of 256 x None pixels give a map of 2 x None logits"):
        slim.nets.vgg.vgg_16(tf.placeholder(tf.float32, [1, 256, None, 3]))


def check_nets() -> None:
    for net in ANY_SIZE:
        with tf.Graph().as_default():
            logits, _ = net(tf.placeholder(tf.float32, [None, None, None, 3]), 7, is_training=False)
            assert logits.shape.as_list()[-1] == 7, net.__name__
    for net in (nets.lenet, nets.cifarnet):
        with tf.Graph().as_default():
            size = net.default_image_size
            logits, _ = net(tf.placeholder(tf.float32, [None, size, size, 3]), 7)
            assert logits.shape.as_list() == [None, 7]
    with tf.Graph().as_default():
        # Where sizes are known, windows shrink with them.
        logits, _ = slim.nets.inception.inception_v3(tf.zeros([2, 107, 107, 3]), 7)
        assert logits.shape.as_list() == [2, 7]
        assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2 * len(slim.get_variables_by_suffix("moving_mean"))


def check_losses() -> None:
    logits = tf.placeholder_with_default(IMAGES[:, 0, 0, :3], [None, 3])
    one_hot = slim.one_hot_encoding(LABELS, 3)
    weights = tf.placeholder_with_default(np.ones([4, 1], np.float32), [None, None])
    column = tf.placeholder_with_default(np.ones([4, 1], np.float32), [None, 1])
    losses = [
        slim.losses.softmax_cross_entropy(logits, one_hot),
        slim.losses.softmax_cross_entropy(logits, one_hot, weights),
        slim.losses.softmax_cross_entropy(logits, one_hot, column, label_smoothing=0.1),
        slim.losses.sparse_softmax_cross_entropy(logits, tf.constant(LABELS)),
        slim.losses.sigmoid_cross_entropy(logits, one_hot, column),
        slim.losses.log_loss(slim.softmax(logits), one_hot),
        slim.losses.mean_squared_error(logits, one_hot, [1.0, 0.0, 1.0, 1.0]),
        slim.losses.sum_of_squares(logits, one_hot),
        slim.losses.absolute_difference(logits, one_hot),
        slim.losses.mean_pairwise_squared_error(logits, one_hot),
        slim.losses.cosine_distance(slim.unit_norm(logits, 1), one_hot, 1),
        slim.losses.compute_weighted_loss(tf.ones([2, 3])),
        slim.losses.compute_weighted_loss(tf.ones([2, 0])),
    ]
    assert slim.losses.hinge_loss(logits, one_hot).shape.as_list() == [4, 3]
    (values,) = run([*losses, slim.losses.get_total_loss()])
    assert np.isfinite(values).all()
    np.testing.assert_allclose(values[-1], sum(values[:-1]), rtol=1e-5)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


def check_metrics() -> None:
    scores = tf.nn.softmax(IMAGES[:, 0, 0, :3])
    predictions, labels = tf.argmax(scores, 1), tf.constant(LABELS, tf.int64)
    right = tf.equal(predictions, labels)
    m = slim.metrics
    pairs = {
        "accuracy": m.streaming_accuracy(predictions, labels),
        "auc": m.streaming_auc(scores[:, 0], right),
        "dynamic_auc": m.streaming_dynamic_auc(tf.cast(right, tf.int64), scores[:, 0]),
        "average_precision": m.streaming_sparse_average_precision_at_k(scores, labels[:, tf.newaxis], 2),
        "average_precision_top": m.streaming_sparse_average_precision_at_top_k(
            tf.nn.top_k(scores, 2)[1], labels[:, tf.newaxis]
        ),
        "concat": m.streaming_concat(scores),
        "covariance": m.streaming_covariance(scores, scores),
        "kappa": m.cohen_kappa(
            labels[:, tf.newaxis], tf.placeholder_with_default(np.array([[0], [1], [1], [2]]), [None, None]), 3
        ),
        "mean": m.streaming_mean(scores),
        "mean_iou": m.streaming_mean_iou(predictions, labels, 3),
        "mean_tensor": m.streaming_mean_tensor(scores),
        "precision": m.streaming_precision(right, right),
        "recall_at_k": m.streaming_recall_at_k(scores, labels, 2),
        "squared_error": m.streaming_mean_squared_error(scores, tf.one_hot(labels, 3)),
    }
    values, updates = m.aggregate_metric_map(pairs)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        session.run(list(updates.values()))
        found = session.run(values)
    np.testing.assert_allclose(found["average_precision"], found["average_precision_top"], rtol=1e-6)
    assert found["concat"].shape == (4, 3)
    # Classes 0, 2, 1, 2 against 0, 1, 1, 2: three of four agree, by chance 5/16 would.
    np.testing.assert_allclose(found["kappa"], (3 / 4 - 5 / 16) / (1 - 5 / 16), rtol=1e-6)


def check_the_loss_is_that_before_the_step() -> None:
    for check_numerics in (True, False):
        with tf.Graph().as_default():
            w = slim.variable("w", [], initializer=tf.ones_initializer())
            # Its gradient, 2 w, can be had without it.
            slim.losses.add_loss(tf.square(w))
            train_op = slim.learning.create_train_op(
                slim.losses.get_total_loss(), tf.train.GradientDescentOptimizer(0.25), check_numerics=check_numerics
            )
            np.testing.assert_allclose(run(*[train_op] * 4), [1, 1 / 4, 1 / 16, 1 / 64])


def check_training(folder: str) -> None:
    def model(is_training: bool):
        net = slim.conv2d(IMAGES, 4, [3, 3], normalizer_fn=slim.batch_norm, normalizer_params={"decay": 0.5})
        net = slim.dropout(slim.flatten(slim.max_pool2d(net, [2, 2])), is_training=is_training)
        return slim.fully_connected(net, 3, activation_fn=None, scope="logits")

    def train_op(**kwargs):
        slim.losses.softmax_cross_entropy(model(True), slim.one_hot_encoding(LABELS, 3))
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        assert len({update.op.name for update in updates}) == 2
        return slim.learning.create_train_op(
            slim.losses.get_total_loss(),
            tf.train.MomentumOptimizer(0.1, 0.9),
            summarize_gradients=True,
            gradient_multipliers={"logits/weights": 2.0},
            clip_gradient_norm=1.0,
            **kwargs,
        )

    with tf.Graph().as_default():
        first = slim.learning.train(train_op(), folder, number_of_steps=5, save_summaries_secs=1, save_interval_secs=1)
        slim.model_analyzer.analyze_vars(slim.get_model_variables())
    with tf.Graph().as_default():
        last = slim.learning.train(train_op(), folder, number_of_steps=40, log_every_n_steps=0)
    assert last < first
    path = tf.train.latest_checkpoint(folder)
    assert path == str(Path(folder) / "model.ckpt-40")
    with tf.Graph().as_default():
        predictions = tf.argmax(model(False), 1)
        value, update = slim.metrics.streaming_accuracy(predictions, tf.constant(LABELS, tf.int64))
        slim.get_or_create_global_step()
        slim.evaluation.evaluate_once("", path, folder + "/eval", num_evals=1, eval_op=update, final_op=value)
    with tf.Graph().as_default():
        model(False)
        restore = slim.assign_from_checkpoint_fn(path, slim.get_variables_to_restore(exclude=["logits"]))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            restore(session)


def main(folder: str) -> None:
    tf.disable_v2_behavior()
    assert isinstance(tf.zeros([2]).shape[0], tf.Dimension)
    checks = [check_layers, check_messages, check_nets, check_losses, check_metrics]
    for check in [*checks, check_the_loss_is_that_before_the_step]:
        with tf.Graph().as_default():
            check()
    check_training(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
