"""Where training runs: on a GPU if there is one, else on the CPU."""

from __future__ import annotations

import contextlib

import tensorflow as tf

__all__ = ["make_deterministic", "make_strategy"]


def make_strategy() -> tf.distribute.Strategy:
    """Returns a strategy over one device: the first GPU, or the CPU where there is none."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    # In a second job of one process the device is in use already, and its memory setting stays.
    with contextlib.suppress(RuntimeError):
        tf.config.experimental.set_memory_growth(gpus[0], True)
    return tf.distribute.OneDeviceStrategy("/gpu:0")


def make_deterministic(seed: int) -> None:
    """Makes every op of this process deterministic; one that cannot be raises when it is used.

    Deterministic ops are not enough: TensorFlow's graph optimizer rewrites one and the same graph in another way from
    process to process, and sums come out in another order (seen with Inception v3 on TensorFlow 2.21). So it is off.

    Args:
        seed: For stateful random ops in a user's own code. Ours are stateless: a resumed run repeats them.
    """
    tf.random.set_seed(seed)
    tf.config.experimental.enable_op_determinism()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
