from __future__ import annotations

import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
analyzer = slim.model_analyzer


def test_sizes_and_lists(capsys):
    with tf.Graph().as_default() as graph:
        images = v1.placeholder(tf.float32, [None, 4], name="images")
        slim.fully_connected(images, 3, scope="fc")
        assert analyzer.analyze_vars(slim.get_model_variables(), print_info=True) == (15, 60)
        printed = capsys.readouterr().out.splitlines()
        assert printed[3:] == [
            "fc/weights:0 (float32 4x3) [12, bytes: 48]",
            "fc/biases:0 (float32 3) [3, bytes: 12]",
            "---------",
            "Total size of variables: 15",
            "Total bytes of variables: 60",
        ]
        half = slim.variable("half", [2], tf.float16)
        assert analyzer.analyze_vars([half]) == (2, 4)
    with tf.Graph().as_default() as graph:
        v1.placeholder(tf.float32, [None, 4], name="images")
        v1.placeholder(tf.float32, name="any")
        tf.split(tf.zeros([2, 6], name="zeros"), 2, axis=1, name="split")
        tf.no_op(name="nothing")
        # zeros (12), the axis (1), and two halves of 6; images are of no known size.
        assert analyzer.analyze_ops(graph, print_info=True) == 25
        printed = capsys.readouterr().out.splitlines()
    assert "images\t->\t(float32 ?x4)\t[0]" in printed
    assert "any\t->\t(float32 unknown shape)\t[0]" in printed
    assert "split\t->\t(float32 2x3) (float32 2x3)\t[12]" in printed
    assert "nothing\t->\t[0]" in printed
    assert printed[-1] == "Total size: 25"
