"""Decoding by TensorFlow's ops alone: as evaluation decodes, in every format; what is no picture is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.export.decoding import decode_window_by_ops
from slimexp.pipeline.images.decode import decode_window
from tests.export.pictures import bad_pictures, encoded, good_pictures, orientation, smooth

GOOD, BAD = good_pictures(), bad_pictures()


def most_of_it(height, width):
    y, x = height // 10, width // 7
    return tf.stack([y, x, height - 2 * y, width - x])


def traced(decode, **options):
    return tf.function(
        lambda contents: decode(contents, most_of_it, **options), input_signature=[tf.TensorSpec([], tf.string)]
    )


@pytest.fixture(scope="module")
def by_ops():
    return traced(decode_window_by_ops, exif=True, size_px=20)


@pytest.fixture(scope="module")
def as_evaluated():
    return traced(decode_window, exif=True, size_px=20)


@pytest.mark.parametrize("name", GOOD)
def test_a_picture_is_the_one_that_evaluation_sees(name, by_ops, as_evaluated):
    got, wanted = by_ops(GOOD[name]).numpy(), as_evaluated(GOOD[name]).numpy()
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_picture_is_refused(name, by_ops):
    with pytest.raises(tf.errors.InvalidArgumentError):
        by_ops(BAD[name])


def test_the_refusal_says_what_it_is_and_what_there_could_be(by_ops):
    with pytest.raises(tf.errors.InvalidArgumentError, match="no JPEG, PNG, WebP, GIF or BMP image"):
        by_ops(BAD["text"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="cut short or damaged: there is no end marker"):
        by_ops(BAD["half a jpeg"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="kind of BMP is not decoded; save it as PNG"):
        by_ops(BAD["bmp of an odd kind"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="The BMP is cut short"):
        by_ops(BAD["half a bmp"])


def test_without_exif_and_at_full_scale_it_is_evaluation_s_as_well():
    by_ops = traced(decode_window_by_ops, exif=False, size_px=20, scaled=False)
    as_evaluated = traced(decode_window, exif=False, size_px=20, scaled=False)
    for name in ("jpeg turned 6", "jpeg large turned", "png turned", "webp alpha turned"):
        np.testing.assert_array_equal(by_ops(GOOD[name]), as_evaluated(GOOD[name]), err_msg=name)


def test_there_is_no_python_in_the_graph(by_ops):
    definition = by_ops.get_concrete_function().graph.as_graph_def()
    kinds = {node.op for function in definition.library.function for node in function.node_def}
    kinds |= {node.op for node in definition.node}
    assert "DecodeAndCropJpeg" in kinds
    assert not {kind for kind in kinds if "PyFunc" in kind}


def test_a_picture_is_decoded_the_same_whatever_surrounds_it_in_the_file(by_ops):
    image = smooth()
    plain = by_ops(encoded(image, "JPEG", quality=90)).numpy()
    comment = by_ops(encoded(image, "JPEG", quality=90, comment=b"x" * 60_000, exif=orientation(1))).numpy()
    np.testing.assert_array_equal(plain, comment)
