"""How an item comes from the features of an example: as a tensor, a sparse tensor, an image, boxes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

__all__ = [
    "BackupHandler",
    "BoundingBox",
    "Image",
    "ItemHandler",
    "ItemHandlerCallback",
    "LookupTensor",
    "SparseTensor",
    "Tensor",
    "dense",
]


def dense(tensor: Any, default_value: Any = 0) -> Any:
    """Returns a sparse tensor as a dense one, and a dense one as it is.

    Args:
        tensor: The tensor.
        default_value: Where there is no value; 0 stands for the empty string among strings.
    """
    if not isinstance(tensor, tf.SparseTensor):
        return tensor
    if tensor.dtype == tf.string and default_value == 0:
        default_value = ""
    return tf.sparse.to_dense(tensor, default_value)


class ItemHandler(abc.ABC):
    """Names the features that an item needs, and makes the item from them."""

    def __init__(self, keys: str | Sequence[str]) -> None:
        """Keeps the names of the features: one, or several."""
        self._keys: list[str] = [keys] if isinstance(keys, str) else list(keys)

    @property
    def keys(self) -> list[str]:
        """The names of the features."""
        return self._keys

    @abc.abstractmethod
    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the item.

        Args:
            keys_to_tensors: The features by name, as they were parsed.
        """


class ItemHandlerCallback(ItemHandler):
    """An item made by a function."""

    def __init__(self, keys: str | Sequence[str], func: Callable[[Mapping[str, Any]], Any]) -> None:
        """Keeps the function, which takes the features by name and returns the item."""
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns what the function returns."""
        return self._func(keys_to_tensors)


class BoundingBox(ItemHandler):
    """Boxes from four features, one for each side."""

    def __init__(self, keys: Sequence[str] | None = None, prefix: str = "") -> None:
        """Keeps the names of the features.

        Args:
            keys: Those of ymin, xmin, ymax and xmax, which are also the default.
            prefix: Put before each.

        Raises:
            ValueError: If there are not four.
        """
        self._full_keys = prefixed("BoundingBox", keys, ("ymin", "xmin", "ymax", "xmax"), prefix)
        super().__init__(self._full_keys)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the boxes, [boxes, 4], in the order ymin, xmin, ymax, xmax."""
        sides = [keys_to_tensors[key] for key in self._full_keys]
        values = [side.values if isinstance(side, tf.SparseTensor) else side for side in sides]
        return tf.transpose(tf.stack(values))


