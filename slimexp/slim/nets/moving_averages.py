"""The collection that the library's Inception arg scopes put moving averages into."""

from __future__ import annotations

from typing import Any

from slimexp import slim

__all__ = ["with_collection"]


def with_collection(scope: Any, collection: str) -> Any:
    """Returns an arg scope in which batch norm puts its moving averages into a collection.

    Args:
        scope: The arg scope.
        collection: Name of the collection.
    """
    collections = {"moving_mean": [collection], "moving_variance": [collection]}
    with slim.arg_scope(scope), slim.arg_scope([slim.batch_norm], variables_collections=collections) as both:
        return both
