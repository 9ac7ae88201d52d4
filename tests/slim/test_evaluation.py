"""Evaluation of checkpoints in a graph of old: `slim.evaluation`, `slim.train_eval`, their hooks and their waiting."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def checkpoints(tmp_path):
    """A folder with checkpoints of w = 5 at step 1 and w = 7 at step 2."""
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        save(folder, step, 3.0 + 2 * step)
    return folder


def save(folder, step, value):
    with tf.Graph().as_default(), v1.Session() as session:
        w = slim.variable("w", initializer=tf.constant(value))
        step_variable = slim.get_or_create_global_step()
        session.run([w.initializer, step_variable.initializer])
        session.run(step_variable.assign(step))
        os.makedirs(folder, exist_ok=True)
        saver = v1.train.Saver()
        saver.recover_last_checkpoints([str(folder / f"model.ckpt-{i}") for i in range(1, step)])
        saver.save(session, str(folder / "model.ckpt"), global_step=step)


def build(num_batches=None):
    """The model's variable, and a metric of it: the mean of w + 0, w + 1, ..."""
    w = slim.variable("w", initializer=tf.constant(0.0))
    slim.get_or_create_global_step()
    batch = slim.local_variable(-1.0, name="batch")
    value = batch.assign_add(1.0)
    if num_batches is not None:
        value = tf.cast(v1.train.limit_epochs(tf.constant(0.0), num_batches), tf.float32) + value
    return w, slim.metrics.streaming_mean(w + value)


def scalars(folder):
    found = []
    for name in sorted(os.listdir(folder)):
        for event in v1.train.summary_iterator(os.path.join(folder, name)):
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return found


def test_one_checkpoint_is_evaluated_and_summarized(checkpoints, tmp_path):
    w, (value, update) = build()
    slim.summaries.add_scalar_summary(value, "mean", prefix="eval")
    result = slim.evaluation.evaluate_once(
        "",
        checkpoints / "model.ckpt-1",
        tmp_path / "log",
        num_evals=3,
        eval_op=update,
        final_op={"mean": value, "w": w},
    )
    assert result == {"mean": 6.0, "w": 5.0}
    assert scalars(tmp_path / "log") == [(1, "eval/mean", 6.0)]


def test_without_a_number_the_whole_input_is_evaluated(checkpoints):
    _, (value, update) = build(num_batches=4)
    path = str(checkpoints / "model.ckpt-2")
    assert slim.evaluation.evaluate_once("", path, None, None, eval_op=update, final_op=value) == 8.5


def test_variables_under_other_names_initial_values_and_feeds(checkpoints, tmp_path):
    average = slim.variable("w/average", initializer=tf.constant(0.0))
    other = slim.variable("other", [], initializer=tf.zeros_initializer())
    step = slim.get_or_create_global_step()
    start, shift = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    value, update = slim.metrics.streaming_mean(average + shift)
    seen = []
    result = slim.evaluation.evaluation_loop(
        "",
        checkpoints,
        tmp_path / "log",
        initial_op=tf.group(other.assign(start), average.initializer, step.initializer),
        initial_op_feed_dict={start: 9.0},
        init_fn=lambda session: seen.append(float(session.run(average))),
        eval_op=update,
        eval_op_feed_dict={shift: 1.0},
        final_op=[value, other, shift],
        final_op_feed_dict={shift: 2.0},
        summary_op=v1.summary.scalar("shift", shift),
        summary_op_feed_dict={shift: 3.0},
        variables_to_restore={"w": average},
        max_number_of_evaluations=1,
    )
    assert result == [8.0, 9.0, 2.0]
    assert seen == [0.0]
    assert [value for _, _, value in scalars(tmp_path / "log")] == [3.0]


def test_each_new_checkpoint_is_evaluated(checkpoints, tmp_path):
    w, (value, update) = build()
    v1.summary.scalar("value", w)
    calls = []

    def timeout_fn():
        calls.append(1)
        if len(calls) == 1:
            save(checkpoints, 3, 9.0)
        return len(calls) == 2

    result = slim.evaluation.evaluation_loop(
        "",
        checkpoints,
        tmp_path / "log",
        eval_op=update,
        final_op=value,
        eval_interval_secs=0,
        timeout=0.01,
        timeout_fn=timeout_fn,
    )
    assert result == 9.0
    assert scalars(tmp_path / "log") == [(2, "value", 7.0), (3, "value", 9.0)]


