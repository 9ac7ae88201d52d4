"""Learning rates at hand-checked steps, eagerly and in a graph."""

from __future__ import annotations

import math

import pytest
import tensorflow as tf

from slimexp.training.schedules import Cosine, Exponential, Fixed, Piecewise, Polynomial


def rates(schedule, steps):
    eager = [float(schedule(tf.constant(step, tf.int64))) for step in steps]
    traced = tf.function(schedule)
    assert [float(traced(tf.constant(step, tf.int64))) for step in steps] == pytest.approx(eager)
    return eager


def test_fixed():
    assert rates(Fixed(initial=0.5), [0, 7]) == [0.5, 0.5]


def test_exponential_in_steps_and_smooth():
    # 100 images in batches of 20: 5 steps an epoch, so 2 epochs are 10 steps.
    common = {"initial": 1.0, "decay_factor": 0.5, "epochs_per_decay": 2.0, "steps_per_epoch": 5.0}
    assert rates(Exponential(**common), [0, 9, 10, 25]) == [1.0, 1.0, 0.5, 0.25]
    assert rates(Exponential(**common, staircase=False), [5]) == pytest.approx([math.sqrt(0.5)])


def test_a_decay_shorter_than_a_step_is_one_step():
    schedule = Exponential(initial=1.0, decay_factor=0.5, epochs_per_decay=0.1, steps_per_epoch=0.3)
    assert schedule.decay_steps == 1
    assert rates(schedule, [0, 1, 2]) == [1.0, 0.5, 0.25]


def test_polynomial_ends_at_end_and_stays():
    schedule = Polynomial(initial=1.0, end=0.2, total_steps=8)
    assert rates(schedule, [0, 4, 8, 20]) == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_cosine():
    schedule = Cosine(initial=2.0, end=1.0, total_steps=10)
    assert rates(schedule, [0, 5, 10]) == pytest.approx([2.0, 1.5, 1.0])


def test_piecewise_changes_at_the_boundary():
    schedule = Piecewise(initial=1.0, decay_factor=0.1, boundaries_epochs=[1, 3], steps_per_epoch=4)
    assert rates(schedule, [0, 3, 4, 11, 12]) == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_warmup_rises_from_the_first_step():
    schedule = Fixed(initial=1.0, warmup_steps=4)
    assert rates(schedule, [0, 1, 3, 4, 9]) == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_describe_says_what_was_resolved():
    text = Exponential(
        initial=0.01, decay_factor=0.94, epochs_per_decay=2, steps_per_epoch=10, total_steps=100
    ).describe()
    assert text.startswith("exponential: 0.01 at step 0")
    assert text.endswith("times 0.94 every 20 steps")
    assert (
        "new values at steps 4, 12"
        in Piecewise(initial=1.0, decay_factor=0.1, boundaries_epochs=[1, 3], steps_per_epoch=4).describe()
    )
