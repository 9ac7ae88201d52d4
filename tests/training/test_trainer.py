"""Steps, evaluation and state of a small network, on one device and mirrored over two."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.errors import UserError
from slimexp.training import optimizers
from slimexp.training.classifier import Classifier, choose_image_size
from slimexp.training.schedules import Exponential
from slimexp.training.trainer import Trainer

SIZE, CLASSES, BATCH = 8, 3, 4


def small_net(images, num_classes, is_training, dropout_keep_prob=0.5):
    with tf.compat.v1.variable_scope("small", values=[images]):
        norm = {"is_training": is_training, "decay": 0.5}
        net = slim.conv2d(images, 4, [3, 3], normalizer_fn=slim.batch_norm, normalizer_params=norm, scope="conv")
        net = slim.dropout(slim.flatten(net), dropout_keep_prob, is_training=is_training, scope="dropout")
        return slim.fully_connected(net, num_classes, activation_fn=None, scope="logits"), {}


def plain_net(images, num_classes, is_training):
    with tf.compat.v1.variable_scope("plain", values=[images]):
        net = slim.conv2d(images, 4, [3, 3], scope="conv")
        return slim.fully_connected(slim.flatten(net), num_classes, activation_fn=None, scope="logits"), {}


def made(network=small_net, strategy=None, name="momentum", settings=None, **changes):
    classifier = Classifier(network, num_classes=CLASSES, image_size=SIZE, weight_decay=0.01, seed=3)
    settings = {"momentum": 0.9} if settings is None else settings
    return Trainer(
        classifier,
        make_optimizer=lambda rate: getattr(optimizers, name)(rate, **settings),
        schedule=Exponential(initial=0.1, decay_factor=0.5, epochs_per_decay=1, steps_per_epoch=2),
        loss={"name": "softmax"},
        strategy=strategy or tf.distribute.OneDeviceStrategy("/cpu:0"),
        **changes,
    )


def batch(number=0, count=BATCH):
    random = np.random.RandomState(number)
    return {
        "image": random.uniform(-1, 1, [count, SIZE, SIZE, 3]).astype(np.float32),
        "label": random.randint(0, CLASSES, [count]).astype(np.int32),
        "index": np.arange(count),
        "valid": np.full([count], True),
    }


def feed(trainer, *batches):
    """Hands the batches out again and again, divided among the trainer's replicas."""
    replicas = trainer.strategy.num_replicas_in_sync
    for full in itertools.cycle(batches):
        if replicas == 1:
            yield {key: tf.constant(value) for key, value in full.items()}
        else:
            yield {
                key: trainer.strategy.experimental_distribute_values_from_function(
                    lambda context, value=value: tf.constant(
                        np.split(value, replicas)[context.replica_id_in_sync_group]
                    )
                )
                for key, value in full.items()
            }


def mirrored_strategy():
    reduction = tf.distribute.ReductionToOneDevice()  # Collectives of several strategies in one process clash.
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=reduction)


def steps(trainer, count, first=0):
    batches = feed(trainer, *[batch(number) for number in range(first, first + count)])
    return [{k: float(v) for k, v in trainer.train_step(next(batches)).items()} for _ in range(count)]


def test_a_step_returns_its_numbers_and_follows_the_schedule():
    trainer = made()
    values = steps(trainer, 5)
    assert [v["learning_rate"] for v in values] == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])
    for v in values:
        assert v["total_loss"] == pytest.approx(v["loss"] + v["regularization_loss"])
        assert v["gradient_norm"] > 0
    assert trainer.step == 5


def test_a_step_without_the_examples_that_are_not_valid():
    """Their pixels change nothing, and a batch of nothing else moves the weights by their decay alone."""
    results = []
    for fill in (0.0, 1.0):
        trainer = made(plain_net)
        values = batch()
        values["valid"] = np.array([True, False, True, True])
        values["image"][1] = fill
        step = {key: float(value) for key, value in trainer.train_step(next(feed(trainer, values))).items()}
        results.append((step, trainer.state()))
    assert results[0][0] == results[1][0]
    for name, value in results[0][1].items():
        np.testing.assert_array_equal(results[1][1][name], value)
    rest = {key: value[[0, 2, 3]] for key, value in values.items()}
    trainer = made(plain_net)
    step = {key: float(value) for key, value in trainer.train_step(next(feed(trainer, rest))).items()}
    assert step["loss"] == pytest.approx(results[0][0]["loss"], rel=1e-6)
    np.testing.assert_allclose(trainer.state()["plain/conv/weights"], results[0][1]["plain/conv/weights"], rtol=1e-4)

    values["valid"] = np.full([BATCH], False)
    step = {key: float(value) for key, value in trainer.train_step(next(feed(trainer, values))).items()}
    assert step["loss"] == 0
    assert step["total_loss"] == step["regularization_loss"]
    assert all(np.isfinite(value).all() for value in trainer.state().values())


