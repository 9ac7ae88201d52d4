"""Turn images into sequences of their columns and back, as recurrent layers over images want it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.layers.common import OutputsCollections, channels_first, known_rank, scoped_alias

__all__ = ["images_to_sequence", "sequence_to_images"]


@add_arg_scope
def images_to_sequence(
    inputs: Any, data_format: str = "NHWC", outputs_collections: OutputsCollections = None, scope: str | None = None
) -> Any:
    """Makes each row of pixels a sequence along the width.

    Args:
        inputs: [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`.
        data_format: `NHWC` or `NCHW`.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `ImagesToSequence`.

    Returns:
        [width, batch * height, channels].

    Raises:
        ValueError: If rank or data format do not fit.
    """
    first = channels_first("images_to_sequence", data_format, 2)
    with tf.compat.v1.name_scope(scope, "ImagesToSequence", [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        known_rank("images_to_sequence", inputs, 4, 4)
        if first:
            inputs = tf.transpose(inputs, [0, 2, 3, 1])  # [batch, c, h, w] -> [batch, h, w, c]
        batch, height, width, channels = inputs.shape.as_list()
        sizes = tf.shape(inputs)
        columns = tf.transpose(inputs, [2, 0, 1, 3])  # [w, batch, h, c]
        outputs = tf.reshape(columns, tf.stack([sizes[2], sizes[0] * sizes[1], sizes[3]]))
        rows = None if batch is None or height is None else batch * height
        outputs.set_shape([width, rows, channels])
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)


@add_arg_scope
def sequence_to_images(
    inputs: Any,
    height: int,
    output_data_format: str = "channels_last",
    outputs_collections: OutputsCollections = None,
    scope: str | None = None,
) -> Any:
    """Puts sequences that `images_to_sequence` made together to images again.

    Args:
        inputs: [width, batch * height, channels].
        height: The height of the images.
        output_data_format: `channels_last` or `channels_first`.
        outputs_collections: Collections for the output.
        scope: Name of the layer's name scope; by default `SequenceToImages`.

    Returns:
        [batch, height, width, channels], or [batch, channels, height, width] for `channels_first`.

    Raises:
        ValueError: If the rank or the data format does not fit, or the number of sequences is no multiple of `height`.
    """
    if output_data_format not in ("channels_last", "channels_first"):
        raise ValueError(
            f"sequence_to_images: output_data_format={output_data_format!r} must be channels_last or channels_first."
        )
    with tf.compat.v1.name_scope(scope, "SequenceToImages", [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        known_rank("sequence_to_images", inputs, 3, 3)
        width, rows, channels = inputs.shape.as_list()
        if rows is not None and rows % height:
            raise ValueError(f"sequence_to_images: {rows} sequences are no whole number of images of height {height}.")
        sizes = tf.shape(inputs)
        images = tf.reshape(inputs, tf.stack([sizes[0], sizes[1] // height, height, sizes[2]]))
        images.set_shape([width, None if rows is None else rows // height, height, channels])
        # [w, batch, h, c] -> [batch, c, h, w] or [batch, h, w, c]
        outputs = tf.transpose(images, [1, 3, 2, 0] if output_data_format == "channels_first" else [1, 2, 0, 3])
        return utils.collect_named_outputs(outputs_collections, scoped_alias(sc), outputs)
