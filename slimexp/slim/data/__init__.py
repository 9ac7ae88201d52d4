"""Reading data in graphs of old: datasets, their decoders, and the queues between them and a network.

All of it works in a `tf.Graph` with queue runners; the decoders also inside `tf.data` pipelines.
"""

from __future__ import annotations

from slimexp.slim.data import (
    data_decoder,
    data_provider,
    dataset,
    dataset_data_provider,
    parallel_reader,
    parallel_reader_decoder,
    prefetch_queue,
    tfexample_decoder,
)

__all__ = [
    "data_decoder",
    "data_provider",
    "dataset",
    "dataset_data_provider",
    "parallel_reader",
    "parallel_reader_decoder",
    "prefetch_queue",
    "tfexample_decoder",
]