def test_the_loss_of_a_batch_that_is_seen_again_falls():
    trainer = made(plain_net)
    batches = feed(trainer, batch())
    losses = [float(trainer.train_step(next(batches))["loss"]) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def test_the_state_has_every_name_and_restores_to_the_same_steps():
    first = made()
    steps(first, 3)
    state = first.state()
    assert set(state) == {
        "small/conv/weights",
        "small/conv/weights/Momentum",
        "small/conv/BatchNorm/beta",
        "small/conv/BatchNorm/beta/Momentum",
        "small/conv/BatchNorm/moving_mean",
        "small/conv/BatchNorm/moving_variance",
        "small/logits/weights",
        "small/logits/weights/Momentum",
        "small/logits/biases",
        "small/logits/biases/Momentum",
        "global_step",
    }
    assert state["global_step"] == 3
    second = made()
    second.restore(state)
    assert steps(second, 3, first=3) == steps(first, 3, first=3)  # Dropout included.
    for name, value in first.state().items():
        np.testing.assert_array_equal(second.state()[name], value)


def test_initial_values_depend_on_the_seed_alone():
    np.testing.assert_array_equal(made().state()["small/conv/weights"], made().state()["small/conv/weights"])


def test_moving_averages_move_in_training_and_stay_in_evaluation():
    trainer = made()
    before = trainer.state()["small/conv/BatchNorm/moving_mean"]
    steps(trainer, 1)
    moved = trainer.state()["small/conv/BatchNorm/moving_mean"]
    assert (moved != before).all()
    trainer.inference.step(next(feed(trainer, batch())))
    np.testing.assert_array_equal(trainer.state()["small/conv/BatchNorm/moving_mean"], moved)


def test_an_overfitted_batch_is_as_good_in_inference_mode():
    """Once the moving statistics have settled, which is what a run that is too short for its decay is warned of."""

    def network(images, num_classes, is_training):
        return small_net(images, num_classes, is_training, dropout_keep_prob=1.0)

    trainer = made(network)
    batches = feed(trainer, batch())
    for _ in range(60):
        loss = float(trainer.train_step(next(batches))["loss"])
    logits = trainer.inference.step(next(batches))["logits"].astype(np.float64)
    chosen = logits[np.arange(BATCH), batch()["label"]]
    assert np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen) == pytest.approx(loss, rel=0.1)
    assert loss < 0.2


def test_evaluation_has_no_dropout_and_keeps_the_rows_in_order():
    trainer = made()
    one, two = (trainer.inference.step(next(feed(trainer, batch(1)))) for _ in range(2))
    np.testing.assert_array_equal(one["logits"], two["logits"])
    assert one["logits"].shape == (BATCH, CLASSES)
    assert one["index"].tolist() == [0, 1, 2, 3]
    assert one["label"].tolist() == batch(1)["label"].tolist()


def test_two_replicas_make_the_steps_of_one():
    """Without batch norm and dropout, which see half a batch each, the two must agree."""
    mirrored = made(plain_net, mirrored_strategy())
    single = made(plain_net)
    for ours, theirs in zip(steps(mirrored, 4), steps(single, 4), strict=True):
        for key in ("loss", "regularization_loss", "total_loss", "learning_rate"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5)
    ours, theirs = mirrored.state(), single.state()
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6)
    evaluated = mirrored.inference.step(next(feed(mirrored, batch(1))))
    assert evaluated["index"].tolist() == [0, 1, 2, 3]


def test_two_replicas_keep_batch_norm_and_state_together():
    mirrored = made(strategy=mirrored_strategy())
    steps(mirrored, 2)
    state = mirrored.state()
    again = made()
    again.restore(state)
    assert again.step == 2
    np.testing.assert_allclose(
        again.state()["small/conv/BatchNorm/moving_mean"], state["small/conv/BatchNorm/moving_mean"]
    )


