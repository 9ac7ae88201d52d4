"""Fine-tunes the digits' LeNet onto another number of classes, odd and even, the way TF-Slim's scripts do.

    python scripts/slim_train.py --logdir /tmp/digits
    python scripts/slim_finetune.py --checkpoint /tmp/digits --logdir /tmp/parity     # a few seconds

All but the last layer is restored from the checkpoint, whose last layer has ten classes and not two.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import os
from collections.abc import Sequence

import tensorflow.compat.v1 as tf
from slim_train import build_logits, evaluate, load_batch

from slimexp import slim
from slimexp.dataset import Split, load_digits

NUM_CLASSES = 2
HEAD_SCOPE = "LeNet/fc4"


def fine_tune(
    split: Split,
    labels: Sequence[int],
    *,
    checkpoint: str,
    logdir: str,
    steps: int,
    batch_size: int,
    learning_rate: float,
    only_head: bool,
) -> float:
    """Trains from a checkpoint until the global step is `steps`; returns the last loss."""
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        images, labels_batch = load_batch(split, labels, batch_size, is_training=True)
        logits = build_logits(images, NUM_CLASSES, is_training=True)
        slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels_batch, NUM_CLASSES))
        total_loss = slim.losses.get_total_loss()
        tf.summary.scalar("losses/total_loss", total_loss)

        optimizer = tf.train.MomentumOptimizer(learning_rate, momentum=0.9)
        train_op = slim.learning.create_train_op(
            total_loss, optimizer, variables_to_train=slim.get_trainable_variables(HEAD_SCOPE) if only_head else None
        )
        # The model's variables alone: the global step and the optimizer's slots begin anew.
        variables_to_restore = slim.filter_variables(slim.get_model_variables(), exclude_patterns=[HEAD_SCOPE])
        init_fn = slim.assign_from_checkpoint_fn(checkpoint, variables_to_restore)
        return slim.learning.train(
            train_op, logdir, init_fn=init_fn, number_of_steps=steps, log_every_n_steps=50, save_interval_secs=60
        )


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", required=True, help="checkpoint of slim_train.py, or its folder for the latest")
    parser.add_argument("--logdir", required=True, help="folder for checkpoints and event files")
    parser.add_argument("--steps", type=int, default=100, help="train until the global step is this")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument(
        "--only-head", action="store_true", help="train the last layer only, the others stay as they are"
    )
    options = parser.parse_args(args)
    if os.path.realpath(options.checkpoint) == os.path.realpath(options.logdir):
        parser.error("--logdir must be another folder than that of --checkpoint, whose model has other classes")
    tf.logging.set_verbosity(tf.logging.INFO)
    dataset = load_digits()
    assert dataset.eval is not None
    loss = fine_tune(
        dataset.train,
        dataset.train.labels % 2,
        checkpoint=options.checkpoint,
        logdir=options.logdir,
        steps=options.steps,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        only_head=options.only_head,
    )
    accuracy = evaluate(dataset.eval, dataset.eval.labels % 2, NUM_CLASSES, options.logdir)
    print(f"loss {loss:.4f}, accuracy {accuracy:.4f} of odd and even on {len(dataset.eval)} held-out digits")


if __name__ == "__main__":
    main()
