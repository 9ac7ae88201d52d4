from __future__ import annotations

import tensorflow as tf

from slimexp.nets.overfeat import overfeat
from tests.nets import checks


def test_end_points():
    assert checks.shapes(overfeat, num_classes=10) == {
        "overfeat/conv1": [56, 56, 64],
        "overfeat/pool1": [28, 28, 64],
        "overfeat/conv2": [24, 24, 256],
        "overfeat/pool2": [12, 12, 256],
        "overfeat/conv3": [12, 12, 512],
        "overfeat/conv4": [12, 12, 1024],
        "overfeat/conv5": [12, 12, 1024],
        "overfeat/pool5": [6, 6, 1024],
        "overfeat/fc6": [1, 1, 3072],
        "overfeat/fc7": [1, 1, 4096],
        "overfeat/fc8": [10],
    }


def test_features_and_maps():
    with tf.Graph().as_default():
        features, table = checks.build(overfeat, 100, num_classes=None, global_pool=True)
        assert features.shape == (2, 1, 1, 4096)
        assert list(table)[-1] == "global_pool"
    with tf.Graph().as_default():
        logits, _ = checks.build(overfeat, 281, num_classes=3, spatial_squeeze=False)
        assert logits.shape == (2, 2, 2, 3)


def test_sizes():
    checks.check_unknown_batch_size(overfeat, 71)
    checks.check_smallest_size(overfeat)
    checks.check_builds(overfeat, 231, 120)
    checks.check_heads(overfeat)
    checks.check_refused(overfeat, 70, "overfeat: images of 70 x 70 pixels are too small; each side needs at least 71")
    checks.check_refused(overfeat, 281, r"overfeat: images of 281 x 281 .* map of 2 x 2 logits.*global_pool")
