"""What training with a `tf.compat.v1.train.SyncReplicasOptimizer` needs beside its training operation."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["SyncReplicas", "as_sync_optimizers"]


@dataclasses.dataclass(frozen=True)
class SyncReplicas:
    """What synchronous replicas need; nothing of it without such an optimizer.

    Attributes:
        local_init_op: Initializes the worker's own variables, the optimizers' among them.
        ready_for_local_init_op: Returns the names of variables that the chief has yet to initialize.
        sync_ops: What the chief repeats: waits for the gradients of all and applies their mean.
        init_tokens_ops: What the chief runs once, to let the workers begin.
    """

    local_init_op: Any
    ready_for_local_init_op: Any = None
    sync_ops: Sequence[Any] = ()
    init_tokens_ops: Sequence[Any] = ()

    @staticmethod
    def build(optimizers: Sequence[Any], is_chief: bool, local_init_op: Any) -> SyncReplicas:
        """Adds these operations to the graph."""
        if not optimizers:
            return SyncReplicas(local_init_op)
        with tf.control_dependencies([] if local_init_op is None else [local_init_op]):
            own = [opt.chief_init_op if is_chief else opt.local_step_init_op for opt in optimizers]
        return SyncReplicas(
            tf.group(*own, *([] if local_init_op is None else [local_init_op])),
            tf.concat([opt.ready_for_local_init_op for opt in optimizers], 0),
            [op for opt in optimizers for op in opt.get_chief_queue_runner().enqueue_ops] if is_chief else (),
            [opt.get_init_tokens_op() for opt in optimizers] if is_chief else (),
        )

    def start(self, coord: Any, sess: Any) -> None:
        """Starts what the chief does for all: averaging gradients, and handing out the tokens that let workers go on.

        Args:
            coord: The `tf.train.Coordinator` of the training.
            sess: Its session.
        """
        for op in self.sync_ops:
            _repeat_until_closed(coord, sess, op)
        if self.init_tokens_ops:
            sess.run(self.init_tokens_ops)


def as_sync_optimizers(sync_optimizer: Any) -> list[Any]:
    """Returns a `sync_optimizer`, a list of them or None as a list; a ValueError for anything else."""
    if sync_optimizer is None:
        return []
    optimizers = list(sync_optimizer) if isinstance(sync_optimizer, (list, tuple)) else [sync_optimizer]
    for optimizer in optimizers:
        if not isinstance(optimizer, tf.compat.v1.train.SyncReplicasOptimizer):
            raise ValueError(
                "train: sync_optimizer takes a tf.compat.v1.train.SyncReplicasOptimizer or a list of them, not "
                f"{optimizer!r}. Leave it out for asynchronous training."
            )
    return optimizers


def _repeat_until_closed(coord: Any, sess: Any, op: Any) -> None:
    """Runs an operation in a thread of its own, again and again, until training stops or the session is closed.

    The chief's operation waits for the gradients of all workers and nothing but the end of the session wakes it. As a
    queue runner of the Supervisor it would make the end of training wait for two minutes and then fail.
    """

    def repeat() -> None:
        try:
            while not coord.should_stop():
                sess.run(op)
        except Exception as error:
            if not coord.should_stop():
                coord.request_stop(error)

    threading.Thread(target=repeat, name="sync_replicas", daemon=True).start()