def test_nothing_to_evaluate(tmp_path):
    build()
    assert slim.evaluation.evaluation_loop("", tmp_path, None, timeout=0) is None
    assert slim.evaluation.evaluate_repeatedly(tmp_path, timeout=0) is None


@pytest.mark.parametrize(("level", "shown"), [(v1.logging.INFO, True), (v1.logging.WARN, False)])
def test_what_goes_on_is_logged_as_set_verbosity_says(checkpoints, caplog, level, shown):
    _, (value, update) = build()
    before = v1.logging.get_verbosity()
    try:
        v1.logging.set_verbosity(level)
        slim.evaluation.evaluation_loop(
            "", checkpoints, None, num_evals=1, eval_op=update, final_op=value, max_number_of_evaluations=1
        )
    finally:
        v1.logging.set_verbosity(before)
    for text in (
        f"Waiting for a new checkpoint in {checkpoints}",
        f"Starting evaluation of {checkpoints}",
        "Evaluation [1/1]",
        f"Finished evaluation of {checkpoints}",
    ):
        assert (text in caplog.text) == shown


def test_what_it_refuses(tmp_path):
    build()
    summary_op = tf.constant("")
    with pytest.raises(ValueError, match="summary_op writes a file, but logdir is None"):
        slim.evaluation.evaluate_once("", tmp_path / "nothing", None, summary_op=summary_op)
    with pytest.raises(ValueError, match="max_number_of_evaluations must be positive or None, got 0"):
        slim.evaluation.evaluate_repeatedly(tmp_path, max_number_of_evaluations=0)
    with pytest.raises(ValueError, match="give log_dir or summary_writer"):
        slim.evaluation.SummaryAtEndHook()
    # The last, as it closes the graph for additions.
    with pytest.raises(ValueError, match="not a valid checkpoint"):
        slim.evaluation.evaluate_once("", tmp_path / "nothing", None)


def test_the_counter_of_batches():
    step = slim.evaluation.get_or_create_eval_step()
    with v1.variable_scope("scope"):
        assert slim.evaluation.get_or_create_eval_step() is step
    assert step.op.name == "eval_step"
    assert any(step is v for v in slim.get_local_variables())
    v1.add_to_collection("eval_step", step)
    with pytest.raises(ValueError, match="must hold one counter, but it holds 2"):
        slim.evaluation.get_or_create_eval_step()


def test_hooks_in_a_session_of_ones_own(tmp_path):
    count = slim.evaluation.get_or_create_eval_step().assign_add(1)
    slim.get_or_create_global_step()
    writer = v1.summary.FileWriter(str(tmp_path))
    hooks = [slim.evaluation.StopAfterNEvalsHook(4), slim.evaluation.SummaryAtEndHook(summary_writer=writer)]
    runs = 0
    with v1.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(count)
            runs += 1
    # The hook may read the counter before or after a run counts.
    assert runs in (4, 5)
    writer.close()
    assert scalars(tmp_path) == []


def test_waiting_for_checkpoints(checkpoints, tmp_path):
    wait = slim.evaluation.wait_for_new_checkpoint
    last = str(checkpoints / "model.ckpt-2")
    assert wait(checkpoints) == last
    start = time.monotonic()
    assert wait(checkpoints, last, seconds_to_sleep=0.05, timeout=0.2) is None
    assert 0.1 <= time.monotonic() - start < 1
    thread = threading.Timer(0.1, save, (tmp_path / "later", 1, 1.0))
    thread.start()
    assert wait(tmp_path / "later", seconds_to_sleep=0.05, timeout=10) == str(tmp_path / "later" / "model.ckpt-1")
    thread.join()
    assert list(slim.evaluation.checkpoints_iterator(checkpoints, timeout=0)) == [last]


def test_train_eval_takes_a_scaffold(checkpoints):
    w, (value, update) = build()
    calls = []
    scaffold = v1.train.Scaffold(init_fn=lambda _, session: calls.append(1), saver=v1.train.Saver([w]))
    result = slim.train_eval.evaluate_once(
        checkpoints / "model.ckpt-1",
        scaffold=scaffold,
        eval_ops=[update],
        final_ops=value,
        hooks=[slim.train_eval.StopAfterNEvalsHook(2)],
        config=v1.ConfigProto(allow_soft_placement=True),
    )
    np.testing.assert_allclose(result, 5.5)
    assert calls == [1]