class Tensor(ItemHandler):
    """A feature as a dense tensor, reshaped if a shape is given."""

    def __init__(
        self,
        tensor_key: str,
        shape_keys: str | Sequence[str] | None = None,
        shape: Any = None,
        default_value: Any = 0,
    ) -> None:
        """Keeps the names of the features.

        Args:
            tensor_key: That of the values.
            shape_keys: That of the shape, or those of its dimensions.
            shape: The shape itself.
            default_value: For what a sparse feature leaves out.

        Raises:
            ValueError: If the shape is given both ways.
        """
        if shape_keys and shape is not None:
            raise ValueError(f"Give either shape_keys={shape_keys!r} or shape={shape!r} for {tensor_key!r}, not both.")
        self._shape_keys = [shape_keys] if isinstance(shape_keys, str) else list(shape_keys or [])
        self._tensor_key = tensor_key
        self._shape = shape
        self._default_value = default_value
        super().__init__([tensor_key, *self._shape_keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the tensor."""
        tensor = keys_to_tensors[self._tensor_key]
        shape = self._shape
        if self._shape_keys:
            shape = tf.reshape(tf.stack([dense(keys_to_tensors[key]) for key in self._shape_keys]), [-1])
        if shape is not None:
            reshape = tf.sparse.reshape if isinstance(tensor, tf.SparseTensor) else tf.reshape
            tensor = reshape(tensor, shape)
        return dense(tensor, self._default_value)


class LookupTensor(Tensor):
    """A feature looked up in a table, e.g. names of classes."""

    def __init__(
        self,
        tensor_key: str,
        table: Any,
        shape_keys: str | Sequence[str] | None = None,
        shape: Any = None,
        default_value: Any = "",
    ) -> None:
        """Keeps the table; the other arguments are those of `Tensor`.

        Args:
            tensor_key: See `Tensor`.
            table: A table of `tf.lookup`.
            shape_keys: See `Tensor`.
            shape: See `Tensor`.
            default_value: See `Tensor`.
        """
        self._table = table
        super().__init__(tensor_key, shape_keys, shape, default_value)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns what the table has for the tensor."""
        return self._table.lookup(super().tensors_to_item(keys_to_tensors))


class BackupHandler(ItemHandler):
    """An item of one handler or, where that is empty, of another."""

    def __init__(self, handler: ItemHandler, backup: ItemHandler) -> None:
        """Keeps the handlers.

        Args:
            handler: The one to try first.
            backup: The one to take where the first gives no elements.

        Raises:
            ValueError: If one is no `ItemHandler`.
        """
        for name, value in (("handler", handler), ("backup", backup)):
            if not isinstance(value, ItemHandler):
                raise ValueError(f"{name}={value!r} must be an ItemHandler, not {type(value).__name__}.")
        self._handler = handler
        self._backup = backup
        super().__init__([*handler.keys, *backup.keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the item of one of the two."""
        item = self._handler.tensors_to_item(keys_to_tensors)
        return tf.cond(tf.equal(tf.size(item), 0), lambda: self._backup.tensors_to_item(keys_to_tensors), lambda: item)


class SparseTensor(ItemHandler):
    """A sparse tensor from two features, its indices along the last dimension and its values."""

    def __init__(
        self,
        indices_key: str | None = None,
        values_key: str | None = None,
        shape_key: str | None = None,
        shape: Any = None,
        densify: bool = False,
        default_value: Any = 0,
    ) -> None:
        """Keeps the names of the features.

        Args:
            indices_key: By default `indices`.
            values_key: By default `values`.
            shape_key: That of the shape.
            shape: The shape where it is no feature; by default that of the indices.
            densify: Return a dense tensor.
            default_value: For what it then has no value for.
        """
        self._indices_key = indices_key or "indices"
        self._values_key = values_key or "values"
        self._shape_key = shape_key
        self._shape = shape
        self._densify = densify
        self._default_value = default_value
        super().__init__([self._indices_key, self._values_key, *([shape_key] if shape_key else [])])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the sparse tensor, or the dense one."""
        indices = keys_to_tensors[self._indices_key]
        if self._shape_key:
            shape = dense(keys_to_tensors[self._shape_key])
        else:
            shape = indices.dense_shape if self._shape is None else self._shape
        # The feature is ragged in its last dimension, whose places are counted there; the values name the real ones.
        last = tf.reshape(tf.cast(indices.values, tf.int64), [-1, 1])
        places = tf.concat([indices.indices[:, :-1], last], 1)
        tensor = tf.SparseTensor(places, keys_to_tensors[self._values_key].values, shape)
        return dense(tensor, self._default_value) if self._densify else tensor


class Image(ItemHandler):
    """An image, decoded from its file format or from raw bytes."""

    def __init__(
        self,
        image_key: str | None = None,
        format_key: str | None = None,
        shape: Sequence[int] | None = None,
        channels: int = 3,
        dtype: tf.DType = tf.uint8,
        repeated: bool = False,
        dct_method: str = "",
    ) -> None:
        """Keeps the names of the features.

        Args:
            image_key: By default `image/encoded`.
            format_key: By default `image/format`: `raw` for bytes of `dtype`; JPEG, PNG, GIF (the first frame) and BMP
                are known by their first bytes.
            shape: [height, width, channels], if all images have the same. Raw images need it.
            channels: The number of channels.
            dtype: Type of the pixels; the values stay those of 8 bits.
            repeated: Decode a vector of images, all of one size.
            dct_method: `INTEGER_FAST` or `INTEGER_ACCURATE`, a hint for JPEG; empty for the default.
        """
        self._image_key = image_key or "image/encoded"
        self._format_key = format_key or "image/format"
        self._shape = shape
        self._channels = channels
        self._dtype = dtype
        self._repeated = repeated
        self._dct_method = dct_method
        super().__init__([self._image_key, self._format_key])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Returns the image, [height, width, channels], or [images, height, width, channels]."""
        image = keys_to_tensors[self._image_key]
        image_format = keys_to_tensors[self._format_key]
        if not self._repeated:
            return self._decode(image, image_format)
        return tf.map_fn(lambda x: self._decode(x, image_format), dense(image), fn_output_signature=self._dtype)

    def _decode(self, encoded: Any, image_format: Any) -> Any:
        def jpeg() -> Any:
            image = tf.io.decode_jpeg(encoded, self._channels, dct_method=self._dct_method)
            return tf.cast(image, self._dtype)

        def other() -> Any:
            image = tf.io.decode_image(encoded, self._channels, expand_animations=False)
            return tf.cast(image, self._dtype)

        def file() -> Any:
            return tf.cond(tf.io.is_jpeg(encoded), jpeg, other, name="cond_jpeg")

        def raw() -> Any:
            return tf.io.decode_raw(encoded, self._dtype)

        is_raw = tf.reduce_any(tf.equal(image_format, ["raw", "RAW"]))
        image = tf.cond(is_raw, raw, file)
        if self._shape is None:
            return tf.ensure_shape(image, [None, None, self._channels])
        return tf.reshape(image, self._shape)


def prefixed(handler: str, keys: Sequence[str] | None, default: Sequence[str], prefix: str | None) -> list[str]:
    """Returns the full names of a handler's features.

    Raises:
        ValueError: If there are not as many as by default.
    """
    keys = default if keys is None else keys
    if len(keys) != len(default):
        raise ValueError(f"{handler} expects {len(default)} keys, for {', '.join(default)}, but got {len(keys)}.")
    return [(prefix or "") + key for key in keys]
