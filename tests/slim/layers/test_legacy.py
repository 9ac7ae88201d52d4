from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


def test_values_names_and_collections():
    values = np.arange(12, dtype=np.float32).reshape(2, 3, 2) - 6
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = v1.placeholder(tf.float32, [None, 3, 2])
        out = slim.legacy_relu(
            inputs,
            4,
            weight_init=v1.ones_initializer(),
            bias_init=v1.constant_initializer(0.5),
            output_collections=["o"],
        )
        flat = slim.legacy_linear(tf.ones([2, 2]), 1, weight_init=v1.ones_initializer(), bias_init=None, name="fc")
        assert out.shape.as_list() == [None, 3, 4]
        assert [v.op.name for v in v1.get_collection(v1.GraphKeys.WEIGHTS)] == ["fully_connected/weights", "fc/weights"]
        assert [v.op.name for v in v1.get_collection(v1.GraphKeys.BIASES)] == ["fully_connected/bias"]
        assert v1.get_collection(v1.GraphKeys.ACTIVATIONS) == [out, flat]
        assert v1.get_collection("o") == [out]
        assert slim.get_model_variables() == []
        session.run(v1.global_variables_initializer())
        out, flat = session.run([out, flat], {inputs: values})
    expected = np.maximum(values.sum(-1, keepdims=True) + 0.5, 0) * np.ones(4)
    np.testing.assert_allclose(out, expected)
    np.testing.assert_allclose(flat, [[2], [2]])


def test_what_it_refuses():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"legacy_fully_connected: the inputs must have rank 2 or more"):
            slim.legacy_fully_connected(tf.ones([2]), 3)
        with pytest.raises(ValueError, match="undefined channels dimension"):
            slim.legacy_fully_connected(v1.placeholder(tf.float32, [2, None]), 3)
