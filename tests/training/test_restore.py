"""A trainer's model gets a checkpoint's values, on one device and on two; a frozen body stays as it is to the bit."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.errors import UserError
from slimexp.training import optimizers
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import Classifier
from slimexp.training.name_map import NameRule
from slimexp.training.restore import restore_model
from slimexp.training.restore_plan import Rules
from slimexp.training.schedules import Fixed
from slimexp.training.trainer import Trainer

SIZE, BATCH = 8, 4
CONVS = ("conv1", "conv2")
MOVING = "net/conv1/BatchNorm/moving_mean"


def net(images, num_classes, is_training, scope="net"):
    with tf.compat.v1.variable_scope(scope, values=[images]):
        norm = {"is_training": is_training, "decay": 0.5}
        layers = images
        with slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, normalizer_params=norm):
            for name in CONVS:
                layers = slim.conv2d(layers, 4, [3, 3], scope=name)
        return slim.fully_connected(slim.flatten(layers), num_classes, activation_fn=None, scope="logits"), {}


net.head_scopes = ("net/logits",)


def made(num_classes=3, mirrored=False, seed=0, network_args=None, **kwargs):
    # Collectives of several strategies in one process clash.
    reduction = tf.distribute.ReductionToOneDevice()
    strategy = (
        tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=reduction)
        if mirrored
        else tf.distribute.OneDeviceStrategy("/cpu:0")
    )
    return Trainer(
        Classifier(
            net, num_classes=num_classes, image_size=SIZE, weight_decay=0.1, seed=seed, network_args=network_args
        ),
        make_optimizer=lambda rate: optimizers.momentum(rate, momentum=0.9),
        schedule=Fixed(initial=0.1),
        loss={"name": "softmax"},
        strategy=strategy,
        **kwargs,
    )


def steps(trainer, count):
    random = np.random.RandomState(0)
    parts = [
        {
            "image": tf.constant(random.uniform(-1, 1, [BATCH, SIZE, SIZE, 3]), tf.float32),
            "label": tf.constant(random.randint(0, 3, [BATCH]), tf.int32),
            "index": tf.range(BATCH),
            "valid": tf.fill([BATCH], True),
        }
        for _ in range(2)
    ]
    strategy = trainer.strategy
    batch = parts[0]
    if strategy.num_replicas_in_sync > 1:
        batch = {
            key: strategy.experimental_distribute_values_from_function(
                lambda context, key=key: parts[context.replica_id_in_sync_group][key]
            )
            for key in parts[0]
        }
    for _ in range(count):
        values = trainer.train_step(batch)
    return {key: float(value) for key, value in values.items()}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A checkpoint of the network for five classes, and what is in it."""
    trainer = made(num_classes=5, seed=1)
    steps(trainer, 3)
    state = trainer.state()
    return CheckpointFile(Checkpoints(tmp_path_factory.mktemp("pretrained")).save(3, state)), state


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_body_is_restored_with_its_moving_averages_and_the_head_is_not(pretrained, mirrored, caplog):
    caplog.set_level(logging.INFO)
    checkpoint, state = pretrained
    trainer = made(mirrored=mirrored)
    before = trainer.state()
    kept = []
    plan = restore_model(trainer, checkpoint, Rules(exclude=["heads"]), keep=kept.append)
    assert kept == [plan]
    after = trainer.state()
    assert len(plan.sources) == 8
    for name in plan.sources:
        np.testing.assert_array_equal(after[name], state[name])
    for name in ("net/logits/weights", "net/logits/biases", "net/conv1/weights/Momentum"):
        np.testing.assert_array_equal(after[name], before[name])
    assert trainer.step == 0
    assert "8 of 8 variables restored (100 %)" in caplog.text
    assert "global_step" in caplog.text
    # Each replica has them, not only their mean.
    replicas = trainer.strategy.experimental_local_results(trainer.classifier.store.variables[MOVING])
    assert len(replicas) == (2 if mirrored else 1)
    for value in replicas:
        np.testing.assert_array_equal(value.numpy(), state[MOVING])


def test_the_forgotten_exclude_stops_and_changes_nothing(pretrained):
    trainer = made()
    before = trainer.state()
    with pytest.raises(UserError, match=r"add restore\.exclude=\[net/logits\] \(or restore\.exclude=heads\)\."):
        restore_model(trainer, pretrained[0], Rules())
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_another_root_scope_needs_a_map_and_keeps_its_heads(pretrained):
    trainer = made(network_args={"scope": "mine"})
    assert trainer.classifier.head_scopes == ("mine/logits",)
    rules = Rules(exclude=["heads"], name_map=[NameRule("^mine/", "net/")])
    assert len(restore_model(trainer, pretrained[0], rules).sources) == 8
    np.testing.assert_array_equal(trainer.state()[f"mine{MOVING[3:]}"], pretrained[1][MOVING])
    with pytest.raises(UserError, match=r"8 of 8 would match with\n  'restore\.name_map=\[\{pattern: \"\^mine/\""):
        restore_model(trainer, pretrained[0], Rules(exclude=["heads"]))


