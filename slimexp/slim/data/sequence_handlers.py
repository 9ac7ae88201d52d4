"""Items of sequences of frames: the boxes and keypoints of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.data.item_handlers import ItemHandler, dense, prefixed

__all__ = ["BoundingBoxSequence", "KeypointsSequence", "NumBoxesSequence"]


class _Coordinates(ItemHandler):
    """Sparse features [time, things], one a coordinate, joined to [time, things, coordinates]."""

    _default_keys: tuple[str, ...] = ()

    def __init__(
        self,
        keys: Sequence[str] | None = None,
        prefix: str | None = None,
        return_dense: bool = True,
        default_value: float = -1.0,
    ) -> None:
        """Keeps the names of the features.

        Args:
            keys: The features, one a coordinate; by default named as the coordinates.
            prefix: Put before each.
            return_dense: Return a dense tensor.
            default_value: For what frames with fewer things than the fullest have not.

        Raises:
            ValueError: If their number is not that of the coordinates.
        """
        self._full_keys = prefixed(type(self).__name__, keys, self._default_keys, prefix)
        self._return_dense = return_dense
        self._default_value = default_value
        super().__init__(self._full_keys)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the coordinates, [time, things, coordinates]."""
        columns = []
        for key in self._full_keys:
            column = keys_to_tensors[key]
            columns.append(tf.sparse.reshape(column, tf.concat([column.dense_shape, [1]], 0)))
        joined = tf.sparse.concat(2, columns)
        return dense(joined, self._default_value) if self._return_dense else joined


class BoundingBoxSequence(_Coordinates):
    """The boxes of each frame, in the order ymin, xmin, ymax, xmax."""

    _default_keys = ("ymin", "xmin", "ymax", "xmax")


class KeypointsSequence(_Coordinates):
    """The keypoints of each frame, in the order y, x."""

    _default_keys = ("y", "x")


class NumBoxesSequence(ItemHandler):
    """The number of boxes of each frame, int64 [time], as a sparse feature [time, boxes] has it."""

    def __init__(self, keys: str | Sequence[str] | None = None, check_consistency: bool = True) -> None:
        """Keeps the names of the features.

        Args:
            keys: Features of the boxes; the first one is counted.
            check_consistency: Check, when it runs, that all have the same number.

        Raises:
            ValueError: If there are none.
        """
        if not keys:
            raise ValueError("NumBoxesSequence: the keys must not be empty.")
        self._check_consistency = check_consistency
        super().__init__(keys)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the numbers.

        Raises:
            ValueError: If a feature is not sparse.
        """
        first, *others = self._keys
        number = _count(first, keys_to_tensors[first])
        checks = []
        if self._check_consistency:
            for key in others:
                message = f"{first!r} and {key!r} differ in their numbers of boxes"
                checks.append(tf.debugging.assert_equal(number, _count(key, keys_to_tensors[key]), message))
        # None under eager execution, where they have been made.
        with tf.control_dependencies([check for check in checks if check is not None]):
            return tf.identity(number)


def _count(key: str, tensor: Any) -> Any:
    if not isinstance(tensor, tf.SparseTensor):
        raise ValueError(
            f"NumBoxesSequence: {key!r} is a {type(tensor).__name__}; a counted tensor must be of type "
            "tf.SparseTensor. Parse the feature with tf.io.VarLenFeature."
        )
    return tf.math.unsorted_segment_sum(tf.ones_like(tensor.indices[:, 0]), tensor.indices[:, 0], tensor.dense_shape[0])
