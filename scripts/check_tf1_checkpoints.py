"""Checks that checkpoints go to and fro between TensorFlow 1.15's slim and this one.

    python3.7 -m venv old && old/bin/pip install 'tensorflow==1.15.5' 'protobuf<3.21' 'numpy<1.19'
    .venv/bin/python scripts/check_tf1_checkpoints.py --python old/bin/python

For each network the old slim writes a checkpoint and its logits; this one restores it by name and compares its own
logits; then it writes other weights, which the old slim restores, and its logits are compared. `training` is the same
for a small network halfway through its training, with momentum, moving averages and the global step: each side goes on
where the other stopped. The exit status is 1 if anything differs.

The file runs on both sides, and so keeps to Python 3.7: only the line that imports slim differs.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# network -> image side; small where the network takes any size.
NETS = {
    "alexnet.alexnet_v2": 224,
    "overfeat.overfeat": 231,
    "vgg.vgg_a": 224,
    "vgg.vgg_16": 224,
    "vgg.vgg_19": 224,
    "inception.inception_v1": 224,
    "inception.inception_v2": 224,
    "inception.inception_v3": 299,
    "resnet_v1.resnet_v1_50": 97,
    "resnet_v1.resnet_v1_101": 97,
    "resnet_v1.resnet_v1_152": 97,
    "resnet_v1.resnet_v1_200": 97,
    "resnet_v2.resnet_v2_50": 97,
    "resnet_v2.resnet_v2_101": 97,
    "resnet_v2.resnet_v2_152": 97,
    "resnet_v2.resnet_v2_200": 97,
}
NUM_CLASSES = 1000
# Of the largest logit: another convolution library sums in another order.
TOLERANCE = 1e-4
STEPS = 3


def load():
    """Returns TensorFlow under its old names, and slim."""
    import tensorflow as tf

    if tf.__version__.startswith("1."):
        import tensorflow.contrib.slim as slim
        import tensorflow.contrib.slim.nets
    else:
        from slimexp import slim
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    return tf.compat.v1, slim


def value(name, shape, writer):
    """Returns the weights that one side writes, a function of their name and shape."""
    import numpy as np

    random = np.random.RandomState(zlib.crc32((writer + name).encode()))
    noise = random.standard_normal(shape)
    kind = name.rpartition("/")[2]
    if kind.endswith("weights"):
        noise *= np.sqrt(2.0 / np.prod(shape[:-1]))
    elif kind == "gamma":
        noise = 1 + 0.1 * noise
    elif kind == "moving_variance":
        noise = 1 + random.random_sample(shape)
    else:
        noise *= 0.1
    return noise.astype(np.float32)


def build(tf, slim, name):
    """Builds a network for evaluation; returns the placeholder and the logits."""
    module, _, function = name.partition(".")
    module = getattr(slim.nets, module)
    images = tf.placeholder(tf.float32, [2, NETS[name], NETS[name], 3])
    if function.startswith("resnet"):
        scope = module.resnet_arg_scope()
    else:
        scope = getattr(module, "vgg_arg_scope" if function.startswith("vgg") else function + "_arg_scope")()
    with slim.arg_scope(scope):
        logits, _ = getattr(module, function)(images, num_classes=NUM_CLASSES, is_training=False)
    return images, logits


def network_logits(name, folder, writer, restore):
    """Writes a network's checkpoint, or restores it; returns its variables and its logits."""
    import numpy as np

    tf, slim = load()
    path = os.path.join(folder, writer)
    with tf.Graph().as_default(), tf.Session() as session:
        images, logits = build(tf, slim, name)
        variables = slim.get_model_variables()
        saver = tf.train.Saver(variables)
        if restore:
            saver.restore(session, path)
        else:
            for variable in variables:
                variable.load(value(variable.op.name, variable.shape.as_list(), writer), session)
            saver.save(session, path, write_meta_graph=False)
        pixels = np.random.RandomState(0).uniform(-1, 1, images.shape.as_list())
        table = {variable.op.name: variable.shape.as_list() for variable in variables}
        return table, session.run(logits, {images: pixels}).reshape(2, -1).tolist()


