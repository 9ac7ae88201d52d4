"""Summaries under readable names, of single tensors and of whole collections."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def merged():
    """Tag -> value of all summaries of the graph; None for those that are no scalars."""
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        summary = v1.Summary.FromString(session.run(v1.summary.merge_all()))
    return {v.tag: v.simple_value if v.WhichOneof("value") == "simple_value" else None for v in summary.value}


def test_names():
    tensor = tf.constant([0.0, 2.0], name="scope/x")
    scalar = tf.constant(3.0, name="y")
    slim.summaries.add_histogram_summary(tensor, "h")
    slim.summaries.add_scalar_summary(scalar, prefix="p")
    slim.summaries.add_zero_fraction_summary(tensor, prefix="p")
    slim.summaries.add_zero_fraction_summary(tensor, "z")
    slim.summaries.add_image_summary(tf.zeros([1, 2, 2, 3]), "i", "p")
    assert merged() == {
        "h": None,
        "p/y": 3.0,
        "p/scope/x/zero_fraction": 0.5,
        "z/zero_fraction": 0.5,
        "p/i/image/0": None,
    }


def test_several_at_once():
    images = [tf.zeros([1, 2, 2, 1], name="a"), tf.zeros([1, 2, 2, 1], name="b")]
    scalars = [tf.constant(1.0, name="c"), tf.constant(2.0, name="d")]
    slim.summaries.add_image_summaries(images, prefix="images")
    slim.summaries.add_scalar_summaries(scalars, prefix="scalars")
    slim.summaries.add_histogram_summaries(scalars, prefix="histograms")
    slim.summaries.add_zero_fraction_summaries(scalars)
    assert list(merged()) == [
        "images/a/image/0",
        "images/b/image/0",
        "scalars/c",
        "scalars/d",
        "histograms/c",
        "histograms/d",
        "c/zero_fraction",
        "d/zero_fraction",
    ]


def test_values_are_printed_and_summarized_once(capfd):
    slim.summaries.add_scalar_summary(tf.constant(3.5), "loss", print_summary=True)
    assert merged() == {"loss": 3.5}
    assert capfd.readouterr().err.count("loss 3.5") == 1


def test_whole_collections():
    images = tf.ones([1, 4])
    weights = {"weights": [v1.GraphKeys.WEIGHTS], "biases": [v1.GraphKeys.BIASES]}
    with slim.arg_scope(
        [slim.fully_connected], variables_collections=weights, outputs_collections=v1.GraphKeys.ACTIVATIONS
    ):
        net = slim.fully_connected(images, 3, scope="fc1")
        slim.fully_connected(net, 2, activation_fn=tf.nn.relu6, scope="fc2")
    assert [s.op.type for s in slim.summarize_weights()] == ["HistogramSummary"] * 2
    slim.summarize_biases("fc1")
    slim.summarize_activations("fc2")
    slim.summarize_tensors([tf.constant(7, name="seven")])
    slim.summarize_tensor(tf.constant(8), "eight")
    assert list(merged()) == [
        "fc1/weights",
        "fc2/weights",
        "fc1/biases",
        "fc2/Relu6/zeros",
        "fc2/Relu6/sixes",
        "fc2/Relu6/activation",
        "seven",
        "eight",
    ]
    assert len(slim.summarize_variables()) == 4
