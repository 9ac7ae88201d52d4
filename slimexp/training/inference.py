"""The evaluation step of a classifier, under any `tf.distribute` strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.training.classifier import Classifier

__all__ = ["Inference"]

Batch = Mapping[str, tf.Tensor]


class Inference:
    """Takes batches through a network in inference mode: no dropout, batch norm by its moving statistics.

    Args:
        classifier: Its variables are there; their values at the time of a step count.
        strategy: Where the replicas are; the batches given to `step` come from its distributed datasets.
        weights: Variables to take instead of the classifier's, by their names: moving averages.
    """

    def __init__(
        self, classifier: Classifier, strategy: tf.distribute.Strategy, *, weights: Mapping[str, Any] | None = None
    ) -> None:
        self.classifier = classifier
        self.strategy = strategy
        self._weights = weights
        # Networks are built as in a graph of old: Python code that is run once, not converted (which takes seconds).
        self._evaluate = tf.function(self._replicas, autograph=False)

    def step(self, batch: Batch) -> dict[str, np.ndarray]:
        """Takes one batch through the network.

        Args:
            batch: `image`, float32 [B, S, S, 3], `label`, `valid` and `index`, as a `Feed` hands them out.

        Returns:
            `logits`, float32 [B, C], with the batch's `label`, `valid` and `index`, of all replicas together.
        """
        return {key: value.numpy() for key, value in self._evaluate(batch).items()}

    def _replicas(self, batch: Batch) -> dict[str, tf.Tensor]:
        def replica(batch: Batch) -> dict[str, tf.Tensor]:
            logits, _ = self.classifier(batch["image"], is_training=False, weights=self._weights)
            # As a number, since the replicas' values can be gathered only of such types.
            valid = tf.cast(batch["valid"], tf.int32)
            return {"logits": logits, "label": batch["label"], "valid": valid, "index": batch["index"]}

        values = self.strategy.run(replica, args=(batch,))
        gathered = {key: self.strategy.gather(value, axis=0) for key, value in values.items()}
        return {**gathered, "valid": tf.cast(gathered["valid"], tf.bool)}
