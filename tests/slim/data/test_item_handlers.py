from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.slim.data import item_handlers as handlers
from slimexp.slim.data.tfexample_decoder import TFExampleDecoder
from tests.slim.data.records import bytes_feature, example, float_feature, int_feature, picture


def decode(handler, features, record):
    """Decodes an item of one example, eagerly."""
    (item,) = TFExampleDecoder(features, {"item": handler}).decode(tf.constant(record))
    return item


VAR_INT = tf.io.VarLenFeature(tf.int64)
VAR_FLOAT = tf.io.VarLenFeature(tf.float32)
VAR_STRING = tf.io.VarLenFeature(tf.string)


def test_a_tensor_and_its_shape():
    record = example(
        values=float_feature(1, 2, 3, 4, 5, 6), shape=int_feature(3, 2), h=int_feature(2), w=int_feature(3)
    )
    features = {"values": VAR_FLOAT, "shape": VAR_INT, "h": VAR_INT, "w": tf.io.FixedLenFeature([1], tf.int64)}
    assert decode(handlers.Tensor("values"), features, record).shape == (6,)
    assert decode(handlers.Tensor("values", shape_keys="shape"), features, record).numpy().tolist()[2] == [5, 6]
    assert decode(handlers.Tensor("values", shape_keys=["h", "w"]), features, record).numpy().tolist()[1] == [4, 5, 6]
    assert decode(handlers.Tensor("values", shape=[6, 1]), features, record).shape == (6, 1)
    fixed = {"values": tf.io.FixedLenFeature([6], tf.float32)}
    assert decode(handlers.Tensor("values", shape=(1, 6)), fixed, record).shape == (1, 6)
    with pytest.raises(ValueError, match=r"Give either shape_keys='shape' or shape=\[6\] for 'values', not both"):
        handlers.Tensor("values", shape_keys="shape", shape=[6])


def test_absent_strings_are_empty():
    item = decode(handlers.Tensor("text"), {"text": VAR_STRING}, example(text=bytes_feature(b"a", b"b")))
    assert item.numpy().tolist() == [b"a", b"b"]
    assert decode(handlers.Tensor("text"), {"text": VAR_STRING}, example()).shape == (0,)


def test_a_callback_and_its_keys():
    handler = handlers.ItemHandlerCallback(("a", "b"), lambda features: features["a"] + features["b"])
    assert handler.keys == ["a", "b"]
    features = {key: tf.io.FixedLenFeature([], tf.int64) for key in "ab"}
    assert int(decode(handler, features, example(a=int_feature(3), b=int_feature(4)))) == 7


def test_boxes():
    record = example(**{f"box__{k}": float_feature(i, i + 10) for i, k in enumerate(("ymin", "xmin", "ymax", "xmax"))})
    keys = ("ymin", "xmin", "ymax", "xmax")
    for features in (
        {f"box/{k}": VAR_FLOAT for k in keys},
        {f"box/{k}": tf.io.FixedLenFeature([2], tf.float32) for k in keys},
    ):
        boxes = decode(handlers.BoundingBox(prefix="box/"), features, record)
        assert boxes.numpy().tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]
    with pytest.raises(ValueError, match="BoundingBox expects 4 keys, for ymin, xmin, ymax, xmax, but got 3"):
        handlers.BoundingBox(["a", "b", "c"])


def test_a_lookup():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["cat", "dog"], tf.constant([0, 1], tf.int64)), default_value=-1
    )
    record = example(name=bytes_feature(b"dog", b"horse"))
    item = decode(handlers.LookupTensor("name", table), {"name": VAR_STRING}, record)
    assert item.numpy().tolist() == [1, -1]


def test_a_backup_where_the_first_is_empty():
    handler = handlers.BackupHandler(handlers.Tensor("a"), handlers.Tensor("b"))
    assert handler.keys == ["a", "b"]
    features = {"a": VAR_INT, "b": VAR_INT}
    assert decode(handler, features, example(a=int_feature(1), b=int_feature(2))).numpy() == [1]
    assert decode(handler, features, example(b=int_feature(2))).numpy() == [2]
    with pytest.raises(ValueError, match="backup='b' must be an ItemHandler, not str"):
        handlers.BackupHandler(handlers.Tensor("a"), "b")


def test_a_sparse_tensor():
    record = example(indices=int_feature(1, 4), values=float_feature(0.5, 2.5), size=int_feature(6))
    features = {"indices": VAR_INT, "values": VAR_FLOAT, "size": VAR_INT}
    item = decode(handlers.SparseTensor(shape=[5]), features, record)
    assert item.indices.numpy().tolist() == [[1], [4]]
    assert item.dense_shape.numpy().tolist() == [5]
    dense = decode(handlers.SparseTensor(shape_key="size", densify=True, default_value=-1), features, record)
    assert dense.numpy().tolist() == [-1, 0.5, -1, -1, 2.5, -1]
    assert decode(handlers.SparseTensor(), features, record).dense_shape.numpy().tolist() == [2]


IMAGE = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "image/format": tf.io.FixedLenFeature([], tf.string)}


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "GIF", "BMP"])
@pytest.mark.parametrize("mapped", [False, True])
def test_an_image_eagerly_and_in_a_pipeline(image_format, mapped):
    record = example(
        image__encoded=bytes_feature(picture(200, image_format)), image__format=bytes_feature(image_format.encode())
    )
    decoder = TFExampleDecoder(IMAGE, {"image": handlers.Image()})
    if mapped:
        dataset = tf.data.Dataset.from_tensors(record).map(lambda r: decoder.decode(r)[0])
        assert dataset.element_spec.shape.as_list() == [None, None, 3]
        (image,) = dataset
    else:
        (image,) = decoder.decode(tf.constant(record))
    assert image.dtype == tf.uint8
    np.testing.assert_array_equal(image, np.full([3, 4, 3], 200))


def test_raw_images_grey_ones_and_other_types():
    raw = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    record = example(image__encoded=bytes_feature(raw.tobytes()), image__format=bytes_feature(b"RAW"))
    image = decode(handlers.Image(shape=[2, 4, 3], dtype=tf.float32), IMAGE, record)
    np.testing.assert_array_equal(image, raw)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Shape .*24.* not compatible .*\?,\?,3"):
        decode(handlers.Image(dtype=tf.float32), IMAGE, record)
    record = example(image__encoded=bytes_feature(picture(7, "JPEG")), image__format=bytes_feature(b"jpg"))
    image = decode(handlers.Image(channels=1, dtype=tf.uint16, dct_method="INTEGER_ACCURATE"), IMAGE, record)
    np.testing.assert_array_equal(image, np.full([3, 4, 1], 7))
    assert image.dtype == tf.uint16


def test_several_images():
    features = {**IMAGE, "image/encoded": VAR_STRING}
    record = example(image__encoded=bytes_feature(picture(1), picture(2)), image__format=bytes_feature(b"png"))
    images = decode(handlers.Image(repeated=True), features, record)
    assert images.numpy()[:, 0, 0, 0].tolist() == [1, 2]
