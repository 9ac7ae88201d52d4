from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
IMAGES = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.float32)


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


@pytest.mark.parametrize("shape", [[2, 3, 4, 5], [None, 3, 4, 5], [None, None, None, 5]])
def test_there_and_back(session, shape):
    inputs = v1.placeholder(tf.float32, shape)
    sequence = slim.images_to_sequence(inputs, outputs_collections="out")
    back = slim.sequence_to_images(sequence, 3, outputs_collections="out")
    first = slim.sequence_to_images(sequence, 3, output_data_format="channels_first")
    again = slim.images_to_sequence(first, data_format="NCHW")
    assert back.shape.as_list()[1:2] == [3]
    assert list(slim.utils.convert_collection_to_dict("out")) == ["ImagesToSequence", "SequenceToImages"]
    values, back, first, again = session.run([sequence, back, first, again], {inputs: IMAGES})
    np.testing.assert_array_equal(values, IMAGES.transpose(2, 0, 1, 3).reshape(4, 6, 5))
    np.testing.assert_array_equal(back, IMAGES)
    np.testing.assert_array_equal(first, np.moveaxis(IMAGES, -1, 1))
    np.testing.assert_array_equal(again, values)


def test_what_they_refuse():
    with pytest.raises(ValueError, match="6 sequences are no whole number of images of height 4"):
        slim.sequence_to_images(tf.ones([4, 6, 5]), 4)
    with pytest.raises(ValueError, match="output_data_format='NHWC' must be channels_last or channels_first"):
        slim.sequence_to_images(tf.ones([4, 6, 5]), 3, output_data_format="NHWC")
    with pytest.raises(ValueError, match="images_to_sequence: data_format='CHWN' must be NHWC or NCHW"):
        slim.images_to_sequence(IMAGES, data_format="CHWN")
