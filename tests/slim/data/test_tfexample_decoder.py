from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp.slim.data.tfexample_decoder import KeypointsSequence, Tensor, TFExampleDecoder, TFSequenceExampleDecoder
from tests.slim.data import records
from tests.slim.data.test_sequence_handlers import VAR_FLOAT, record


def test_items_in_the_order_asked_for():
    decoder = records.decoder()
    assert decoder.list_items() == ["image", "label"]
    serialized = records.example(
        image__encoded=records.bytes_feature(records.picture(3)), image__class__label=records.int_feature(3)
    )
    label, image = decoder.decode(serialized, ["label", "image"])
    assert (int(label), image.shape) == (3, (3, 4, 3))
    assert [item.dtype for item in decoder.decode(serialized)] == [tf.uint8, tf.int64]
    with pytest.raises(ValueError, match="There is no item 'mask'; there is image, label"):
        decoder.decode(serialized, ["mask"])


def test_a_handler_of_a_feature_that_is_not_parsed():
    decoder = TFExampleDecoder({"a": tf.io.FixedLenFeature([], tf.int64)}, {"item": Tensor("b")})
    with pytest.raises(ValueError, match="The item 'item' needs the feature 'b', which the decoder does not parse"):
        decoder.decode(records.example(a=records.int_feature(1)))


def test_sequences_have_features_of_their_own_and_of_their_frames():
    decoder = TFSequenceExampleDecoder(
        {"label": tf.io.FixedLenFeature([1], tf.int64)},
        {"y": VAR_FLOAT, "x": VAR_FLOAT},
        {"label": Tensor("label"), "points": KeypointsSequence()},
    )
    assert decoder.list_items() == ["label", "points"]
    label, points = decoder.decode(record(y=[[1], [2]], x=[[3], [4]]))
    assert label.numpy().tolist() == [9]
    assert points.numpy().tolist() == [[[1, 3]], [[2, 4]]]
    with pytest.raises(ValueError, match="Context and sequence keys must differ, but both have y"):
        TFSequenceExampleDecoder({"y": VAR_FLOAT}, {"y": VAR_FLOAT, "x": VAR_FLOAT}, {})
