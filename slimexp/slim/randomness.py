"""Random numbers that a run can repeat from any step on.

Stateful random operations go on from wherever they are, so a resumed run draws others than an uninterrupted one. Within
`stateless_randomness` each layer's numbers are a function of (seed, step, replica, layer) and of nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

__all__ = ["layer_seed", "stateless_randomness"]


class _Key:
    def __init__(self, seed: int, step: Any, replica: Any) -> None:
        self.seed = int(seed)
        self.step = step
        self.replica = replica
        self.num_uses: dict[str, int] = {}


class _Keys(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Key] = []


_keys = _Keys()


@contextlib.contextmanager
def stateless_randomness(seed: int, step: Any, replica: Any = None) -> Iterator[None]:
    """Makes the random layers within the block, e.g. `dropout`, functions of a key.

    The same key gives the same numbers, on every kind of device; another seed, step, replica or layer gives others.

    Args:
        seed: The run's seed.
        step: The step, an integer scalar, most often a tensor.
        replica: The replica's number, an integer scalar; by default that of the current replica context.
    """
    if replica is None:
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
    _keys.stack.append(_Key(seed, step, replica))
    try:
        yield
    finally:
        _keys.stack.pop()


def layer_seed(name: str) -> Any:
    """Returns the seed for a layer's random operation, or None outside of `stateless_randomness`.

    Args:
        name: The layer's full scope name. A layer that comes by that name again gets a seed of its own.

    Returns:
        An int64 [2] for the `tf.random.stateless_*` functions, to be used with the Philox generator, or None.
    """
    if not _keys.stack:
        return None
    key = _keys.stack[-1]
    use = key.num_uses.get(name, 0)
    key.num_uses[name] = use + 1
    digest = hashlib.sha256(f"{key.seed}/{name}/{use}".encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little", signed=True) for i in (0, 4)]
    seed = tf.constant(words, tf.int32)
    for number in (key.step, key.replica):
        number = tf.cast(tf.convert_to_tensor(number), tf.int64)
        seed = tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
    return seed