def training_losses(folder, start_from, save_as, steps):
    """Trains a small network for some steps, maybe from a checkpoint; returns its variables and its losses."""
    import numpy as np

    tf, slim = load()
    with tf.Graph().as_default(), tf.Session() as session:
        images = tf.placeholder(tf.float32, [6, 12, 12, 3])
        labels = tf.placeholder(tf.int32, [6])
        norm = {"decay": 0.9, "scale": True, "is_training": True}
        regularizer = slim.l2_regularizer(5e-3)
        with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=regularizer):
            with slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, normalizer_params=norm):
                net = slim.repeat(images, 2, slim.conv2d, 8, [3, 3], scope="conv1")
                net = slim.flatten(slim.max_pool2d(net, [2, 2]))
            logits = slim.fully_connected(net, 5, activation_fn=None, scope="logits")
        slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels, 5))
        step = slim.get_or_create_global_step()
        train_op = slim.learning.create_train_op(
            slim.losses.get_total_loss(), tf.train.MomentumOptimizer(0.05, 0.9), summarize_gradients=False
        )
        saver = tf.train.Saver()
        if start_from:
            saver.restore(session, os.path.join(folder, start_from))
        else:
            session.run(tf.global_variables_initializer())
            for variable in slim.get_model_variables():
                variable.load(value(variable.op.name, variable.shape.as_list(), "training"), session)
        losses = []
        for _ in range(steps):
            random = np.random.RandomState(100 + int(session.run(step)))
            feeds = {images: random.uniform(-1, 1, [6, 12, 12, 3]), labels: random.randint(0, 5, [6])}
            losses.append(float(session.run(train_op, feeds)))
        if save_as:
            saver.save(session, os.path.join(folder, save_as), write_meta_graph=False)
        return {v.op.name: v.shape.as_list() for v in tf.global_variables()}, losses


TASKS = {"network": network_logits, "training": training_losses}


def there(python, task, **arguments):
    """Does a task on the other side."""
    command = [python, os.path.abspath(__file__), "--task", json.dumps([task, arguments])]
    # The old side must find neither this checkout nor this environment's packages.
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit("{} failed:\n{}".format(" ".join(command), done.stderr.decode()))
    table, numbers = json.loads(done.stdout.decode().splitlines()[-1])
    return table, numbers


def check(what, python):
    """Checks a network, or `training`; returns its line of the table and whether all agreed."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        if what == "training":
            table, uninterrupted = there(
                python, "training", folder=folder, start_from=None, save_as=None, steps=2 * STEPS
            )
            second = uninterrupted[STEPS:]
            there(python, "training", folder=folder, start_from=None, save_as="theirs", steps=STEPS)
            ours, from_theirs = training_losses(folder, "theirs", None, STEPS)
            training_losses(folder, None, "ours", STEPS)
            _, from_ours = there(python, "training", folder=folder, start_from="ours", save_as=None, steps=STEPS)
            pairs = [(second, from_theirs), (second, from_ours)]
        else:
            arguments = {"name": what, "folder": folder}
            table, theirs = there(python, "network", writer="theirs", restore=False, **arguments)
            ours, from_theirs = network_logits(writer="theirs", restore=True, **arguments)
            _, written = network_logits(writer="ours", restore=False, **arguments)
            _, from_ours = there(python, "network", writer="ours", restore=True, **arguments)
            pairs = [(theirs, from_theirs), (written, from_ours)]
    differences = [float(np.abs(np.subtract(a, b)).max() / np.abs(a).max()) for a, b in pairs]
    same = table == ours
    agreed = same and max(differences) <= TOLERANCE
    line = "{:<26} {:>4} variables {:<10} old -> new {:.1e}   new -> old {:.1e}   {}".format(
        what, len(table), "the same" if same else "DIFFERENT", *(*differences, "ok" if agreed else "FAILED")
    )
    return line, agreed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the Python that has TensorFlow 1.15")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="networks (vgg_16, ...), or training; by default all")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        task, keywords = json.loads(arguments.task)
        print(json.dumps(TASKS[task](**keywords)))
        return 0
    if not arguments.python:
        parser.error("--python is needed: the Python that has TensorFlow 1.15.")
    known = {name.rpartition(".")[2]: name for name in ["training", *NETS]}
    unknown = sorted(set(arguments.only or []) - set(known))
    if unknown:
        parser.error("--only: there is no {}; there are {}.".format(", ".join(unknown), ", ".join(known)))
    failed = False
    for short in arguments.only or known:
        line, agreed = check(known[short], arguments.python)
        failed = failed or not agreed
        print(line, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
