"""Moving averages: by hand, and which of a checkpoint's values evaluation takes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.training.averages import MovingAverages, average_name, sources_of, weights_of
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoints import Checkpoints
from tests.training.test_trainer import made, mirrored_strategy

AVERAGE = "/ExponentialMovingAverage"


def test_the_average_by_hand():
    """Each step adds 1; after step n the decay is min(0.9, (1 + n) / (10 + n)), as TensorFlow's."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        variable = tf.Variable([0.0, 5.0], name="v")
        averages = MovingAverages({"v": variable, "count": tf.Variable(3)}, decay=0.9)
    assert list(averages.named()) == ["v" + AVERAGE]  # Of numbers with a fraction alone.
    value, expected = np.array([0.0, 5.0]), np.array([0.0, 5.0])
    for n in (1, 2, 200):
        value = value + np.array([1, 0])
        variable.assign(value)
        averages.update(strategy, tf.constant(n, tf.int64))
        decay = min(0.9, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * value
    np.testing.assert_allclose(averages.variables["v"].numpy(), expected, rtol=1e-6)
    assert averages.variables["v"].numpy()[1] == 5.0  # To the bit.


def test_tensorflows_own_agree():
    variable = tf.Variable(2.0)
    theirs = tf.train.ExponentialMovingAverage(0.99, num_updates=7)
    theirs.apply([variable])
    ours = MovingAverages({"v": variable}, 0.99)
    variable.assign(4.0)
    theirs.apply([variable])
    ours.update(tf.distribute.get_strategy(), tf.constant(7))
    assert float(ours.variables["v"]) == pytest.approx(float(theirs.average(variable)), rel=1e-6)


def test_two_replicas_keep_the_average_of_one():
    results = []
    for strategy in (tf.distribute.OneDeviceStrategy("/cpu:0"), mirrored_strategy()):
        trainer = made(strategy=strategy, moving_average_decay=0.5, name="sgd", settings={})
        averages = trainer._averages
        for name, variable in trainer.classifier.store.variables.items():
            variable.assign(tf.ones_like(variable) * len(name))

        @tf.function
        def update(averages=averages, trainer=trainer):
            with trainer.strategy.scope():
                averages.update(trainer.strategy, tf.constant(30, tf.int64))

        update()
        results.append({name: value for name, value in trainer.state().items() if name.endswith(AVERAGE)})
    assert "small/conv/BatchNorm/moving_mean" + AVERAGE in results[0]
    for name, value in results[0].items():
        np.testing.assert_allclose(results[1][name], value, rtol=1e-6)


NAMES = ["net/weights", "net/weights/Momentum", "net/weights" + AVERAGE, "net/biases", "global_step"]


def test_averages_are_taken_where_they_are():
    assert sources_of(NAMES) == {"net/biases": "net/biases", "net/weights": "net/weights" + AVERAGE}
    assert sources_of(NAMES, "true") == sources_of(NAMES)
    assert sources_of(NAMES, "false") == {"net/biases": "net/biases", "net/weights": "net/weights"}
    assert sources_of(["a" + AVERAGE, "global_step"], "false") == {"a": "a" + AVERAGE}  # Published alone.
    with pytest.raises(
        UserError, match=r"^evaluation\.use_averages=true: x\.ckpt has no moving averages, as its run had trainer\.mov"
    ):
        sources_of(["net/weights"], "true", origin="x.ckpt")


def test_the_weights_of_a_checkpoint(tmp_path):
    values = {name: np.float32([number]) for number, name in enumerate(NAMES[:-1])}
    values["global_step"] = np.int64(7)
    checkpoint = CheckpointFile(Checkpoints(tmp_path).save(7, values))
    for source in (values, checkpoint):
        assert weights_of(source) == {"net/weights": [2], "net/biases": [3]}
        assert weights_of(source, "false") == {"net/weights": [0], "net/biases": [3]}
    assert average_name("a") == "a" + AVERAGE
