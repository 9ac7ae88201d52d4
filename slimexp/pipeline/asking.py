"""Asks Python from within the pipeline's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["ask"]


def ask(function: Callable[[Any], Any], value: tf.Tensor, dtype: tf.DType, shape: Any) -> tf.Tensor:
    """Calls a Python function whose answer may change from one iterator to the next.

    A `tf.Variable` would not do: it is state, because of which deterministic mode makes parallel calls take turns.

    Args:
        function: From `value`, as NumPy has it, to the answer.
        value: What it is given.
        dtype, shape: Those of the answer.

    Returns:
        The answer.
    """

    @tf.autograph.experimental.do_not_convert
    def answer(value: Any) -> np.ndarray:
        return np.asarray(function(value), dtype.as_numpy_dtype)

    return tf.ensure_shape(tf.numpy_function(answer, [value], dtype, stateful=False), shape)
