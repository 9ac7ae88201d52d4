"""Training with layers of half precision: numbers near those of float32, and float32 in all that stays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import nets, slim
from slimexp.errors import UserError
from slimexp.training import precision as module
from slimexp.training.averages import sources_of
from slimexp.training.loss_scale import LossScale
from slimexp.training.restore_plan import Rules, make_plan
from tests.training.test_trainer import batch, feed, made, mirrored_strategy, plain_net, small_net, steps, with_head

HALF = ("bfloat16", "float16")
SCALE, GOOD = "global_step/loss_scale", "global_step/good_steps"
# Of one step: 8 and 11 bits are 0.4 % and 0.05 % of a value.
TOLERANCE = {"bfloat16": 0.03, "float16": 0.004}


def deep_net(images, num_classes, is_training):
    """Batch norm, pooling and an auxiliary head, as Inception has them."""
    with tf.compat.v1.variable_scope("small", values=[images]):
        norm = {"is_training": is_training, "decay": 0.5}
        net = slim.conv2d(images, 4, [3, 3], normalizer_fn=slim.batch_norm, normalizer_params=norm, scope="conv")
        aux = slim.fully_connected(slim.flatten(net), num_classes, activation_fn=None, scope="aux")
        net = slim.max_pool2d(net, [2, 2], scope="pool")
        logits = slim.fully_connected(slim.flatten(net), num_classes, activation_fn=None, scope="logits")
        return logits, {"AuxLogits": aux, "pool": net}


@pytest.fixture(scope="module")
def exact():
    """Two steps in float32, and what is there after them."""
    trainer = made(deep_net, moving_average_decay=0.9)
    return steps(trainer, 2), trainer.state()


@pytest.mark.parametrize("precision", HALF)
def test_steps_are_near_those_of_float32_and_everything_that_stays_is_float32(exact, precision):
    trainer = made(deep_net, moving_average_decay=0.9, precision=precision)
    values, state = steps(trainer, 2), trainer.state()
    for ours, theirs in zip(values, exact[0], strict=True):
        for key in theirs:
            assert ours[key] == pytest.approx(theirs[key], rel=TOLERANCE[precision])
    assert values[0]["loss"] != exact[0][0]["loss"]
    # Computed from the float32 weights themselves.
    assert values[0]["regularization_loss"] == exact[0][0]["regularization_loss"]
    assert set(state) == set(exact[1]) | ({SCALE, GOOD} if precision == "float16" else set())
    for name, value in exact[1].items():
        assert state[name].dtype == value.dtype
        np.testing.assert_allclose(state[name], value, rtol=0.1, atol=TOLERANCE[precision])
    evaluated = trainer.inference.step(next(feed(trainer, batch(5))))["logits"]
    assert evaluated.dtype == np.float32
    # Evaluation is that of the same weights in float32, to the bit.
    plain = made(deep_net, moving_average_decay=0.9)
    plain.restore(state)
    np.testing.assert_array_equal(plain.inference.step(next(feed(plain, batch(5))))["logits"], evaluated)


def test_layers_compute_in_the_half_type_and_regularizers_see_the_variable():
    seen = {}

    def penalty(weights):
        seen["regularized"] = weights
        return tf.nn.l2_loss(weights)

    def network(images, num_classes, is_training):
        with tf.compat.v1.variable_scope("net"):
            seen["images"] = images.dtype
            net = slim.conv2d(images, 2, [3, 3], normalizer_fn=slim.batch_norm, weights_regularizer=penalty, scope="c")
            # Asked for without a type: it comes in that of the layers.
            scale = tf.compat.v1.get_variable("scale", [2], initializer=tf.compat.v1.ones_initializer())
            seen["scale"] = scale.dtype
            logits = slim.fully_connected(slim.flatten(net * scale), num_classes, activation_fn=None, scope="logits")
            seen["logits"] = logits.dtype
            seen["model"] = slim.get_model_variables()
            return logits

    trainer = made(network, precision="bfloat16")
    steps(trainer, 1)
    assert [seen[key] for key in ("images", "scale", "logits")] == [tf.bfloat16] * 3
    assert seen["regularized"].dtype == tf.float32
    assert [variable.name for variable in seen["model"]] == [
        f"net/{name}:0"
        for name in (
            "c/weights",
            "c/BatchNorm/beta",
            "c/BatchNorm/moving_mean",
            "c/BatchNorm/moving_variance",
            "logits/weights",
            "logits/biases",
        )
    ]
    assert all(variable.dtype == tf.float32 for variable in seen["model"])


@pytest.mark.parametrize("precision", HALF)
def test_the_loss_falls(precision):
    trainer = made(plain_net, precision=precision)
    batches = feed(trainer, batch())
    losses = [float(trainer.train_step(next(batches))["loss"]) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_run_goes_on_in_another_precision(caplog, exact):
    """What is new starts anew, what is too much is left out, and neither is called a slot."""
    state = exact[1]
    for precision in ("bfloat16", "float16", "float32"):
        trainer = made(deep_net, moving_average_decay=0.9, precision=precision)
        trainer.restore(state)
        for name, value in exact[1].items():
            np.testing.assert_array_equal(trainer.state()[name], value)
        state = trainer.state()
        assert (SCALE in state) == (precision == "float16")
    assert not caplog.records


@pytest.mark.parametrize("precision", HALF)
def test_frozen_scopes_stay_to_the_bit(precision):
    trainer = made(with_head, trainable_scopes=["heads"], precision=precision, clip_gradient_norm=1.0)
    before = trainer.state()
    steps(trainer, 1)
    changed = {name for name, value in trainer.state().items() if not np.array_equal(value, before[name])}
    count = {GOOD} if precision == "float16" else set()
    slots = {f"small/logits/{name}/Momentum" for name in ("weights", "biases")}
    assert changed == {"small/logits/weights", "small/logits/biases", "global_step"} | slots | count


def overflowing(trainer):
    """Gives a trainer a loss scale that the next gradient cannot bear."""
    trainer.restore({**trainer.state(), SCALE: np.float32(2.0**60), GOOD: np.int64(7)})
    return trainer


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_that_overflows_changes_nothing_but_the_scale_and_counts(replicas):
    strategy = mirrored_strategy() if replicas == 2 else None
    settings = {"name": "adam", "settings": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3}}
    trainer = made(small_net, strategy, precision="float16", moving_average_decay=0.9, **settings)
    steps(trainer, 1)
    before = overflowing(trainer).state()
    (values,) = steps(trainer, 1, first=1)
    after = trainer.state()
    assert not np.isfinite(values["gradient_norm"])
    assert np.isfinite(values["loss"])
    assert (values["loss_scale"], after[SCALE], after[GOOD]) == (2.0**60, 2.0**59, 0)
    assert (before["global_step"], after["global_step"]) == (1, 2)
    assert "the last step changed nothing, as its gradient overflowed" in trainer.overflow_note()
    for name in before.keys() - {SCALE, GOOD, "global_step"}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    trainer.restore({**after, SCALE: np.float32(8.0)})
    steps(trainer, 1, first=2)
    last = trainer.state()
    assert (last[SCALE], last[GOOD], last["global_step"]) == (8, 1, 3)
    assert trainer.overflow_note() is None
    for name in before.keys() - {SCALE, GOOD, "global_step"}:
        assert not np.array_equal(last[name], after[name]), name


def test_two_replicas_make_the_steps_of_one():
    mirrored, single = made(plain_net, mirrored_strategy(), precision="float16"), made(plain_net, precision="float16")
    for ours, theirs in zip(steps(mirrored, 2), steps(single, 2), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    for name, value in single.state().items():
        np.testing.assert_allclose(mirrored.state()[name], value, rtol=1e-2, atol=2e-3)


def test_a_resumed_run_equals_one_that_was_not_stopped():
    """Before and behind the stop there are steps that are left out; without its state the scale would be another."""
    whole = made(precision="float16")
    whole.restore({**whole.state(), SCALE: np.float32(2.0**20)})
    values = steps(whole, 2)
    state = whole.state()
    second = made(precision="float16")
    second.restore(state)
    again, rest = steps(second, 4, first=2), steps(whole, 4, first=2)
    np.testing.assert_equal(again, rest)
    finite = [bool(np.isfinite(v["gradient_norm"])) for v in (*values, *rest)]
    assert finite[0] is finite[2] is False
    assert finite[-1]
    for name, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[name], value)


def test_the_scale_is_training_state_and_none_of_the_model():
    names = {"net/weights", "global_step", SCALE, GOOD}
    assert set(sources_of(names)) == {"net/weights"}
    plan = make_plan({"net/weights": (2,)}, {"net/weights": (2,), "global_step": (), SCALE: (), GOOD: ()}, Rules())
    assert {row.source for row in plan.of("training state")} == {"global_step", SCALE, GOOD}


def steep_net(images, num_classes, is_training):
    """Its loss is a number, its gradient is none: that of the square root at 0."""
    logits, end_points = plain_net(images, num_classes, is_training)
    return logits + tf.sqrt(0 * logits), end_points


def test_a_gradient_that_is_never_a_number_stops_the_run():
    trainer = made(steep_net, precision="float16")
    trainer.restore({**trainer.state(), SCALE: np.float32(2.0)})
    (values,) = steps(trainer, 1)
    assert np.isfinite(values["loss"])
    before = trainer.state()
    assert (before[SCALE], before["global_step"]) == (1, 1)
    with pytest.raises(
        FloatingPointError,
        match=r"overflows float16 even with a loss scale of 1 \(loss .*gradient_norm nan\); .*bfloat16",
    ):
        steps(trainer, 1)
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(value, before[name])

    careless = made(steep_net, precision="float16", check_numerics=False)
    careless.restore(before)
    steps(careless, 1)
    np.testing.assert_equal(careless.state(), {**before, "global_step": 2})


@pytest.mark.parametrize("precision", HALF)
def test_a_loss_that_is_no_number_stops_at_once(precision):
    trainer = made(plain_net, precision=precision)
    trainer.classifier.store.variables["plain/logits/biases"].assign([np.nan, 0, 0])
    before = trainer.state()
    with pytest.raises(FloatingPointError, match=r"^loss nan, "):
        steps(trainer, 1)
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_the_scale_doubles_after_two_thousand_good_steps_and_stays_finite():
    scale = LossScale(stops=True)
    variables = scale.named()
    assert scale.value() == 2.0**15
    variables[GOOD].assign(1998)
    scale.move(tf.constant(True))
    assert (scale.value(), variables[GOOD]) == (2.0**15, 1999)
    scale.move(tf.constant(True))
    assert (scale.value(), variables[GOOD]) == (2.0**16, 0)
    scale.move(tf.constant(False))
    assert (scale.value(), variables[GOOD]) == (2.0**15, 0)
    variables[SCALE].assign(2.0**127)
    variables[GOOD].assign(1999)
    scale.move(tf.constant(True))
    assert scale.value() == 2.0**127


def test_a_network_that_insists_on_float32_is_named():
    def network(images, num_classes, is_training):
        with tf.compat.v1.variable_scope("net"):
            return slim.fully_connected(slim.flatten(images * tf.ones([8, 8, 3])), num_classes, scope="logits")

    trainer = made(network, precision="bfloat16")
    with pytest.raises(
        UserError, match=r"(?s)trainer\.precision=bfloat16: .*network cannot be built in it: .*bfloat16"
    ):
        steps(trainer, 1)


def test_cifarnet_with_its_response_normalization_trains():
    """And its dropout draws what it draws in float32, so that the losses are near each other."""
    losses = []
    for precision in ("float32", *HALF):
        losses += [step["loss"] for step in steps(made(nets.cifarnet, precision=precision), 1)]
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=0.02)


def test_an_op_that_there_is_not_in_the_type_is_named():
    def network(images, num_classes, is_training):
        with tf.compat.v1.variable_scope("net"):
            net = tf.nn.lrn(images, 2, name="lrn")
            return slim.fully_connected(slim.flatten(net), num_classes, scope="logits")

    trainer = made(network, precision="bfloat16")
    with pytest.raises(
        UserError, match=r"precision=bfloat16: TensorFlow has no LRN of that type .* network asks for at net/lrn\. Cast"
    ):
        steps(trainer, 1)


def test_what_has_no_instructions_for_a_type_is_said(monkeypatch):
    monkeypatch.setattr(module, "_cpu_flags", lambda: {"avx2", "avx512_bf16"})
    assert module.slow_note("float32") is None
    assert module.slow_note("bfloat16") is None
    assert "trainer.precision=float16: this CPU has no instructions for it" in module.slow_note("float16")
    monkeypatch.setattr(module, "_cpu_flags", lambda: set())
    assert module.slow_note("float16") is None
