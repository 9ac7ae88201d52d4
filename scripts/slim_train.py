"""Trains LeNet on real handwritten digits the way TF-Slim's scripts do, then evaluates the checkpoint.

    python scripts/slim_train.py --logdir /tmp/digits                   # half a minute on a laptop CPU
    python scripts/slim_train.py --logdir /tmp/digits --steps 600       # goes on from the last checkpoint

A program of old: a graph, queues that read and decode the images, `slim.learning.train`. Only two lines differ from
what it was: `tensorflow.compat.v1` as `tf`, and where `slim` comes from. `scripts/slim_finetune.py` goes on from the
checkpoint with other classes.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from slimexp import slim
from slimexp.dataset import Split, load_digits

NUM_CLASSES = 10
SIDE_PX = 28


def load_batch(split: Split, labels: Sequence[int], batch_size: int, is_training: bool) -> tuple[Any, Any]:
    """Reads and decodes images through queues.

    Args:
        split: The images.
        labels: The class of each.
        batch_size: Of the batches.
        is_training: Shuffle the images and repeat them without end; else they come once, in order.

    Returns:
        Images, float32 [batch, 28, 28, 1] in -1..1, and labels, int64 [batch].
    """
    path, label = tf.train.slice_input_producer(
        [tf.constant(list(split.paths)), tf.constant(list(labels), tf.int64)],
        num_epochs=None if is_training else 1,
        shuffle=is_training,
    )
    image = tf.image.decode_jpeg(tf.read_file(path), channels=1)
    image.set_shape([SIDE_PX, SIDE_PX, 1])
    image = (tf.to_float(image) - 128.0) / 128.0
    # The last batch of an evaluation is as large as what is left.
    return tf.train.batch(
        [image, label],
        batch_size,
        num_threads=4 if is_training else 1,
        capacity=4 * batch_size,
        allow_smaller_final_batch=not is_training,
    )


def build_logits(images: Any, num_classes: int, is_training: bool) -> Any:
    """Returns the logits of LeNet, [batch, num_classes]."""
    with slim.arg_scope(slim.nets.lenet.lenet_arg_scope(weight_decay=0.0005)):
        logits, _ = slim.nets.lenet.lenet(images, num_classes, is_training=is_training)
    return logits


def evaluate(split: Split, labels: Sequence[int], num_classes: int, logdir: str) -> float:
    """Returns the accuracy of the latest checkpoint of a folder on a whole split."""
    with tf.Graph().as_default():
        images, true_labels = load_batch(split, labels, 100, is_training=False)
        predictions = tf.argmax(build_logits(images, num_classes, is_training=False), 1)
        names_to_values, names_to_updates = slim.metrics.aggregate_metric_map(
            {"accuracy": slim.metrics.streaming_accuracy(predictions, true_labels)}
        )
        for name, value in names_to_values.items():
            slim.summaries.add_scalar_summary(value, name, prefix="eval")
        values = slim.evaluation.evaluate_once(
            "",
            tf.train.latest_checkpoint(logdir),
            f"{logdir}/eval",
            num_evals=None,
            eval_op=list(names_to_updates.values()),
            final_op=names_to_values,
        )
    return float(values["accuracy"])


def train(split: Split, *, logdir: str, steps: int, batch_size: int, learning_rate: float) -> float:
    """Trains until the global step is `steps`; returns the last loss."""
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        images, labels = load_batch(split, split.labels, batch_size, is_training=True)
        logits = build_logits(images, NUM_CLASSES, is_training=True)
        slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels, NUM_CLASSES))
        total_loss = slim.losses.get_total_loss()
        tf.summary.scalar("losses/total_loss", total_loss)
        slim.summaries.add_histogram_summaries(slim.get_model_variables())

        optimizer = tf.train.MomentumOptimizer(learning_rate, momentum=0.9)
        train_op = slim.learning.create_train_op(total_loss, optimizer)
        return slim.learning.train(
            train_op,
            logdir,
            number_of_steps=steps,
            log_every_n_steps=50,
            save_summaries_secs=10,
            save_interval_secs=60,
        )


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logdir", required=True, help="folder for checkpoints and event files")
    parser.add_argument("--steps", type=int, default=300, help="train until the global step is this")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    options = parser.parse_args(args)
    tf.logging.set_verbosity(tf.logging.INFO)
    dataset = load_digits()
    assert dataset.eval is not None
    loss = train(
        dataset.train,
        logdir=options.logdir,
        steps=options.steps,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
    )
    accuracy = evaluate(dataset.eval, dataset.eval.labels, NUM_CLASSES, options.logdir)
    print(f"loss {loss:.4f}, accuracy {accuracy:.4f} on {len(dataset.eval)} held-out digits")


if __name__ == "__main__":
    main()
