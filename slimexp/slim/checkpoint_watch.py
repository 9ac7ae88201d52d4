"""Wait for checkpoints that a training writes while it goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from slimexp.slim.logs import logger as _log

__all__ = ["checkpoints_iterator", "wait_for_new_checkpoint"]


def wait_for_new_checkpoint(
    checkpoint_dir: str | os.PathLike[str],
    last_checkpoint: str | None = None,
    seconds_to_sleep: float = 1,
    timeout: float | None = None,
) -> str | None:
    """Waits until a folder has a checkpoint other than the last one, and returns its path.

    Args:
        checkpoint_dir: The folder; it need not be there yet.
        last_checkpoint: The path of the checkpoint that is known; None for none.
        seconds_to_sleep: Seconds between two looks.
        timeout: Give up after so many seconds; None for never.

    Returns:
        The path of the latest checkpoint, as `tf.train.latest_checkpoint` gives it; None if there was no other in time.
    """
    _log.info("Waiting for a new checkpoint in %s", checkpoint_dir)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        path = tf.train.latest_checkpoint(os.fspath(checkpoint_dir))
        if path is not None and path != last_checkpoint:
            _log.info("Found a new checkpoint: %s", path)
            return path
        if deadline is not None and time.monotonic() + seconds_to_sleep > deadline:
            return None
        time.sleep(seconds_to_sleep)


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the path of the latest checkpoint of a folder whenever there is a new one.

    Those that came and were followed by others in the meantime are left out.

    Args:
        checkpoint_dir: The folder.
        min_interval_secs: Let at least so many seconds pass between two checkpoints.
        timeout: How many seconds to wait for a new one; None for any time.
        timeout_fn: Called when the time has run out; if it returns True the iteration ends, else the wait begins
            again. Without it the iteration ends then.

    Yields:
        The path of a checkpoint.
    """
    path: str | None = None
    while True:
        found = wait_for_new_checkpoint(checkpoint_dir, path, timeout=timeout)
        if found is None:
            if timeout_fn is None or timeout_fn():
                _log.info("No new checkpoint in %s for %s s; done waiting.", checkpoint_dir, timeout)
                return
            continue
        path = found
        start = time.monotonic()
        yield path
        time.sleep(max(0.0, start + min_interval_secs - time.monotonic()))
