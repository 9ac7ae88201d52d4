from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1
VALUES = np.random.RandomState(0).normal(size=[2, 3, 4, 5]).astype(np.float32)


@pytest.fixture(autouse=True)
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_values_and_names(session):
    out = slim.gdn(VALUES)
    inverse = slim.gdn(VALUES, inverse=True, name="back")
    first = slim.gdn(np.moveaxis(VALUES, -1, 1), data_format="channels_first", name="gdn", reuse=True)
    assert [v.op.name for v in slim.get_trainable_variables()] == [
        f"{scope}/reparam_{name}" for scope in ("gdn", "back") for name in ("beta", "gamma")
    ]
    session.run(v1.global_variables_initializer())
    out, inverse, first = session.run([out, inverse, first])
    # At first beta is 1 and gamma 0.1 times the identity.
    norm = np.sqrt(1 + 0.1 * VALUES**2)
    np.testing.assert_allclose(out, VALUES / norm, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(inverse, VALUES * norm, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), out, rtol=1e-5, atol=1e-6)


def test_a_layer_shares_its_variables_and_tells_them(session):
    layer = slim.GDN(gamma_init=0.0, activity_regularizer=slim.l2_regularizer(1.0))
    layer.apply(VALUES)
    out = layer(VALUES + 1)
    assert len(slim.get_trainable_variables()) == 2
    assert len(v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)) == 2
    session.run(v1.global_variables_initializer())
    out, beta, gamma = session.run([out, layer.beta, layer.gamma])
    np.testing.assert_allclose(out, VALUES + 1, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(beta, np.ones(5), rtol=1e-5)
    np.testing.assert_allclose(gamma, np.zeros([5, 5]), atol=1e-6)


def test_a_parameter_at_its_bound_can_only_rise(session):
    """Off the diagonal gamma is at its bound: a loss that it raises has no gradient, one that it lowers has."""
    out = slim.gdn(np.abs(VALUES))
    gamma = slim.get_variables_by_name("reparam_gamma")[0]
    session.run(v1.global_variables_initializer())
    session.run(gamma.assign(tf.eye(5)))
    up = session.run(tf.gradients(-tf.reduce_sum(out), gamma)[0])
    down = session.run(tf.gradients(tf.reduce_sum(out), gamma)[0])
    off_diagonal = ~np.eye(5, dtype=bool)
    assert (up[off_diagonal] == 0).all()
    assert (down[off_diagonal] < 0).all()


def test_what_it_refuses():
    with pytest.raises(ValueError, match="GDN: data_format='NHWC' must be channels_last or channels_first"):
        slim.gdn(VALUES, data_format="NHWC")
    with pytest.raises(ValueError, match=r"GDN: the inputs must have rank 3\.\.5, not shape \(2, 3\)"):
        slim.gdn(tf.ones([2, 3]))
