"""Dropout (Srivastava et al., 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.randomness import layer_seed

__all__ = ["dropout"]


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: str | Sequence[str] | None = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """Sets elements to zero at random and divides the others by `keep_prob`, so that the expected sum stays.

    Within `stateless_randomness` the choice is a function of seed, step, replica and the layer's scope name; elsewhere
    it comes from TensorFlow's stateful generator.

    Args:
        inputs: Floating point, of any shape.
        keep_prob: The probability that an element is kept, in (0, 1]; a float or a scalar tensor.
        noise_shape: The shape of the random choice, broadcast to the inputs': e.g. [batch, 1, 1, channels] drops
            whole channels. None means the inputs' own shape.
        is_training: A bool or a scalar bool tensor; where false, the inputs go through unchanged.
        outputs_collections: Collections for the output.
        scope: Name of the layer's scope; by default `Dropout`, made unique.
        seed: Operation-level seed of the stateful generator.

    Returns:
        The output, shaped as the inputs.

    Raises:
        ValueError: If `keep_prob` is not in (0, 1].
    """
    if isinstance(keep_prob, (int, float)) and not 0 < keep_prob <= 1:
        raise ValueError(f"dropout: keep_prob={keep_prob} must be greater than 0 and at most 1.")
    with tf.compat.v1.variable_scope(scope, "Dropout", [inputs]) as sc:
        inputs = tf.convert_to_tensor(inputs)
        # Asked for outside of the branches, so that the layer's key does not depend on how is_training is given.
        stateless_seed = layer_seed(sc.name)

        def dropped() -> Any:
            rate = 1 - keep_prob
            # The draws are made in the type of what is dropped. In half precision they would be others than in single
            # precision and, of 8 bits, no longer of the rate that was asked for.
            half = inputs.dtype in (tf.float16, tf.bfloat16)
            values = tf.cast(inputs, tf.float32) if half else inputs
            if stateless_seed is not None:
                values = tf.nn.experimental.stateless_dropout(
                    values, rate, stateless_seed, rng_alg="philox", noise_shape=noise_shape
                )
            else:
                values = tf.nn.dropout(values, rate, noise_shape, seed)
            return tf.cast(values, inputs.dtype)

        outputs = utils.smart_cond(is_training, dropped, lambda: tf.identity(inputs))
        return utils.collect_named_outputs(outputs_collections, sc.name, outputs)
