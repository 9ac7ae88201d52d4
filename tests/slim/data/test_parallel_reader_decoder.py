from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.slim.data.parallel_reader_decoder import DatasetDataProvider, ParallelReaderDecoder, parallel_read_decode
from tests.slim.data import records

v1 = tf.compat.v1


@pytest.mark.parametrize("shuffle", [False, True])
def test_each_epoch_has_each_example(tmp_path, shuffle):
    paths = records.write(tmp_path, 3, 4)
    dataset = slim.dataset.Dataset(paths, v1.TFRecordReader, records.decoder(), 12, None)
    with tf.Graph().as_default():
        provider = DatasetDataProvider(
            dataset, num_readers=3, shuffle=shuffle, num_epochs=2, common_queue_capacity=5, common_queue_min=2
        )
        assert provider.list_items() == ["image", "label", "record_key"]
        image, label, key = provider.get(["image", "label", "record_key"])
        assert image.shape.as_list() == [None, None, 3]
        assert label.shape == key.shape == ()
        with records.running() as run:
            read = records.everything(run, [image, label, key])
    assert sorted(int(label) for _, label, _ in read) == sorted([*range(12), *range(12)])
    for image, label, key in read:
        assert np.all(image == label)
        assert f"part-{label // 4}.tfrecord:" in key.decode()


class ListedPhotos(slim.data_decoder.DataDecoder):
    """Lines such as `0.jpg -1:* 1:0,2`: reads and decodes the image, and finds the labels with NumPy."""

    def __init__(self, folder, num_labels, meeting=None):
        self.folder = folder
        self.num_labels = num_labels
        self.meeting = meeting

    def list_items(self):
        return ["image", "labels"]

    def decode(self, data, items):
        path = tf.strings.split([data], " ").values[0]
        encoded = tf.io.read_file(tf.strings.join([self.folder, "/", path]))
        image = tf.ensure_shape(tf.io.decode_jpeg(encoded, 3), [3, 4, 3])
        labels = tf.ensure_shape(tf.numpy_function(self._labels, [data], tf.int32), [self.num_labels])
        return [{"image": image, "labels": labels}[item] for item in items]

    def _labels(self, line):
        if self.meeting is not None:
            self.meeting.wait(timeout=20)
        labels = np.zeros(self.num_labels, np.int32)
        for term in line.decode().split()[1:]:
            value, _, where = term.partition(":")
            labels[slice(None) if where == "*" else [int(w) for w in where.split(",")]] = int(value)
        return labels


@pytest.fixture
def lists(tmp_path):
    """Two list files of two photos each, which stay files of their own."""
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(records.picture(50 * number, "JPEG"))
    lines = ["0.jpg -1:* 1:0,2\n", "1.jpg -1:* 1:1\n", "2.jpg 1:2\n", "3.jpg -1:* 0:0\n"]
    (tmp_path / "a.txt").write_text("".join(lines[:2]))
    (tmp_path / "b.txt").write_text("".join(lines[2:]))
    return str(tmp_path / "[ab].txt")


def test_photos_of_a_list_file_are_decoded_by_all_threads_at_once(tmp_path, lists):
    # Two threads must decode at the same time, else this barrier breaks and no example comes.
    decoder = ListedPhotos(str(tmp_path), 3, threading.Barrier(2))
    with tf.Graph().as_default():
        key, items = parallel_read_decode(
            lists, v1.TextLineReader, decoder, num_epochs=1, num_readers=2, shuffle=False, capacity=4
        )
        assert items["image"].shape == (3, 4, 3)
        images, labels = v1.train.batch([items["image"], items["labels"]], batch_size=4)
        with records.running() as run:
            images, labels = run([images, labels])
    by_grey = {round(float(image.mean()) / 50): label.tolist() for image, label in zip(images, labels, strict=True)}
    assert by_grey == {0: [1, -1, 1], 1: [-1, 1, -1], 2: [0, 0, 1], 3: [0, -1, -1]}
    assert key.op.name.startswith("parallel_read_decode/")


def test_only_what_is_wanted_is_decoded(tmp_path, lists):
    with tf.Graph().as_default():
        names = v1.train.string_input_producer([lists])
        reader = ParallelReaderDecoder(v1.TextLineReader, ListedPhotos(str(tmp_path), 3), ["labels"], num_readers=2)
        assert reader.num_readers == 2
        _, items = reader.read(names)
        assert list(items) == ["labels"]
        assert not [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "DecodeImage"]


def test_a_photo_that_cannot_be_decoded_surfaces(tmp_path, lists):
    (tmp_path / "2.jpg").write_bytes(b"no photo")
    with tf.Graph().as_default(), v1.Session() as session:
        decoder = ListedPhotos(str(tmp_path), 3)
        _, items = parallel_read_decode(lists, v1.TextLineReader, decoder, num_readers=2, shuffle=False)
        coordinator = tf.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        with contextlib.suppress(tf.errors.OutOfRangeError, tf.errors.CancelledError):
            while not coordinator.should_stop():
                session.run(items)
        with pytest.raises(tf.errors.InvalidArgumentError, match="JPEG"):
            coordinator.join(threads)


def test_refusals(tmp_path):
    decoder = records.decoder()
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="num_readers=0 must be 1 or more"):
            ParallelReaderDecoder(v1.TFRecordReader, decoder, num_readers=0)
        with pytest.raises(ValueError, match="The decoder has no item 'mask'; it has image, label"):
            ParallelReaderDecoder(v1.TFRecordReader, decoder, ["mask"])
        with pytest.raises(ValueError, match="min_after_dequeue=128 must be less than capacity=100"):
            parallel_read_decode("file", v1.TFRecordReader, decoder, capacity=100)
        sparse = slim.tfexample_decoder.TFExampleDecoder(
            {"boxes": tf.io.VarLenFeature(tf.float32)},
            {"boxes": slim.tfexample_decoder.ItemHandlerCallback("boxes", lambda features: features["boxes"])},
        )
        with pytest.raises(ValueError, match="The item 'boxes' is sparse, which a queue cannot hold"):
            parallel_read_decode("file", v1.TFRecordReader, sparse)
        with pytest.raises(ValueError, match="No data files found"):
            parallel_read_decode(str(tmp_path / "*"), v1.TFRecordReader, decoder)
