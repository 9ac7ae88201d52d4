"""Graphs of their own: TF-Slim's node names, a free batch size, nothing of training."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import nets
from slimexp.export.freezing import find_outputs
from slimexp.export.graphs import inference_graph, is_softmax_of
from slimexp.training.classifier import Classifier
from tests.export.small_net import small_net


def graph_of(network, task=None, size=None, **options):
    classifier = Classifier(network, num_classes=7, image_size=size or network.default_image_size)
    return inference_graph(
        lambda images: classifier.trace(images, is_training=False),
        image_size=classifier.image_size,
        task=task,
        **options,
    )


@pytest.mark.parametrize(
    ("network", "logits", "scores"),
    [
        ("vgg_16", "vgg_16/fc8/squeezed", "scores"),
        ("lenet", "LeNet/fc4/BiasAdd", "LeNet/Predictions/Reshape_1"),
        pytest.param(
            "inception_v3",
            "InceptionV3/Logits/SpatialSqueeze",
            "InceptionV3/Predictions/Reshape_1",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "resnet_v1_50",
            "resnet_v1_50/SpatialSqueeze",
            "resnet_v1_50/predictions/Reshape_1",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_nodes_are_called_as_tf_slim_calls_them(network, logits, scores):
    graph = graph_of(getattr(nets, network), "single")
    assert (graph.input, graph.logits, graph.scores) == ("input", logits, scores)
    placeholder = next(node for node in graph.definition.node if node.name == "input")
    assert placeholder.attr["shape"].shape.dim[0].size == -1
    assert not any("dropout" in node.name.lower() and "random" in node.op.lower() for node in graph.definition.node)


def test_scores_are_added_for_labels_on_their_own_and_for_networks_without():
    graph = graph_of(small_net, "multi", size=16)
    assert graph.scores == "scores"
    assert next(node.op for node in graph.definition.node if node.name == "scores") == "Sigmoid"
    assert graph_of(small_net, "single", size=16).scores == "Small/Predictions/Reshape_1"
    assert graph_of(nets.vgg_16, None).scores is None


def test_a_fixed_batch_and_the_outputs_that_are_found():
    graph = graph_of(small_net, None, size=16, batch_size=5)
    assert [dim.size for dim in graph.definition.node[0].attr["shape"].shape.dim] == [5, 16, 16, 3]
    assert find_outputs(graph.definition) == ["Small/Predictions/Reshape_1"]
    assert graph.shapes["Small/conv1/weights"] == (3, 3, 3, 6)


def test_only_a_softmax_of_the_logits_counts_as_their_probabilities():
    with tf.Graph().as_default():
        logits = tf.compat.v1.placeholder(tf.float32, [None, 7])
        shaped = tf.reshape(tf.nn.softmax(tf.reshape(logits, [-1, 7])), [-1, 7])
        assert is_softmax_of(shaped, logits)
        assert not is_softmax_of(tf.nn.softmax(2 * logits), logits)
        assert not is_softmax_of(tf.sigmoid(logits), logits)
        assert not is_softmax_of(tf.nn.softmax(logits)[:, tf.newaxis], logits)
