from __future__ import annotations

import tensorflow as tf

from slimexp import slim
from slimexp.nets.dense import classify


def test_fc6_may_pad_and_biases_are_as_asked():
    with tf.Graph().as_default(), tf.compat.v1.variable_scope("net") as root:
        images = tf.ones([2, 9, 9, 3])
        with slim.arg_scope([slim.conv2d], outputs_collections="own"):
            net, end_points = classify(
                images,
                4,
                inputs=images,
                root=root,
                collection="own",
                num_hidden=(5, 6),
                kernel_size=(3, 3),
                padding="SAME",
                is_training=True,
                dropout_keep_prob=0.5,
                spatial_squeeze=False,
                global_pool=False,
                hidden_biases_initializer=tf.compat.v1.constant_initializer(0.1),
            )
        assert {name: end_point.shape.as_list() for name, end_point in end_points.items()} == {
            "net/fc6": [2, 9, 9, 5],
            "net/fc7": [2, 9, 9, 6],
            "net/fc8": [2, 9, 9, 4],
        }
        assert net is end_points["net/fc8"]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            biases = session.run(slim.get_variables_by_suffix("biases"))
        assert [round(float(b[0]), 3) for b in biases] == [0.1, 0.1, 0.0]