def test_clipping_bounds_each_step():
    trainer = made(plain_net, name="sgd", settings={}, clip_gradient_norm=0.001)
    before = trainer.state()
    steps(trainer, 1)
    for name, value in trainer.state().items():
        if name != "global_step":
            assert np.linalg.norm(value - before[name]) <= 0.1 * 0.001 * (1 + 1e-4)


def test_gradients_are_multiplied_by_the_factor_of_their_longest_scope():
    """One step of plain descent moves each variable by the rate times its gradient."""

    def moves(**changes):
        trainer = made(with_head, name="sgd", settings={}, **changes)
        before = trainer.state()
        values = steps(trainer, 1)[0]
        after = trainer.state()
        return {name: after[name] - before[name] for name in trainer.classifier.store.trainable_variables}, values

    plain, values = moves()
    factors = {"small": 0.5, "heads": 10.0, "small/logits/biases": 0.0}
    multiplied, their_values = moves(gradient_multipliers=factors)
    expected = {"small/logits/weights": 10.0, "small/logits/biases": 0.0}
    for name, move in plain.items():
        np.testing.assert_allclose(multiplied[name], expected.get(name, 0.5) * move, rtol=1e-4, atol=1e-7)
    assert their_values["loss"] == values["loss"]
    assert their_values["gradient_norm"] > values["gradient_norm"]
    with pytest.raises(
        UserError, match=r"trainer\.gradient_multipliers=\[big\]: no trained variable of plain_net begins"
    ):
        made(plain_net, gradient_multipliers={"big": 2.0})
    with pytest.raises(UserError, match=r"(?s)gradient_multipliers=\[small/conv\]: no trained variable.*small/logits"):
        made(with_head, gradient_multipliers={"small/conv": 2.0}, trainable_scopes=["heads"])


def poisoned(trainer):
    trainer.classifier.store.variables["plain/logits/biases"].assign([np.nan, 0, 0])
    return trainer


def test_a_loss_that_is_no_number_stops_before_it_reaches_a_weight():
    trainer = poisoned(made(plain_net))
    before = trainer.state()
    with pytest.raises(
        FloatingPointError, match=r"loss nan, regularization_loss 0\.\d+, total_loss nan, .*gradient_norm"
    ):
        steps(trainer, 1)
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(value, before[name])
    assert trainer.step == 0


def test_a_gradient_that_is_no_number_stops_too():
    """An image of NaN: relu makes zeros of it, so that the loss is a number and only the gradient tells."""
    trainer = made(plain_net)
    before = trainer.state()
    broken = batch()
    broken["image"][1] = np.nan
    with pytest.raises(FloatingPointError, match=r"gradient_norm nan"):
        trainer.train_step(next(feed(trainer, broken)))
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_without_the_check_it_goes_on():
    trainer = poisoned(made(plain_net, check_numerics=False))
    assert np.isnan(steps(trainer, 1)[0]["loss"])
    assert trainer.step == 1


def test_anothers_state_is_refused(caplog):
    state = made().state()
    with pytest.raises(
        UserError, match=r"does not fit the network: 4 of 4 variables differ, first plain/conv/weights: missing"
    ):
        made(plain_net).restore(state)
    smaller = {**state, "small/logits/biases": np.zeros([2], np.float32)}
    with pytest.raises(UserError, match=r"small/logits/biases: shape \(2,\), not \(3,\)"):
        made().restore(smaller)


def test_another_optimizer_starts_its_slots_anew_and_says_so(caplog):
    state = made().state()
    trainer = made(name="adam", settings={"beta1": 0.9, "beta2": 0.999, "epsilon": 1.0})
    trainer.restore(state)
    assert "The optimizer is not the one of the checkpoint: 10 of its slots start" in caplog.text
    np.testing.assert_array_equal(trainer.state()["small/conv/weights"], state["small/conv/weights"])


AVERAGE = "/ExponentialMovingAverage"


@pytest.mark.slow
def test_averages_are_evaluated_saved_and_gone_on_with_to_the_bit():
    trainer = made(moving_average_decay=0.9)
    steps(trainer, 3)
    state = trainer.state()
    names = set(trainer.classifier.store.variables)
    assert {name + AVERAGE for name in names} <= set(state)
    assert not np.array_equal(state["small/conv/weights"], state["small/conv/weights" + AVERAGE])

    averaged = made()  # A trainer without averages, whose weights are those.
    averaged.assign((name, state[name + AVERAGE]) for name in names)
    last = made()
    last.assign((name, state[name]) for name in names)
    of_averages, of_weights = (t.inference.step(next(feed(t, batch(1))))["logits"] for t in (averaged, last))
    np.testing.assert_array_equal(trainer.inference.step(next(feed(trainer, batch(1))))["logits"], of_averages)
    assert np.abs(of_averages - of_weights).max() > 1e-3
    np.testing.assert_array_equal(trainer.state()["small/conv/weights"], state["small/conv/weights"])

    again = made(moving_average_decay=0.9, evaluate_averages=False)
    again.restore(state)
    np.testing.assert_array_equal(again.inference.step(next(feed(again, batch(1))))["logits"], of_weights)
    assert steps(again, 2, first=3) == steps(trainer, 2, first=3)
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(again.state()[name], value)


