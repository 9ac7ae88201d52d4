"""See just the losses and update operations that one piece of graph building added.

The replicas of a `tf.distribute` strategy are traced into one graph and share its collections, so that the second
replica finds the first one's losses there as well. Within `collected()` a replica sees its own only.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

__all__ = [
    "Collected",
    "collected",
    "current_pass",
    "one_of_several_replicas",
    "own_update_ops",
    "replica_in_graph",
    "replica_name_scope",
    "traced_for_eager_use",
]

_Keys = tf.compat.v1.GraphKeys
_KEYS = (_Keys.LOSSES, _Keys.REGULARIZATION_LOSSES, _Keys.UPDATE_OPS)

# The name scope under which a mirrored strategy builds all replicas but the first.
_REPLICA_SCOPE = re.compile(r"(?:^|/)replica_(\d+)(?:/|$)")


class Collected:
    """What was added to the collections of a graph within a block, by the replica that opened it.

    Attributes:
        losses: The collection of losses, without the regularization losses.
        regularization_losses: The collection of regularization losses.
        update_ops: The collection of update operations, e.g. those of batch norm's moving averages.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self._graph = graph
        self._before = {key: {id(item) for item in graph.get_collection_ref(key)} for key in _KEYS}
        # Names tell replicas apart: one that waits for others lets them build in the middle of this block.
        self._replica = replica_in_graph()
        self._final: dict[str, list[Any]] | None = None

    @property
    def losses(self) -> list[Any]:
        return self._items(_Keys.LOSSES)

    @property
    def regularization_losses(self) -> list[Any]:
        return self._items(_Keys.REGULARIZATION_LOSSES)

    @property
    def update_ops(self) -> list[Any]:
        return self._items(_Keys.UPDATE_OPS)

    def _items(self, key: str) -> list[Any]:
        if self._final is not None:
            return list(self._final[key])
        return [
            item
            for item in self._graph.get_collection_ref(key)
            if id(item) not in self._before[key] and (self._replica is None or _replica_of(item.name) == self._replica)
        ]

    def _close(self) -> None:
        self._final = {key: self._items(key) for key in _KEYS}


class _OpenBlocks(threading.local):
    def __init__(self) -> None:
        self.blocks: list[Collected] = []


_open = _OpenBlocks()


@contextlib.contextmanager
def collected() -> Iterator[Collected]:
    """Opens a block and yields what is added to the collections within it, and after it what was.

    A block is also one pass over the network: a `VariableStore` adds the regularization loss of each variable once
    per block (once per graph and replica outside of any).

    Raises:
        RuntimeError: If no graph is being built.
    """
    if tf.executing_eagerly():
        raise RuntimeError("slim.collected() looks into the collections of a graph: use it inside a tf.function.")
    block = Collected(tf.compat.v1.get_default_graph())
    _open.blocks.append(block)
    try:
        yield block
    finally:
        _open.blocks.remove(block)
        block._close()


def current_pass() -> Collected | None:
    """Returns the outermost block that this thread has open, or None."""
    return _open.blocks[0] if _open.blocks else None


def own_update_ops() -> list[Any]:
    """Returns the update operations of the open block, or else those of the graph that this replica added."""
    block = current_pass()
    if block is not None:
        return block.update_ops
    replica = replica_in_graph()
    items = tf.compat.v1.get_collection(_Keys.UPDATE_OPS)
    return [item for item in items if replica is None or _replica_of(item.name) == replica]


def one_of_several_replicas() -> bool:
    """Tells whether this code is being traced for one replica of a strategy that has several."""
    return (
        tf.distribute.has_strategy()
        and not tf.distribute.in_cross_replica_context()
        and tf.distribute.get_replica_context().num_replicas_in_sync > 1
    )


def traced_for_eager_use() -> bool:
    """Tells whether a function is being traced that an eager program calls, and not a branch or loop of a graph."""
    if not tf.inside_function():
        return False
    with tf.init_scope():
        return bool(tf.executing_eagerly())


def replica_in_graph() -> int | None:
    """Returns the number of the current replica among those that are traced into one graph; None outside of any."""
    if not one_of_several_replicas():
        return None
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    replica = int(tf.get_static_value(replica) if tf.is_tensor(replica) else replica)
    # With several workers each has a graph of its own.
    return replica % len(tf.distribute.get_strategy().extended.worker_devices)


def replica_name_scope() -> str:
    """Returns the name scope, with its slash, under which a mirrored strategy builds the current replica."""
    replica = replica_in_graph()
    return f"replica_{replica}/" if replica else ""


def _replica_of(name: str) -> int:
    found = _REPLICA_SCOPE.search(name)
    return int(found.group(1)) if found else 0
