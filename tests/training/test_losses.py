"""The classification loss against NumPy, for both tasks and what each leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.training.losses import add_classification_losses


def loss_and_gradient(logits, labels, aux=None, **settings):
    """Returns the sum of the losses added, and the gradient of the main logits."""

    @tf.function
    def build(logits):
        end_points = {} if aux is None else {"AuxLogits": tf.constant(aux, tf.float32)}
        with slim.collected() as own:
            add_classification_losses(logits, end_points, tf.constant(labels), **settings)
        total = tf.add_n(own.losses)
        return total, tf.gradients(total, logits)[0]

    total, gradient = build(tf.constant(logits, tf.float32))
    return float(total), gradient.numpy()


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 1.0, -2.0]])
LABELS = np.array([2, 1], np.int32)


def test_softmax():
    expected = -np.log(softmax(LOGITS)[[0, 1], LABELS]).mean()
    loss, _ = loss_and_gradient(LOGITS, LABELS, name="softmax")
    assert loss == pytest.approx(expected, rel=1e-6)


def test_softmax_with_label_smoothing():
    targets = np.eye(3)[LABELS] * 0.7 + 0.1
    expected = -(targets * np.log(softmax(LOGITS))).sum(axis=1).mean()
    loss, _ = loss_and_gradient(LOGITS, LABELS, name="softmax", label_smoothing=0.3)
    assert loss == pytest.approx(expected, rel=1e-6)


def test_softmax_with_class_weights():
    each = -np.log(softmax(LOGITS)[[0, 1], LABELS])
    loss, _ = loss_and_gradient(LOGITS, LABELS, name="softmax", class_weights=[1.0, 3.0, 0.5])
    assert loss == pytest.approx((0.5 * each[0] + 3.0 * each[1]) / 2, rel=1e-6)


def test_the_auxiliary_head_has_its_weight():
    main, _ = loss_and_gradient(LOGITS, LABELS, name="softmax")
    aux, _ = loss_and_gradient(-LOGITS, LABELS, name="softmax")
    both, _ = loss_and_gradient(LOGITS, LABELS, aux=-LOGITS, name="softmax", aux_weight=0.4)
    assert both == pytest.approx(main + 0.4 * aux, rel=1e-6)
    off, _ = loss_and_gradient(LOGITS, LABELS, aux=-LOGITS, name="softmax", aux_weight=0.0)
    assert off == pytest.approx(main, rel=1e-6)


MULTI = np.array([[1, -1, 0], [0, 0, 1]], np.int8)


def test_sigmoid_counts_what_is_known():
    p = 1 / (1 + np.exp(-LOGITS))
    known = [-np.log(p[0, 0]), -np.log(1 - p[0, 1]), -np.log(p[1, 2])]
    loss, gradient = loss_and_gradient(LOGITS, MULTI, name="sigmoid")
    assert loss == pytest.approx(np.mean(known), rel=1e-6)
    assert (gradient[MULTI == 0] == 0).all()
    np.testing.assert_allclose(gradient[0, 0], (p[0, 0] - 1) / 3, rtol=1e-5)


def test_a_row_of_dont_care_changes_nothing():
    alone, _ = loss_and_gradient(LOGITS[:1], MULTI[:1], name="sigmoid")
    both, gradient = loss_and_gradient(LOGITS, np.stack([MULTI[0], 0 * MULTI[0]]), name="sigmoid")
    assert both == pytest.approx(alone, rel=1e-6)
    assert (gradient[1] == 0).all()


def test_a_batch_of_dont_care_has_no_loss_and_no_gradient():
    loss, gradient = loss_and_gradient(LOGITS, 0 * MULTI, name="sigmoid")
    assert loss == 0
    assert (gradient == 0).all()


def test_sigmoid_with_class_weights():
    p = 1 / (1 + np.exp(-LOGITS))
    loss, _ = loss_and_gradient(LOGITS, MULTI, name="sigmoid", class_weights=[2.0, 1.0, 0.5])
    expected = (-2 * np.log(p[0, 0]) - np.log(1 - p[0, 1]) - 0.5 * np.log(p[1, 2])) / 3
    assert loss == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "labels"), [("softmax", LABELS), ("sigmoid", MULTI)])
@pytest.mark.parametrize("class_weights", [None, [2.0, 1.0, 0.5]])
def test_what_is_not_valid_counts_as_if_it_were_not_there(name, labels, class_weights):
    settings = {"name": name, "class_weights": class_weights, "aux": -LOGITS}
    alone, one = loss_and_gradient(LOGITS[:1], labels[:1], **{**settings, "aux": -LOGITS[:1]})
    both, two = loss_and_gradient(LOGITS, labels, valid=[True, False], **settings)
    assert both == pytest.approx(alone, rel=1e-6)
    np.testing.assert_allclose(two[0], one[0], rtol=1e-6)
    assert (two[1] == 0).all()
    all_valid, _ = loss_and_gradient(LOGITS, labels, valid=[True, True], **settings)
    assert all_valid == loss_and_gradient(LOGITS, labels, **settings)[0]
    none, gradient = loss_and_gradient(LOGITS, labels, valid=[False, False], **settings)
    assert none == 0
    assert (gradient == 0).all()