def test_averages_that_are_switched_on_later_start_from_the_weights(caplog):
    plain = made(plain_net)
    steps(plain, 1)
    state = plain.state()
    trainer = made(plain_net, moving_average_decay=0.9)
    trainer.restore(state)
    assert "trainer.moving_average_decay=0.9: the checkpoint has no moving averages; they start from" in caplog.text
    for name in trainer.classifier.store.variables:
        np.testing.assert_array_equal(trainer.state()[name + AVERAGE], state[name])
    caplog.clear()
    made(plain_net).restore(trainer.state())
    assert "trainer.moving_average_decay=null: the checkpoint's moving averages are left out" in caplog.text
    assert "slots" not in caplog.text


def test_a_frozen_layers_averages_are_its_weights():
    trainer = made(trainable_scopes=["heads"], network=with_head, moving_average_decay=0.9)
    steps(trainer, 2)
    state = trainer.state()
    for name in ("small/conv/weights", "small/conv/BatchNorm/moving_mean"):
        np.testing.assert_array_equal(state[name], state[name + AVERAGE])
    assert not np.array_equal(state["small/logits/weights"], state["small/logits/weights" + AVERAGE])
    assert trainer.statistics() == {}


def with_head(images, num_classes, is_training):
    return small_net(images, num_classes, is_training)


with_head.head_scopes = ("small/logits",)


def test_the_statistics_are_those_of_batch_norm():
    trainer = made()
    before = trainer.statistics()
    assert set(before) == {"small/conv/BatchNorm/moving_mean", "small/conv/BatchNorm/moving_variance"}
    steps(trainer, 1)
    assert all((value != before[name]).any() for name, value in trainer.statistics().items())


def sized(default=None, least=1):
    def network():
        pass

    network.min_image_size = least
    if default:
        network.default_image_size = default
    return network


def test_the_image_size_is_the_networks_lowered_to_the_datasets_but_not_below_the_least():
    assert choose_image_size(sized(224, 32), None, None) == 224
    assert choose_image_size(sized(224, 32), None, 64) == 64
    assert choose_image_size(sized(224, 32), None, 28) == 32
    assert choose_image_size(sized(28), None, 300) == 28
    assert choose_image_size(sized(224, 32), 48, 28) == 48
    with pytest.raises(UserError, match=r"model\.image_size=20: network needs 32 pixels or more"):
        choose_image_size(sized(224, 32), 20, None)
    with pytest.raises(UserError, match=r"model\.image_size=null: network does not say its own"):
        choose_image_size(sized(), None, None)


def test_settings_that_the_network_does_not_take_are_refused():
    common = {"num_classes": 3, "image_size": SIZE}
    with pytest.raises(UserError, match=r"model\.dropout_keep_prob=0\.5: .*plain_net takes no argument"):
        Classifier(plain_net, **common, network_args={"dropout_keep_prob": 0.5})
    with pytest.raises(UserError, match=r"model\.network\.depth=2: .*plain_net takes no argument `depth`"):
        Classifier(plain_net, **common, network_args={"depth": 2})
    with pytest.raises(UserError, match=r"model\.batch_norm_decay=0\.9: .*plain_net has no batch norm"):
        Classifier(plain_net, **common, batch_norm_decay=0.9)
    with pytest.raises(UserError, match=r"takes no argument `is_training`"):
        Classifier(lambda images, num_classes: images, **common)


def test_logits_of_another_shape_are_refused():
    def convolutional(images, num_classes, is_training):
        return slim.conv2d(images, num_classes, [1, 1], scope="net"), {}

    classifier = Classifier(convolutional, num_classes=3, image_size=SIZE)
    with pytest.raises(UserError, match=r"returns logits of shape \(None, 8, 8, 3\) for images of 8 pixels"):
        classifier.build()
