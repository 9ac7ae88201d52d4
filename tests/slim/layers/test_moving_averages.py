from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimexp import slim
from tests.slim import reference

v1 = tf.compat.v1
IMAGES = np.random.RandomState(0).uniform(-1, 3, [4, 3, 2, 5]).astype(np.float32)


def test_renorm_and_zero_debias_in_traced_functions():
    """The variables that these keep are found again in later traces, and one call is one step."""
    store = slim.VariableStore(seed=0)

    def net(images):
        with v1.variable_scope("net"):
            net = slim.batch_norm(images, decay=0.9, renorm=True, zero_debias_moving_mean=True)
            return slim.layer_norm(slim.conv2d_transpose(slim.separable_conv2d(net, 4, 3), 4, 3, 2))

    @tf.function(autograph=False)
    def step(images):
        with store.in_use(), slim.collected() as own:
            out = net(images)
        with tf.control_dependencies(own.update_ops):
            return tf.identity(out)

    step(tf.constant(IMAGES))
    step(tf.constant(IMAGES[:2]))
    assert store.variables["net/BatchNorm/net/BatchNorm/moving_mean/local_step"].numpy() == 2
    renorm = 0.99 * 0.01 * IMAGES.mean((0, 1, 2)) + 0.01 * IMAGES[:2].mean((0, 1, 2))
    np.testing.assert_allclose(store.variables["net/BatchNorm/renorm_mean"].numpy(), renorm, rtol=1e-4)


def test_each_replica_averages_over_its_own_batch():
    store = slim.VariableStore(seed=0)
    strategy = reference.two_replicas()

    def net(images):
        with v1.variable_scope("net"):
            return slim.batch_norm(images, decay=0.9, renorm=True, renorm_decay=0.5, zero_debias_moving_mean=True)

    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        with store.in_use(), slim.collected() as own:
            net(tf.constant(IMAGES)[2 * number : 2 * number + 2])
        with tf.control_dependencies(own.update_ops):
            return tf.constant(0.0)

    @tf.function(autograph=False)
    def step():
        strategy.run(replica)

    with strategy.scope():
        store.build(net, tf.TensorSpec([None, 3, 2, 5]))
    step()
    step()
    # Read outside of the replicas they are averaged.
    mean = IMAGES.mean((0, 1, 2))
    values = {name.rpartition("/")[2]: variable.numpy() for name, variable in store.variables.items()}
    assert values["local_step"] == 2
    np.testing.assert_allclose(values["moving_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(values["biased"], 0.19 * mean, rtol=1e-5)
    np.testing.assert_allclose(values["renorm_mean"], 0.75 * mean, rtol=1e-5)


def test_updates_have_the_operation_that_scripts_ask_for():
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.name_scope("clone_0") as scope:
            slim.batch_norm(tf.constant(IMAGES), zero_debias_moving_mean=True, renorm=True, scope="norm")
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS, scope)
        names = [update.op.name for update in updates]
        assert len(set(names)) == 4
        assert all(name.startswith("clone_0/norm/") for name in names)
        session.run(v1.global_variables_initializer())
        session.run(updates)
        mean = next(v for v in slim.get_model_variables() if v.op.name == "norm/moving_mean")
        np.testing.assert_allclose(session.run(mean), IMAGES.mean((0, 1, 2)), rtol=1e-4)
        # As a dependency an update costs nothing but itself: no variable is read for it.
        with tf.control_dependencies(updates):
            barrier = tf.constant(0.0)
        assert {op.name for op in barrier.op.control_inputs} == set(names)
