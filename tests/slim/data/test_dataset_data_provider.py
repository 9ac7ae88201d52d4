from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim.data import records

v1 = tf.compat.v1


@pytest.fixture
def dataset(tmp_path):
    paths = records.write(tmp_path, 2, 5)
    return slim.dataset.Dataset(paths, v1.TFRecordReader, records.decoder(), 10, {"image": "A grey.", "label": "It."})


@pytest.mark.parametrize("shuffle", [False, True])
def test_each_epoch_has_each_example(dataset, shuffle):
    with tf.Graph().as_default():
        provider = slim.dataset_data_provider.DatasetDataProvider(
            dataset, num_readers=2, shuffle=shuffle, num_epochs=2, common_queue_capacity=8, common_queue_min=2, seed=1
        )
        assert provider.list_items() == ["image", "label", "record_key"]
        assert provider.num_samples() == 10
        image, label, key = provider.get(["image", "label", "record_key"])
        assert image.shape.as_list() == [None, None, 3]
        assert label.shape == ()
        with records.running() as run:
            read = records.everything(run, [image, label, key])
    assert sorted(int(label) for _, label, _ in read) == sorted([*range(10), *range(10)])
    for image, label, key in read:
        assert image.shape == (3, 4, 3)
        assert np.all(image == label)
        assert f"part-{label // 5}.tfrecord:" in key.decode()


def test_a_record_key_that_is_an_item(dataset):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="record_key='label' is also the name of an item"):
        slim.dataset_data_provider.DatasetDataProvider(dataset, record_key="label")
