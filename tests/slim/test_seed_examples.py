"""The examples of an introduction to TF-Slim, as its readers type them in, with nothing but the imports changed.

Where the text leaves shapes and data open they are small here. Changed as obvious slips of the text: commas and line
breaks that were lost, `vgg.vgg16` for `vgg.vgg_16`, the second result of that, and the scope in front of `fc6`.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from slimexp import slim

vgg = slim.nets.vgg


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(0)
        yield graph


def load_data():
    rng = np.random.RandomState(0)
    inputs = rng.rand(16, 4).astype(np.float32)
    return tf.constant(inputs), tf.constant((inputs[:, :1] > 0.5).astype(np.float32))


def my_model(inputs):
    return slim.fully_connected(inputs, 1, activation_fn=tf.sigmoid)


def names(variables):
    return [v.op.name for v in variables]


def test_variables():
    weights = slim.variable(
        "weights",
        shape=[10, 10, 3, 3],
        initializer=tf.truncated_normal_initializer(stddev=0.1),
        regularizer=slim.l2_regularizer(0.05),
        device="/CPU:0",
    )
    assert weights.shape == [10, 10, 3, 3]
    assert weights.device == "/device:CPU:0"
    assert slim.get_model_variables() == []
    assert len(slim.losses.get_regularization_losses()) == 1


def test_model_variables():
    weights = slim.model_variable(
        "weights",
        shape=[10, 10, 3, 3],
        initializer=tf.truncated_normal_initializer(stddev=0.1),
        regularizer=slim.l2_regularizer(0.05),
        device="/CPU:0",
    )
    model_variables = slim.get_model_variables()
    assert model_variables[0] is weights
    slim.variable("my_var", shape=[20, 1], initializer=tf.zeros_initializer())
    regular_variables_and_model_variables = slim.get_variables()
    assert names(regular_variables_and_model_variables) == ["weights", "my_var"]

    my_model_variable = tf.get_variable("custom", [2])
    slim.add_model_variable(my_model_variable)
    assert names(slim.get_model_variables()) == ["weights", "custom"]


def test_repeat_and_stack():
    net = tf.zeros([1, 4, 4, 256])
    net = slim.repeat(net, 3, slim.conv2d, 256, [3, 3], scope="conv3")
    assert names(slim.get_variables(suffix="weights")) == [f"conv3/conv3_{i}/weights" for i in (1, 2, 3)]

    x = tf.zeros([2, 8])
    slim.stack(x, slim.fully_connected, [32, 64, 128], scope="fc")
    x = tf.zeros([1, 4, 4, 3])
    out = slim.stack(x, slim.conv2d, [(32, [3, 3]), (32, [1, 1]), (64, [3, 3]), (64, [1, 1])], scope="core")
    assert out.shape == [1, 4, 4, 64]
    assert names(slim.get_variables("fc/", suffix="biases")) == [f"fc/fc_{i}/biases" for i in (1, 2, 3)]
    assert names(slim.get_variables("core/", suffix="biases")) == [f"core/core_{i}/biases" for i in (1, 2, 3, 4)]


def test_arg_scope():
    inputs = tf.zeros([1, 32, 32, 3])
    with slim.arg_scope(
        [slim.conv2d],
        padding="SAME",
        weights_initializer=tf.truncated_normal_initializer(stddev=0.01),
        weights_regularizer=slim.l2_regularizer(0.0005),
    ):
        net = slim.conv2d(inputs, 64, [11, 11], scope="conv1")
        net = slim.conv2d(net, 128, [11, 11], padding="VALID", scope="conv2")
        net = slim.conv2d(net, 256, [11, 11], scope="conv3")
    assert net.shape == [1, 22, 22, 256]
    assert len(slim.losses.get_regularization_losses()) == 3


def test_a_positional_stride_overrides_that_of_the_scope():
    inputs = tf.zeros([1, 32, 32, 3])
    # The text writes them as two blocks.
    with slim.arg_scope(  # noqa: SIM117
        [slim.conv2d, slim.fully_connected],
        activation_fn=tf.nn.relu,
        weights_initializer=tf.truncated_normal_initializer(stddev=0.01),
        weights_regularizer=slim.l2_regularizer(0.0005),
    ):
        with slim.arg_scope([slim.conv2d], stride=1, padding="SAME"):
            net = slim.conv2d(inputs, 64, [11, 11], 4, padding="VALID", scope="conv1")
            assert net.shape == [1, 6, 6, 64]
            net = slim.conv2d(
                net, 256, [5, 5], weights_initializer=tf.truncated_normal_initializer(stddev=0.03), scope="conv2"
            )
            assert net.shape == [1, 6, 6, 256]
            net = slim.fully_connected(net, 1000, activation_fn=None, scope="fc")
    assert net.shape == [1, 6, 6, 1000]
    assert net.op.type != "Relu"


def vgg16(inputs):
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        activation_fn=tf.nn.relu,
        weights_initializer=tf.truncated_normal_initializer(0.0, 0.01),
        weights_regularizer=slim.l2_regularizer(0.0005),
    ):
        net = slim.repeat(inputs, 2, slim.conv2d, 64, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2], scope="pool1")
        net = slim.repeat(net, 2, slim.conv2d, 128, [3, 3], scope="conv2")
        net = slim.max_pool2d(net, [2, 2], scope="pool2")
        net = slim.repeat(net, 3, slim.conv2d, 256, [3, 3], scope="conv3")
        net = slim.max_pool2d(net, [2, 2], scope="pool3")
        net = slim.repeat(net, 3, slim.conv2d, 512, [3, 3], scope="conv4")
        net = slim.max_pool2d(net, [2, 2], scope="pool4")
        net = slim.repeat(net, 3, slim.conv2d, 512, [3, 3], scope="conv5")
        net = slim.max_pool2d(net, [2, 2], scope="pool5")
        net = slim.fully_connected(net, 4096, scope="fc6")
        net = slim.dropout(net, 0.5, scope="dropout6")
        net = slim.fully_connected(net, 4096, scope="fc7")
        net = slim.dropout(net, 0.5, scope="dropout7")
        net = slim.fully_connected(net, 1000, activation_fn=None, scope="fc8")
    return net  # noqa: RET504


def test_vgg16_written_with_the_layers():
    assert vgg16(tf.zeros([2, 224, 224, 3])).shape == [2, 7, 7, 1000]
    weights = names(slim.get_model_variables(suffix="weights"))
    assert len(weights) == 16
    assert weights[:2] == ["conv1/conv1_1/weights", "conv1/conv1_2/weights"]
    assert len(slim.losses.get_regularization_losses()) == 16


def test_losses_of_several_tasks():
    scene_predictions, depth_predictions = tf.constant([[2.0, 0.0]]), tf.constant([[1.0, 4.0]])
    scene_labels, depth_labels = tf.constant([[1.0, 0.0]]), tf.constant([[2.0, 2.0]])
    classification_loss = slim.losses.softmax_cross_entropy(scene_predictions, scene_labels)
    sum_of_squares_loss = slim.losses.sum_of_squares(depth_predictions, depth_labels)
    total_loss = classification_loss + sum_of_squares_loss
    same_loss = slim.losses.get_total_loss(add_regularization_losses=False)
    with tf.Session() as sess:
        total, same, squares = sess.run([total_loss, same_loss, sum_of_squares_loss])
        assert total == same
        assert squares == 2.5

        pose_loss = tf.constant(3.0)
        slim.losses.add_loss(pose_loss)
        total_loss = slim.losses.get_total_loss()
        assert sess.run(total_loss) == pytest.approx(total + 3)


def test_training(tmp_path):
    g = tf.Graph()
    with g.as_default():
        images, labels = load_data()
        slim.losses.log_loss(my_model(images), labels)
        total_loss = slim.losses.get_total_loss()
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        train_op = slim.learning.create_train_op(total_loss, optimizer)
        logdir = str(tmp_path)
        loss = slim.learning.train(
            train_op, logdir, number_of_steps=10, save_summaries_secs=300, save_interval_secs=600
        )
    assert loss < 1
    assert tf.train.latest_checkpoint(logdir).endswith("model.ckpt-10")


def test_training_with_momentum(tmp_path):
    images, labels = load_data()
    predictions = my_model(images)
    slim.losses.log_loss(predictions, labels)
    total_loss = slim.losses.get_total_loss()
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    train_op = slim.learning.create_train_op(total_loss, optimizer)
    assert slim.learning.train(train_op, str(tmp_path), number_of_steps=2) > 0


@pytest.mark.parametrize("which", ["third", "none", "other", "collection", "same"])
def test_update_ops(which):
    images, labels = load_data()
    slim.losses.log_loss(my_model(slim.batch_norm(images, decay=0.5)), labels)
    counter = slim.local_variable(0.0)
    total_loss = slim.losses.get_total_loss()
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    my_update0 = counter.assign_add(1.0)
    if which == "third":
        train_op = slim.learning.create_train_op(total_loss, optimizer, [my_update0])
    elif which == "none":
        train_op = slim.learning.create_train_op(total_loss, optimizer, update_ops=[])
    elif which == "other":
        train_op = slim.learning.create_train_op(total_loss, optimizer, update_ops=[my_update0])
    else:
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, my_update0)
        update_ops = {"collection": None, "same": tf.get_collection(tf.GraphKeys.UPDATE_OPS)}[which]
        train_op = slim.learning.create_train_op(total_loss, optimizer, update_ops=update_ops)
    (moving_mean,) = slim.get_variables_by_name("moving_mean")
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        sess.run(train_op)
        counted, mean, step = sess.run([counter, moving_mean, slim.get_global_step()])
    assert counted == (0 if which == "none" else 1)
    assert mean.any() == (which in ("collection", "same"))
    assert step == 1


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """The checkpoint of the example that trains VGG-16 from nothing."""
    train_log_dir = str(tmp_path_factory.mktemp("imagenet") / "log")
    if not tf.gfile.Exists(train_log_dir):
        tf.gfile.MakeDirs(train_log_dir)
    with tf.Graph().as_default():
        images, labels = tf.zeros([1, 32, 32, 3]), tf.one_hot([3], 1000)
        predictions, _ = vgg.vgg_16(images, is_training=True)
        slim.losses.softmax_cross_entropy(predictions, labels)
        total_loss = slim.losses.get_total_loss()
        tf.summary.scalar("losses/total_loss", total_loss)
        optimizer = tf.train.GradientDescentOptimizer(learning_rate=0.001)
        train_tensor = slim.learning.create_train_op(total_loss, optimizer)
        # What the text leaves to the defaults would train for ever, and save 130 MB twice.
        loss = slim.learning.train(train_tensor, train_log_dir, number_of_steps=1, save_interval_secs=0)
    assert loss == pytest.approx(np.log(1000), rel=0.1)
    return tf.train.latest_checkpoint(train_log_dir)


def test_fine_tuning_onto_another_task(pretrained, tmp_path):
    image, label = tf.zeros([32, 32, 3]), tf.one_hot(7, 20)
    images, labels = tf.train.batch([image, label], batch_size=2)
    predictions, _ = vgg.vgg_16(images, num_classes=20)
    slim.losses.softmax_cross_entropy(predictions, labels)
    train_op = slim.learning.create_train_op(slim.losses.get_total_loss(), tf.train.GradientDescentOptimizer(0.0))
    model_path = pretrained
    log_dir = str(tmp_path / "my_pascal_model_dir")
    variables_to_restore = slim.get_variables_to_restore(
        include=["vgg_16"], exclude=["vgg_16/fc6", "vgg_16/fc7", "vgg_16/fc8"]
    )
    assert len(variables_to_restore) == 26
    init_fn = slim.assign_from_checkpoint_fn(model_path, variables_to_restore)
    slim.learning.train(train_op, log_dir, init_fn=init_fn, number_of_steps=1, save_interval_secs=0)
    old, new = tf.train.load_checkpoint(model_path), tf.train.load_checkpoint(tf.train.latest_checkpoint(log_dir))
    for name, same in (("conv5/conv5_3", True), ("fc7", False)):
        equal = np.array_equal(old.get_tensor(f"vgg_16/{name}/weights"), new.get_tensor(f"vgg_16/{name}/weights"))
        assert equal == same
    assert new.get_tensor("vgg_16/fc8/weights").shape == (1, 1, 4096, 20)


def test_restoring_with_a_saver(tmp_path):
    v1 = tf.Variable([1.0, 2.0], name="v1")
    v2 = tf.Variable([3.0], name="v2")
    path = str(tmp_path / "model.ckpt")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, path)
    for restorer in (tf.train.Saver(), tf.train.Saver([v1, v2])):
        with tf.Session() as sess:
            restorer.restore(sess, path)
            np.testing.assert_array_equal(sess.run(v1), [1, 2])
            np.testing.assert_array_equal(sess.run(v2), [3])


def test_restoring_some_variables(tmp_path):
    slim.variable(name="v1", shape=[2], initializer=tf.ones_initializer())
    v2 = slim.variable(name="nested/v2", shape=[1], initializer=tf.ones_initializer())
    path = str(tmp_path / "model.ckpt")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, path)
    choices = [
        slim.get_variables_by_name("v2"),
        slim.get_variables_by_suffix("2"),
        slim.get_variables(scope="nested"),
        slim.get_variables_to_restore(include=["nested"]),
        slim.get_variables_to_restore(exclude=["v1"]),
    ]
    for variables_to_restore in choices:
        assert names(variables_to_restore) == ["nested/v2"]
    restorer = tf.train.Saver(choices[-1])
    with tf.Session() as sess:
        restorer.restore(sess, path)
        assert sess.run(v2) == [1]


def test_restoring_under_other_names(tmp_path):
    path = str(tmp_path / "model.ckpt")
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.get_variable("vgg16/conv1/weights", initializer=np.full([1, 1, 1, 2], 5, np.float32))
        tf.get_variable("conv1/params1", initializer=np.full([1, 1, 1, 2], 6, np.float32))
        tf.get_variable("conv1/params2", initializer=np.full([2], 7, np.float32))
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, path)

    slim.conv2d(tf.zeros([1, 2, 2, 1]), 2, [1, 1], scope="conv1")

    def name_in_checkpoint(var):
        return "vgg16/" + var.op.name

    variables_to_restore = slim.get_model_variables(suffix="weights")
    variables_to_restore = {name_in_checkpoint(var): var for var in variables_to_restore}
    restorer = tf.train.Saver(variables_to_restore)
    with tf.Session() as sess:
        restorer.restore(sess, path)
        assert sess.run(slim.get_unique_variable("conv1/weights")).tolist() == [[[[5, 5]]]]

    def name_in_checkpoint(var):
        if "weights" in var.op.name:
            return var.op.name.replace("weights", "params1")
        if "bias" in var.op.name:
            return var.op.name.replace("biases", "params2")
        return None

    variables_to_restore = slim.get_model_variables()
    variables_to_restore = {name_in_checkpoint(var): var for var in variables_to_restore}
    restorer = tf.train.Saver(variables_to_restore)
    with tf.Session() as sess:
        restorer.restore(sess, path)
        assert sess.run(slim.get_unique_variable("conv1/weights")).tolist() == [[[[6, 6]]]]
        assert sess.run(slim.get_unique_variable("conv1/biases")).tolist() == [7, 7]


def test_model_analyzer(capsys):
    images, _ = load_data()
    my_model(images)
    assert slim.model_analyzer.analyze_ops(tf.get_default_graph(), print_info=True) > 16 * 4
    assert "fully_connected" in capsys.readouterr().out
    variables = tf.model_variables()
    assert slim.model_analyzer.analyze_vars(variables, print_info=False) == (5, 20)
    assert capsys.readouterr().out == ""


def test_summaries():
    images, labels = load_data()
    my_tensors = [slim.fully_connected(images, 3)]
    total_loss, learning_rate = slim.losses.log_loss(my_model(images), labels), tf.constant(0.1)
    slim.summaries.add_histogram_summaries(slim.variables.get_model_variables())
    slim.summaries.add_scalar_summary(total_loss, "Total Loss")
    slim.summaries.add_scalar_summary(learning_rate, "Learning Rate")
    slim.summaries.add_histogram_summaries(my_tensors)
    slim.summaries.add_zero_fraction_summaries(my_tensors)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        summary = tf.Summary.FromString(sess.run(tf.summary.merge_all()))
    tags = [value.tag for value in summary.value]
    assert len(tags) == 8
    assert tags[4:6] == ["Total_Loss", "Learning_Rate"]


def test_the_signatures_are_those_of_the_text():
    create = list(inspect.signature(slim.learning.create_train_op).parameters.values())
    assert [p.name for p in create] == [
        "total_loss",
        "optimizer",
        "global_step",
        "update_ops",
        "variables_to_train",
        "clip_gradient_norm",
        "summarize_gradients",
        "gate_gradients",
        "aggregation_method",
        "colocate_gradients_with_ops",
        "gradient_multipliers",
        "check_numerics",
    ]
    defaults = {p.name: p.default for p in create}
    assert defaults["gate_gradients"] == tf.train.Optimizer.GATE_OP
    assert defaults["check_numerics"] is True

    train = [p.name for p in inspect.signature(slim.learning.train).parameters.values()]
    text = [
        "train_op",
        "logdir",
        "train_step_fn",
        "train_step_kwargs",
        "log_every_n_steps",
        "graph",
        "master",
        "is_chief",
        "global_step",
        "number_of_steps",
        "init_op",
        "init_feed_dict",
        "local_init_op",
        "init_fn",
        "ready_op",
        "summary_op",
        "save_summaries_secs",
        "summary_writer",
        "startup_delay_steps",
        "saver",
        "save_interval_secs",
        "sync_optimizer",
        "session_config",
        "trace_every_n_steps",
    ]
    # TF-Slim has two more since.
    assert [name for name in train if name not in ("session_wrapper", "ignore_live_threads")] == text