def test_half_precision_is_widened(tmp_path, pretrained):
    values = {name: value.astype(np.float16) for name, value in pretrained[1].items() if name != "global_step"}
    trainer = made()
    restore_model(trainer, CheckpointFile(Checkpoints(tmp_path).save(1, values)), Rules(exclude=["heads"]))
    np.testing.assert_allclose(trainer.state()["net/conv1/weights"], pretrained[1]["net/conv1/weights"], atol=1e-3)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_frozen_body_is_the_same_to_the_bit_and_has_no_slots(pretrained, mirrored):
    trainer = made(mirrored=mirrored, trainable_scopes=["heads"])
    restore_model(trainer, pretrained[0], Rules(exclude=["heads"]))
    before = trainer.state()
    values = steps(trainer, 3)
    after = trainer.state()
    body = [name for name in after if name.startswith("net/conv")]
    assert len(body) == 8  # Without slots.
    for name in body:
        np.testing.assert_array_equal(after[name], before[name])
    for name in ("net/logits/weights", "net/logits/biases", "net/logits/weights/Momentum"):
        assert (after[name] != before[name]).any()
    # As in TF-Slim the loss has the weight decay of the frozen weights too.
    assert values["regularization_loss"] > sum(0.05 * (after[f"net/{name}/weights"] ** 2).sum() for name in CONVS)
    head = sum(after[name].size for name in ("net/logits/weights", "net/logits/biases"))
    assert trainer.num_parameters() == (head, trainer.classifier.num_parameters() - head)


def test_a_frozen_body_gives_in_training_what_it_gives_in_evaluation(pretrained):
    """A head of zero rate: its loss is that of the evaluation's logits."""
    trainer = made(trainable_scopes=["net/logits"])
    restore_model(trainer, pretrained[0], Rules(exclude=["heads"]))
    random = np.random.RandomState(0)
    batch = {
        "image": tf.constant(random.uniform(-1, 1, [BATCH, SIZE, SIZE, 3]), tf.float32),
        "label": tf.constant([0, 1, 2, 0], tf.int32),
        "index": tf.range(BATCH),
        "valid": tf.fill([BATCH], True),
    }
    logits = trainer.inference.step(batch)["logits"]
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits)
    assert float(trainer.train_step(batch)["loss"]) == pytest.approx(float(tf.reduce_mean(expected)), rel=1e-5)


def test_below_a_frozen_layer_training_goes_on():
    """The first layer is trained through the second, whose statistics are frozen."""
    trainer = made(trainable_scopes=["net/conv1", "heads"])
    before = trainer.state()
    steps(trainer, 2)
    changed = {name for name, value in trainer.state().items() if (value != before[name]).any()}
    assert {"net/conv1/weights", "net/conv1/BatchNorm/beta", MOVING, "net/logits/weights"} <= changed
    assert not any(name.startswith("net/conv2") for name in changed)


def test_a_single_variable_can_be_trained():
    trainer = made(trainable_scopes=["net/conv1/BatchNorm/beta"])
    before = trainer.state()
    steps(trainer, 2)
    changed = {name for name, value in trainer.state().items() if (value != before[name]).any()}
    assert {name for name in changed if name.startswith("net/")} == {
        "net/conv1/BatchNorm/beta",
        "net/conv1/BatchNorm/beta/Momentum",
        MOVING,
        "net/conv1/BatchNorm/moving_variance",
    }


def test_a_trainable_scope_that_matches_nothing_is_an_error():
    with pytest.raises(
        UserError,
        match=r"(?s)trainable_scopes=\[InceptionV3/Logits\]: no trainable variable of net begins with\n"
        r"  InceptionV3/Logits: the nearest are .*net/logits",
    ):
        made(trainable_scopes=["InceptionV3/Logits"])
    with pytest.raises(UserError, match=r"no trainable variable of net begins with\n  net/conv1/BatchNorm/moving_mean"):
        made(trainable_scopes=[MOVING])


def test_a_resume_that_thaws_the_body_says_which_slots_start_anew(caplog):
    frozen = made(trainable_scopes=["heads"])
    steps(frozen, 1)
    thawed = made()
    thawed.restore(frozen.state())
    assert "The optimizer trains other variables than in the checkpoint: 4 of its slots start" in caplog.text
