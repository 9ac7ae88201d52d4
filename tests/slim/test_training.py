"""The training step in `tf.function` under strategies, and what it refuses."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim import reference

v1 = tf.compat.v1


class Trainer:
    """The least there is to a trainer: a store, an optimizer, and a step through Strategy.run."""

    def __init__(self, strategy, optimizer, net, *, clip_norm=0, autograph=False):
        self.strategy = strategy
        self.store = slim.VariableStore(seed=0)
        self.num_regularization_losses = []

        def build(images):
            net(images)
            slim.get_or_create_global_step()

        with strategy.scope():
            self.store.build(build, tf.TensorSpec([None, 12, 12, 3]))
        self.store.freeze()

        def replica_step(images, labels):
            with self.store.in_use(), slim.collected() as own:
                slim.losses.softmax_cross_entropy(net(images), slim.one_hot_encoding(labels, 5))
                self.num_regularization_losses.append(len(own.regularization_losses))
                total = tf.add_n(own.losses + own.regularization_losses)
                return slim.learning.create_train_op(total, optimizer, clip_gradient_norm=clip_norm)

        @tf.function(autograph=autograph)
        def step(images, labels):
            loss = strategy.run(replica_step, (images, labels))
            return strategy.reduce("MEAN", loss, axis=None)

        self._step = step

    def restore_reference(self):
        for name, variable in self.store.model_variables.items():
            variable.assign(reference.weight(name, variable.shape.as_list()))

    def train(self, num_steps=6):
        n = self.strategy.num_replicas_in_sync
        losses = []
        for step in range(num_steps):
            parts = [np.split(part, n) for part in reference.training_batch(step)]

            losses.append(float(self._step(*(self._distributed(part) for part in parts))))
        return losses

    def _distributed(self, parts):
        if len(parts) == 1:
            return tf.constant(parts[0])
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    def values(self):
        return {name: variable.numpy() for name, variable in self.store.model_variables.items()}


@pytest.mark.parametrize("name", reference.OPTIMIZERS)
def test_the_steps_are_those_of_the_original(name):
    trainer = Trainer(
        tf.distribute.get_strategy() if name == "sgd" else tf.distribute.OneDeviceStrategy("/cpu:0"),
        reference.optimizer(name),
        reference.training_net,
        clip_norm=reference.clip_norm(name),
        autograph=name == "momentum",
    )
    trainer.restore_reference()
    reference.check_trajectory(name, trainer.train(), trainer.values())
    # The optimizer makes its slots in the first trace, so a second one follows.
    assert set(trainer.num_regularization_losses) == {5}
    assert trainer.store.variables["global_step"].numpy() == 6


@pytest.mark.parametrize("clip_norm", [0, 0.1])
def test_two_replicas_make_the_steps_of_one_device(clip_norm):
    def net(images):
        return reference.training_net(images, batch_norm=False)

    results = []
    for strategy in (
        tf.distribute.OneDeviceStrategy("/cpu:0"),
        reference.two_replicas(),
    ):
        trainer = Trainer(strategy, v1.train.MomentumOptimizer(0.05, 0.9), net, clip_norm=clip_norm)
        results.append((trainer.train(), trainer.values(), trainer.store.variables["global_step"].numpy()))
    # Both replicas see five regularization losses, though they share the collection where there are ten.
    assert set(trainer.num_regularization_losses) == {5}
    assert len(trainer.num_regularization_losses) % 2 == 0
    (losses, values, steps), (mirrored_losses, mirrored_values, mirrored_steps) = results
    assert steps == mirrored_steps == 6
    np.testing.assert_allclose(mirrored_losses, losses, rtol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(mirrored_values[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_moving_averages_of_replicas_are_averaged():
    strategy = reference.two_replicas()
    trainer = Trainer(strategy, v1.train.GradientDescentOptimizer(0.0), reference.training_net)
    trainer.train(num_steps=1)
    variable = trainer.store.variables["conv1/conv1_1/BatchNorm/moving_mean"]
    locals_ = [v.numpy() for v in strategy.experimental_local_results(variable)]
    assert np.abs(locals_[0] - locals_[1]).max() > 0
    assert np.abs(locals_).min() > 0
    np.testing.assert_allclose(variable.numpy(), np.mean(locals_, 0), rtol=1e-6)


def test_what_it_refuses():
    sgd = v1.train.GradientDescentOptimizer(1.0)
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="there are no variables to train"):
            slim.training.create_train_op(tf.constant(1.0), sgd)
        fixed = slim.variable("fixed", [2], trainable=False)
        slim.variable("trained", [2])
        with pytest.raises(ValueError, match="has 'fixed', which is not in this graph's collection of trainable"):
            slim.training.create_train_op(tf.reduce_sum(fixed), sgd, variables_to_train=[fixed])
        with pytest.raises(ValueError, match=r"depends on none of the 1 variables to train, e\.g\. trained"):
            slim.training.create_train_op(tf.reduce_sum(fixed), sgd)


def test_update_ops_run_before_the_step_and_a_loss_that_is_not_a_number_ends_it(caplog):
    with tf.Graph().as_default(), v1.Session() as session:
        w = slim.variable("w", initializer=np.float32(0.0))
        count = slim.variable("count", initializer=np.float32(0.0), trainable=False)
        update = count.assign_add(1.0, read_value=False)
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update)
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        train = slim.training.create_train_op(tf.math.log(w), optimizer)
        with caplog.at_level(logging.WARNING):
            without = slim.training.create_train_op(w * 2.0, optimizer, update_ops=[], check_numerics=False)
        assert "update_ops leaves out 1 operations" in caplog.text
        assert [op for op in v1.get_collection(v1.GraphKeys.TRAIN_OP) if tf.is_tensor(op)] == [train, without]
        session.run(v1.global_variables_initializer())
        session.run(without)
        assert session.run([w, count]) == [-2.0, 0.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            session.run(train)
        assert session.run(count) == 1.0


def test_transforms_as_functions():
    with tf.Graph().as_default(), v1.Session() as session:
        v = slim.variable("v", initializer=np.float32(1.0))
        pairs = [(tf.constant([3.0, 4.0]), v), (None, v)]
        (clipped, _), (none, _) = slim.training.clip_gradient_norms_fn(1.0)(pairs)
        np.testing.assert_allclose(session.run(clipped), [0.6, 0.8], rtol=1e-6)
        assert none is None
        ((doubled, _),) = slim.training.multiply_gradients_fn({v: 2.0})(pairs[:1])
        np.testing.assert_allclose(session.run(doubled), [6, 8])
