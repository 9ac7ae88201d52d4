"""Leave the moving averages of some layers as they are, whatever mode the network around them is built in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

__all__ = ["frozen_statistics", "statistics_are_frozen"]


class _Rules(threading.local):
    def __init__(self) -> None:
        self.stack: list[Callable[[str], bool]] = []


_rules = _Rules()


@contextlib.contextmanager
def frozen_statistics(is_frozen: Callable[[str], bool]) -> Iterator[None]:
    """Builds batch norm of the layers that `is_frozen` names in inference mode within the block.

    Such a layer normalizes by its moving averages and does not update them, also where `is_training` is true: a body
    that is not trained then gives the same features as in evaluation, and its statistics stay those of its checkpoint.

    Args:
        is_frozen: From the full scope name of a batch norm layer, e.g. `net/conv1/BatchNorm`, to whether it is frozen.
    """
    _rules.stack.append(is_frozen)
    try:
        yield
    finally:
        _rules.stack.pop()


def statistics_are_frozen(scope: str) -> bool:
    """Tells whether an open block of `frozen_statistics` freezes the layer of that scope name."""
    return any(is_frozen(scope) for is_frozen in _rules.stack)
