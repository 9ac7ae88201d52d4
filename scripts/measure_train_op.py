"""Measures one step of `slim.learning.create_train_op` against the same step written by hand on tf.nn.

    python scripts/measure_train_op.py [--steps 200] [--rounds 5]

Both are in one process, each with a graph and a session of its own, and take turns step by step. Each round compares
the medians of its steps; the median of the rounds counts. The losses must be equal. The net is small, since it is there
that what a library adds weighs most.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from slimexp import slim

NUM_CLASSES = 10
WEIGHT_DECAY = 5e-4
LEARNING_RATE = 0.01
BATCH_NORM_DECAY = 0.9
EPSILON = 0.001


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Returns images, float32 [32, 28, 28, 1], and labels, int32 [32]."""
    rng = np.random.RandomState(0)
    return rng.uniform(-1, 1, [32, 28, 28, 1]).astype(np.float32), rng.randint(0, NUM_CLASSES, 32).astype(np.int32)


def build_with_slim(images: Any, labels: Any) -> Any:
    """Returns the operation of a step that slim builds."""
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        weights_regularizer=slim.l2_regularizer(WEIGHT_DECAY),
        weights_initializer=tf.constant_initializer(0.01),
    ):
        net = slim.conv2d(
            images,
            16,
            [5, 5],
            normalizer_fn=slim.batch_norm,
            normalizer_params={"decay": BATCH_NORM_DECAY, "epsilon": EPSILON, "fused": True},
        )
        net = slim.max_pool2d(net, [2, 2])
        net = slim.conv2d(net, 32, [5, 5])
        net = slim.max_pool2d(net, [2, 2])
        logits = slim.fully_connected(slim.flatten(net), NUM_CLASSES, activation_fn=None)
    slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels, NUM_CLASSES))
    return slim.learning.create_train_op(slim.losses.get_total_loss(), tf.train.MomentumOptimizer(LEARNING_RATE, 0.9))


def build_by_hand(images: Any, labels: Any) -> Any:
    """Returns the operation of the same step, written on tf.nn."""

    def variable(name: str, shape: Sequence[int], value: float, trainable: bool = True) -> Any:
        return tf.get_variable(name, shape, initializer=tf.constant_initializer(value), trainable=trainable)

    weights = [
        variable("w1", [5, 5, 1, 16], 0.01),
        variable("w2", [5, 5, 16, 32], 0.01),
        variable("w3", [7 * 7 * 32, NUM_CLASSES], 0.01),
    ]
    beta, mean = variable("beta", [16], 0.0), variable("mean", [16], 0.0, trainable=False)
    variance = variable("variance", [16], 1.0, trainable=False)
    biases = [variable("b2", [32], 0.0), variable("b3", [NUM_CLASSES], 0.0)]

    net = tf.nn.conv2d(images, weights[0], strides=1, padding="SAME")
    net, batch_mean, batch_variance = tf.nn.fused_batch_norm(
        net, tf.ones([16]), beta, epsilon=EPSILON, data_format="NHWC", is_training=True
    )
    updates = [
        mean.assign_sub((mean - batch_mean) * (1 - BATCH_NORM_DECAY)),
        variance.assign_sub((variance - batch_variance) * (1 - BATCH_NORM_DECAY)),
    ]
    net = tf.nn.max_pool2d(tf.nn.relu(net), 2, 2, "VALID")
    net = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(net, weights[1], strides=1, padding="SAME"), biases[0]))
    net = tf.nn.max_pool2d(net, 2, 2, "VALID")
    logits = tf.nn.bias_add(tf.matmul(tf.reshape(net, [-1, weights[2].shape[0]]), weights[2]), biases[1])
    losses = tf.nn.softmax_cross_entropy_with_logits_v2(tf.stop_gradient(tf.one_hot(labels, NUM_CLASSES)), logits)
    penalty = tf.add_n([WEIGHT_DECAY * tf.nn.l2_loss(weight) for weight in weights])
    with tf.control_dependencies(updates):
        loss = tf.reduce_mean(losses) + penalty
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.MomentumOptimizer(LEARNING_RATE, 0.9)
    update = optimizer.minimize(loss, global_step=step)
    checked = tf.check_numerics(loss, "The loss is infinite or not a number")
    with tf.control_dependencies([update]):
        return tf.identity(checked)


def make_step(build: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Returns a function that makes one step and returns the loss."""
    with tf.Graph().as_default() as graph:
        images, labels = (tf.constant(array) for array in batch())
        train_op = build(images, labels)
        init_op = tf.global_variables_initializer()
    session = tf.Session(graph=graph)
    session.run(init_op)
    return session.make_callable(train_op)


def measure(steps: int, rounds: int) -> list[tuple[float, float]]:
    """Returns the median seconds of a step with slim and by hand, of each round.

    Args:
        steps: Steps of each in a round.
        rounds: How many rounds, after one that does not count.
    """
    step_fns = [make_step(build_with_slim), make_step(build_by_hand)]
    losses: list[list[float]] = [[], []]
    medians = []
    for _ in range(rounds + 1):
        secs: list[list[float]] = [[], []]
        for step in range(steps):
            # Step by step, and who begins changes: what else the machine does then hits both alike.
            for i in (0, 1) if step % 2 else (1, 0):
                start = time.perf_counter()
                losses[i].append(float(step_fns[i]()))
                secs[i].append(time.perf_counter() - start)
        medians.append((statistics.median(secs[0]), statistics.median(secs[1])))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    return medians[1:]


def main(args: Sequence[str] | None = None) -> float:
    """Runs the command line; returns the quotient."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(args)
    medians = measure(options.steps, options.rounds)
    for with_slim, by_hand in medians:
        print(f"slim {1e3 * with_slim:.3f} ms, by hand {1e3 * by_hand:.3f} ms a step: {with_slim / by_hand:.3f}")
    quotient = statistics.median(with_slim / by_hand for with_slim, by_hand in medians)
    print(f"median of {len(medians)}: {quotient:.3f}")
    return quotient


if __name__ == "__main__":
    main()
