"""Small files of records, and how the tests read what queues hold."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from slimexp.slim import tfexample_decoder

v1 = tf.compat.v1


def bytes_feature(*values: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def int_feature(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def float_feature(*values: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def example(**features: tf.train.Feature) -> bytes:
    """Returns a serialized example; `__` in a name stands for a slash."""
    named = {name.replace("__", "/"): feature for name, feature in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString()


def picture(number: int, image_format: str = "PNG", size: tuple[int, int] = (4, 3)) -> bytes:
    """Returns the file of a picture of one grey, `number`."""
    file = io.BytesIO()
    Image.fromarray(np.full([size[1], size[0], 3], number, np.uint8)).save(file, image_format)
    return file.getvalue()


def write(folder: Path, num_files: int, num_records: int) -> list[str]:
    """Writes files of examples, each a picture and its number, counted through all files."""
    paths = []
    for file in range(num_files):
        path = str(folder / f"part-{file}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(file * num_records, (file + 1) * num_records):
                encoded = bytes_feature(picture(number))
                writer.write(example(image__encoded=encoded, image__class__label=int_feature(number)))
        paths.append(path)
    return paths


def decoder() -> tfexample_decoder.TFExampleDecoder:
    """Returns the decoder of those files: `image` and `label`."""
    return tfexample_decoder.TFExampleDecoder(
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/format": tf.io.FixedLenFeature([], tf.string, default_value="png"),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
        {
            "image": tfexample_decoder.Image(),
            "label": tfexample_decoder.Tensor("image/class/label"),
        },
    )


@contextlib.contextmanager
def running() -> Iterator[Callable[[Any], Any]]:
    """Opens a session with the graph's queue runners running; yields its `run`. No thread outlives it."""
    coordinator = tf.train.Coordinator()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        threads = v1.train.start_queue_runners(session, coordinator)
        try:
            yield session.run
        finally:
            coordinator.request_stop()
            session.run([queue.close(cancel_pending_enqueues=True) for queue in _queues()])
            coordinator.join(threads, stop_grace_period_secs=20)
            assert not any(thread.is_alive() for thread in threads)


def _queues() -> list[Any]:
    runners = v1.get_collection(v1.GraphKeys.QUEUE_RUNNERS)
    return [runner.queue for runner in runners]


def everything(run: Callable[[Any], Any], tensors: Any) -> list[Any]:
    """Reads until the queues are empty for good."""
    results = []
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            results.append(run(tensors))
    return results
