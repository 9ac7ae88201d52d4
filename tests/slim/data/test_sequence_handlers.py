from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp.slim.data.sequence_handlers import BoundingBoxSequence, KeypointsSequence, NumBoxesSequence
from slimexp.slim.data.tfexample_decoder import TFSequenceExampleDecoder
from tests.slim.data.records import float_feature, int_feature

VAR_FLOAT = tf.io.VarLenFeature(tf.float32)


def record(**frames):
    """Returns a serialized sequence example of features, each a list of frames, and `label` of the whole."""
    lists = {name: tf.train.FeatureList(feature=[float_feature(*frame) for frame in f]) for name, f in frames.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={"label": int_feature(9)}),
        feature_lists=tf.train.FeatureLists(feature_list=lists),
    ).SerializeToString()


def decode(handler, serialized, names):
    features = dict.fromkeys(names, VAR_FLOAT)
    (item,) = TFSequenceExampleDecoder({}, features, {"item": handler}).decode(tf.constant(serialized))
    return item


def test_boxes_of_frames():
    # One box, none, two boxes.
    sides = {"ymin": [[1], [], [2, 3]], "xmin": [[4], [], [5, 6]], "ymax": [[7], [], [8, 9]], "xmax": [[0], [], [1, 2]]}
    boxes = decode(BoundingBoxSequence(), record(**sides), sides)
    empty = [-1.0, -1, -1, -1]
    assert boxes.numpy().tolist() == [[[1, 4, 7, 0], empty], [empty, empty], [[2, 5, 8, 1], [3, 6, 9, 2]]]
    sparse = decode(BoundingBoxSequence(return_dense=False), record(**sides), sides)
    assert isinstance(sparse, tf.SparseTensor)
    with pytest.raises(ValueError, match="BoundingBoxSequence expects 4 keys, for ymin, xmin, ymax, xmax, but got 1"):
        BoundingBoxSequence(["ymin"])


def test_keypoints_of_frames():
    frames = {"p/y": [[1, 2], [3]], "p/x": [[4, 5], [6]]}
    points = decode(KeypointsSequence(prefix="p/", default_value=0.0), record(**frames), frames)
    assert points.numpy().tolist() == [[[1, 4], [2, 5]], [[3, 6], [0, 0]]]
    with pytest.raises(ValueError, match="KeypointsSequence expects 2 keys, for y, x, but got 3"):
        KeypointsSequence(["y", "x", "z"])


def test_the_number_of_boxes():
    frames = {"a": [[1], [], [2, 3]], "b": [[1], [], [2, 3]], "c": [[1], [], [2]]}
    assert decode(NumBoxesSequence("a"), record(**frames), frames).numpy().tolist() == [1, 0, 2]
    assert decode(NumBoxesSequence(["a", "b"]), record(**frames), frames).numpy().tolist() == [1, 0, 2]
    assert decode(NumBoxesSequence(["a", "c"], check_consistency=False), record(**frames), frames).shape == (3,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'a' and 'c' differ in their numbers of boxes"):
        decode(NumBoxesSequence(["a", "c"]), record(**frames), frames)
    with pytest.raises(ValueError, match="keys must not be empty"):
        NumBoxesSequence([])
    dense = {"a": tf.io.FixedLenSequenceFeature([1], tf.float32)}
    with pytest.raises(ValueError, match=r"'a' is a .*Tensor; a counted tensor must be of type tf.SparseTensor"):
        TFSequenceExampleDecoder({}, dense, {"item": NumBoxesSequence("a")}).decode(tf.constant(record(a=[[1], [2]])))
