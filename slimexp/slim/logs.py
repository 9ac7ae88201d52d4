"""The logger of slim.

It stands below TensorFlow's own, so that `tf.compat.v1.logging.set_verbosity` governs what a script of old shows, as it
did in TF-Slim.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ["logger"]

logger = tf.get_logger().getChild("slim")
