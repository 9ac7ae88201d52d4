"""Decodes `tf.train.Example` and `tf.train.SequenceExample` records into items.

    decoder = slim.tfexample_decoder.TFExampleDecoder(
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/format": tf.io.FixedLenFeature([], tf.string, default_value="jpeg"),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
        {"image": slim.tfexample_decoder.Image(), "label": slim.tfexample_decoder.Tensor("image/class/label")},
    )
    image, label = decoder.decode(record, ["image", "label"])

The handlers of the items are in `item_handlers` and `sequence_handlers`; scripts find them here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.data.data_decoder import DataDecoder
from slimexp.slim.data.item_handlers import (
    BackupHandler,
    BoundingBox,
    Image,
    ItemHandler,
    ItemHandlerCallback,
    LookupTensor,
    SparseTensor,
    Tensor,
)
from slimexp.slim.data.sequence_handlers import BoundingBoxSequence, KeypointsSequence, NumBoxesSequence

__all__ = [
    "BackupHandler",
    "BoundingBox",
    "BoundingBoxSequence",
    "Image",
    "ItemHandler",
    "ItemHandlerCallback",
    "KeypointsSequence",
    "LookupTensor",
    "NumBoxesSequence",
    "SparseTensor",
    "TFExampleDecoder",
    "TFSequenceExampleDecoder",
    "Tensor",
]


class TFExampleDecoder(DataDecoder):
    """Parses an example, then lets each item's handler make the item of the features."""

    def __init__(self, keys_to_features: Mapping[str, Any], items_to_handlers: Mapping[str, ItemHandler]) -> None:
        """Keeps features and handlers.

        Args:
            keys_to_features: Feature name -> `tf.io.FixedLenFeature`, `tf.io.VarLenFeature`, ...
            items_to_handlers: Item name -> its handler.
        """
        self._keys_to_features = keys_to_features
        self._items_to_handlers = items_to_handlers

    def list_items(self) -> list[str]:
        """Returns the names of the items."""
        return list(self._items_to_handlers)

    def decode(self, serialized_example: Any, items: Sequence[str] | None = None) -> list[Any]:
        """Decodes an example.

        Args:
            serialized_example: A scalar string.
            items: The items that are wanted; None for all.

        Returns:
            Their tensors, in that order.

        Raises:
            ValueError: If there is no such item.
        """
        features = tf.io.parse_single_example(serialized_example, dict(self._keys_to_features))
        features = _with_static_shapes(features, self._keys_to_features)
        return _handle(features, self._items_to_handlers, items)


class TFSequenceExampleDecoder(DataDecoder):
    """Parses a sequence example, then lets each item's handler make the item of the features."""

    def __init__(
        self,
        keys_to_context_features: Mapping[str, Any],
        keys_to_sequence_features: Mapping[str, Any],
        items_to_handlers: Mapping[str, ItemHandler],
    ) -> None:
        """Keeps features and handlers.

        Args:
            keys_to_context_features: Name of a feature of the whole -> its `tf.io` specification.
            keys_to_sequence_features: Name of a feature of each frame -> its `tf.io` specification.
            items_to_handlers: Item name -> its handler.

        Raises:
            ValueError: If a name stands in both.
        """
        both = sorted(keys_to_context_features.keys() & keys_to_sequence_features.keys())
        if both:
            raise ValueError(f"Context and sequence keys must differ, but both have {', '.join(both)}.")
        self._context = keys_to_context_features
        self._sequence = keys_to_sequence_features
        self._items_to_handlers = items_to_handlers

    def list_items(self) -> list[str]:
        """Returns the names of the items."""
        return list(self._items_to_handlers)

    def decode(self, serialized_example: Any, items: Sequence[str] | None = None) -> list[Any]:
        """Decodes a sequence example; arguments and result are those of `TFExampleDecoder.decode`."""
        context, frames = tf.io.parse_single_sequence_example(
            serialized_example, dict(self._context), dict(self._sequence)
        )
        return _handle({**frames, **_with_static_shapes(context, self._context)}, self._items_to_handlers, items)


def _with_static_shapes(features: dict[str, Any], specifications: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tf.reshape(features[key], specification.shape)
        if isinstance(specification, tf.io.FixedLenFeature)
        else features[key]
        # In a fixed order, so that a graph is the same each time.
        for key, specification in sorted(specifications.items())
    }


def _handle(features: Mapping[str, Any], handlers: Mapping[str, ItemHandler], items: Sequence[str] | None) -> list[Any]:
    outputs = []
    for item in items or handlers:
        if item not in handlers:
            raise ValueError(f"There is no item {item!r}; there is {', '.join(handlers)}.")
        handler = handlers[item]
        for key in handler.keys:
            if key not in features:
                raise ValueError(f"The item {item!r} needs the feature {key!r}, which the decoder does not parse.")
        outputs.append(handler.tensors_to_item({key: features[key] for key in handler.keys}))
    return outputs
