"""The initializer that scripts ask the library's network modules for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["trunc_normal"]


def trunc_normal(stddev: float) -> Any:
    """Returns an initializer of normal numbers of mean 0, those beyond two deviations being drawn again."""
    return tf.compat.v1.truncated_normal_initializer(0.0, stddev)
