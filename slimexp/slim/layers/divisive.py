"""Generalized divisive normalization (Balle, Laparra and Simoncelli, arXiv 1511.06281), used in image compression."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from slimexp.slim.layers.common import Regularizer, as_floating, known_rank, num_channels
from slimexp.slim.variables import variable

__all__ = ["GDN", "gdn"]


class GDN:
    """A layer that divides each channel by a learned norm over all channels of the same pixel.

        y[i] = x[i] / sqrt(beta[i] + sum over j of gamma[j, i] * x[j] ** 2)

    Its first call makes the variables, further calls share them. Variables: `reparam_beta` [channels] and
    `reparam_gamma` [channels, channels], the square roots of beta and gamma, so that they train slowly near zero.

    Args:
        inverse: Multiply where else is divided: one step towards undoing the normalization.
        beta_min: The least beta, which keeps the root away from zero.
        gamma_init: gamma is at first this number times the identity; 0 makes the layer the identity at first.
        reparam_offset: Added before the roots, so that a parameter of exactly zero still has a gradient.
        data_format: `channels_last` or `channels_first`.
        activity_regularizer: A function of the output; its value goes into the collection of regularization losses.
        trainable: Whether the variables are trained.
        name: Name of the layer's variable scope; by default `gdn`, made unique.
        reuse: Whether to take existing variables; then `name` must be given.

    Attributes:
        beta: The norm's constant part, [channels], as of the last call.
        gamma: The norm's weights, [channels, channels], as of the last call.

    Raises:
        ValueError: If the data format is unknown.
    """

    def __init__(
        self,
        inverse: bool = False,
        beta_min: float = 1e-6,
        gamma_init: float = 0.1,
        reparam_offset: float = 2**-18,
        data_format: str = "channels_last",
        activity_regularizer: Regularizer | None = None,
        trainable: bool = True,
        name: Any = None,
        reuse: Any = None,
    ) -> None:
        if data_format not in ("channels_last", "channels_first"):
            raise ValueError(f"GDN: data_format={data_format!r} must be channels_last or channels_first.")
        self.inverse = inverse
        self.data_format = data_format
        self.beta: Any = None
        self.gamma: Any = None
        self._beta_min = beta_min
        self._gamma_init = gamma_init
        self._offset = reparam_offset
        self._activity_regularizer = activity_regularizer
        self._trainable = trainable
        self._name = name
        self._reuse = reuse
        self._scope: Any = None

    def __call__(self, inputs: Any) -> Any:
        """Normalizes the inputs.

        Args:
            inputs: Floating point [batch, *spatial, channels] or [batch, channels, *spatial], of rank 3 to 5.

        Returns:
            The output, shaped as the inputs.

        Raises:
            TypeError: If the inputs are not floating point numbers.
            ValueError: If the rank does not fit, or the number of channels is undefined.
        """
        again = self._scope is not None
        scope = self._scope if again else self._name
        with tf.compat.v1.variable_scope(scope, "gdn", [inputs], reuse=True if again else self._reuse) as self._scope:
            self._scope.set_partitioner(None)  # gamma begins as an identity matrix, which has no equal parts.
            inputs = as_floating("GDN", inputs)
            rank = known_rank("GDN", inputs, 3, 5)
            first = self.data_format == "channels_first"
            size = num_channels("GDN", inputs, 1 if first else -1)
            self.beta, self.gamma = self._parameters(size, inputs.dtype.base_dtype)
            values = tf.square(inputs)
            if first:
                # To the last place and back: pixels times a matrix is what every device has.
                values = tf.transpose(values, [0, *range(2, rank), 1])
            norm = tf.tensordot(values, self.gamma, [[rank - 1], [0]]) + self.beta
            if first:
                norm = tf.transpose(norm, [0, rank - 1, *range(1, rank - 1)])
            outputs = inputs * (tf.sqrt(norm) if self.inverse else tf.math.rsqrt(norm))
            outputs.set_shape(inputs.shape)
            if self._activity_regularizer is not None:
                loss = self._activity_regularizer(outputs)
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES, loss)
            return outputs

    apply = __call__

    def _parameters(self, size: int, dtype: tf.DType) -> tuple[Any, Any]:
        pedestal = self._offset**2

        def root_of_ones(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            return tf.sqrt(tf.ones(shape, dtype) + pedestal)

        def root_of_identity(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            return tf.sqrt(self._gamma_init * tf.eye(size, dtype=dtype) + pedestal)

        beta = variable("reparam_beta", [size], dtype, root_of_ones, trainable=self._trainable)
        gamma = variable("reparam_gamma", [size, size], dtype, root_of_identity, trainable=self._trainable)
        beta = _at_least(beta, (self._beta_min + pedestal) ** 0.5)
        gamma = _at_least(gamma, self._offset)
        return tf.square(beta) - pedestal, tf.square(gamma) - pedestal


def gdn(
    inputs: Any,
    inverse: bool = False,
    beta_min: float = 1e-6,
    gamma_init: float = 0.1,
    reparam_offset: float = 2**-18,
    data_format: str = "channels_last",
    activity_regularizer: Regularizer | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Normalizes the inputs by a new `GDN` layer, whose arguments these are."""
    layer = GDN(
        inverse, beta_min, gamma_init, reparam_offset, data_format, activity_regularizer, trainable, name, reuse
    )
    return layer(inputs)


def _at_least(values: Any, bound: float) -> Any:
    """Returns max(values, bound), through which a gradient that lifts a value above the bound still passes."""

    @tf.custom_gradient
    def bounded(x: Any) -> Any:
        return tf.maximum(x, tf.cast(bound, x.dtype)), lambda gradient: tf.where(
            (x >= tf.cast(bound, x.dtype)) | (gradient < 0), gradient, tf.zeros_like(gradient)
        )

    return bounded(tf.convert_to_tensor(values))
