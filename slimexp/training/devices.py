"""Where training runs: on one device or mirrored over several, GPUs where there are any, else the CPU."""

from __future__ import annotations

import contextlib
import logging

import tensorflow as tf

from slimexp.errors import UserError

__all__ = ["STRATEGIES", "count_replicas", "make_deterministic", "make_strategy"]

STRATEGIES = ("auto", "one", "mirrored")
_log = logging.getLogger("slimexp")


def count_replicas(kind: str = "one", num_clones: int | None = None) -> int:
    """Returns how many replicas `make_strategy` makes of the same arguments.

    Raises:
        UserError: If there are fewer GPUs than clones.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = (max(len(gpus), 1) if num_clones is None else num_clones) if kind != "one" else 1
    if kind == "one" and (num_clones or 1) > 1:
        raise UserError(
            f"trainer.num_clones={num_clones}: trainer.strategy=one has a single one; take mirrored or auto."
        )
    if gpus and wanted > len(gpus):
        names = ", ".join(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus)
        raise UserError(
            f"trainer.num_clones={wanted}: there {'is 1 GPU' if len(gpus) == 1 else f'are {len(gpus)} GPUs'} "
            f"({names}). Ask for as many or fewer, or leave it null for all."
        )
    return wanted


def make_strategy(kind: str = "one", num_clones: int | None = None) -> tf.distribute.Strategy:
    """Returns the strategy of a run.

    Args:
        kind: `one`: the first GPU, or the CPU where there is none. `mirrored`: a replica on each of `num_clones` GPUs;
            without a GPU they share the CPU, which is for trying things out. `auto`: mirrored where there are several
            GPUs or several clones are asked for, else one.
        num_clones: The number of replicas; None for all GPUs.

    Raises:
        UserError: If there are fewer GPUs than clones.
    """
    assert kind in STRATEGIES, kind
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        # In a second job of one process the device is in use already, and its memory setting stays.
        with contextlib.suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(gpu, True)
    wanted = count_replicas(kind, num_clones)
    if wanted == 1 and kind != "mirrored":
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    tf.get_logger().setLevel(logging.WARNING)  # It tells how each value gets from replica to replica.
    if gpus:
        return tf.distribute.MirroredStrategy([f"/gpu:{number}" for number in range(wanted)])
    if wanted > 1:
        _log.warning("There is no GPU: %d clones share the CPU, which is no faster than one.", wanted)
        _split_cpu(wanted)
    # The CPU's own collectives are made once a process, which two strategies would fight for.
    return tf.distribute.MirroredStrategy(
        [f"/cpu:{number}" for number in range(wanted)], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def _split_cpu(count: int) -> None:
    """Makes TensorFlow see as many CPUs."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    try:
        if len(tf.config.get_logical_device_configuration(cpu) or []) < count:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:
        pass  # TensorFlow has begun to use what it saw at first.
    there = len(tf.config.list_logical_devices("CPU"))
    if there < count:
        raise UserError(
            f"trainer.num_clones={count}: there is no GPU, and this process has already begun with {there} CPU "
            "devices. Start the job in a process of its own."
        )


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
