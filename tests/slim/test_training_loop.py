"""`slim.learning.train` in a graph of old: what it saves, where it goes on, what it refuses."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import os
import threading
import time

import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def make_train_op(**kwargs):
    """A step whose loss is 0.5 * w ** 2, w = 1 at first and half as large after each step."""
    w = slim.variable("w", initializer=tf.constant(1.0))
    return slim.learning.create_train_op(
        0.5 * w * w, v1.train.GradientDescentOptimizer(0.5), check_numerics=False, **kwargs
    )


def events(folder):
    """The events of all event files of a folder."""
    for name in sorted(os.listdir(folder)):
        if "tfevents" in name:
            yield from v1.train.summary_iterator(os.path.join(folder, name))


def test_it_returns_the_last_loss_and_saves_the_last_step(tmp_path):
    assert slim.learning.train(make_train_op(), tmp_path, number_of_steps=3) == 0.5 * 0.25**2
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-3"))
    assert reader.get_tensor("w") == 0.125
    assert reader.get_tensor("global_step") == 3


def test_a_second_call_goes_on_and_leaves_init_fn_alone(tmp_path):
    slim.learning.train(make_train_op(), tmp_path, number_of_steps=2)
    calls = []
    with tf.Graph().as_default():
        loss = slim.learning.train(make_train_op(), tmp_path, number_of_steps=3, init_fn=calls.append)
    assert loss == 0.5 * 0.25**2
    assert calls == []


def test_it_runs_in_a_graph_that_is_not_the_default(tmp_path, graph):
    train_op = make_train_op()
    with tf.Graph().as_default():
        assert slim.learning.train(train_op, None, number_of_steps=1, graph=graph) == 0.5
    assert os.listdir(tmp_path) == []


def test_the_number_of_a_checkpoint_is_that_of_what_it_holds(tmp_path):
    train_op = make_train_op()
    saver = v1.train.Saver(max_to_keep=None)
    slim.learning.train(train_op, tmp_path, number_of_steps=30, saver=saver, save_interval_secs=1e-6)
    for step in range(31):
        reader = tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{step}"))
        assert reader.get_tensor("global_step") == step
        assert reader.get_tensor("w") == 0.5**step
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-30")


def test_a_checkpoint_is_saved_before_the_first_step(tmp_path):
    slim.learning.train(make_train_op(), tmp_path, number_of_steps=2)
    steps = {int(path.suffix and path.stem.rpartition("-")[2]) for path in tmp_path.glob("model.ckpt-*.index")}
    assert steps == {0, 2}


def test_init_op_init_fn_and_what_is_fed(tmp_path):
    train_op = make_train_op()
    (w,) = slim.get_variables("w")
    start = v1.placeholder(tf.float32, [])
    double = w.assign(w * 2)
    loss = slim.learning.train(
        train_op,
        None,
        number_of_steps=1,
        init_op=tf.group(w.assign(start), slim.get_global_step().initializer),
        init_feed_dict={start: 4.0},
        local_init_op=None,
        ready_op=None,
        init_fn=lambda session: session.run(double),
    )
    assert loss == 32


def test_summaries_and_steps_per_second_are_written(tmp_path):
    train_op = make_train_op()
    v1.summary.scalar("one", tf.constant(1.0))

    def slow_step(*args):
        time.sleep(0.002)
        return slim.learning.train_step(*args)

    slim.learning.train(train_op, tmp_path, slow_step, number_of_steps=100, save_summaries_secs=0.05)
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    assert tags == {"one", "global_step/sec"}
    assert (tmp_path / "graph.pbtxt").exists()


def test_without_writer_or_services_there_are_only_checkpoints(tmp_path):
    slim.learning.train(
        make_train_op(),
        tmp_path,
        number_of_steps=1,
        summary_op=None,
        summary_writer=None,
        save_summaries_secs=None,
        save_interval_secs=None,
    )
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        "graph.pbtxt",
        "model.ckpt-1.data-00000-of-00001",
        "model.ckpt-1.index",
        "model.ckpt-1.meta",
    ]


def test_traces(tmp_path):
    slim.learning.train(make_train_op(), tmp_path, number_of_steps=4, trace_every_n_steps=2)
    traces = sorted(name for name in os.listdir(tmp_path) if name.startswith("tf_trace"))
    assert traces == ["tf_trace-1.json", "tf_trace-3.json"]
    assert json.loads((tmp_path / traces[0]).read_text())["traceEvents"]
    tags = [event.tagged_run_metadata.tag for event in events(tmp_path)]
    assert [tag for tag in tags if tag] == ["run_metadata-1", "run_metadata-3"]


def test_steps_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="tensorflow.slim"):
        slim.learning.train(make_train_op(), None, number_of_steps=4, log_every_n_steps=2)
    lines = [r.getMessage() for r in caplog.records if "global step" in r.getMessage()]
    assert [line.partition(" (")[0] for line in lines] == [
        "global step 2: loss = 0.1250",
        "global step 4: loss = 0.0078",
    ]


def test_what_goes_on_is_logged_as_set_verbosity_says(tmp_path, caplog):
    before = v1.logging.get_verbosity()
    try:
        for level, shown in {v1.logging.INFO: True, v1.logging.WARN: False}.items():
            v1.logging.set_verbosity(level)
            caplog.clear()
            with tf.Graph().as_default():
                slim.learning.train(make_train_op(), tmp_path, number_of_steps=1)
            for text in ("Starting the session", "Starting queues", f"Saving checkpoint to {tmp_path}"):
                assert (text in caplog.text) == shown
    finally:
        v1.logging.set_verbosity(before)


def test_a_step_of_ones_own_gets_what_it_was_given():
    seen = []

    def my_step(session, train_op, global_step, kwargs):
        loss = session.run(train_op)
        seen.append((sorted(kwargs), kwargs["mine"]))
        return loss, len(seen) == 2

    loss = slim.learning.train(make_train_op(), None, my_step, {"mine": 7})
    assert loss == 0.125
    assert seen == [(["mine", "should_log", "should_stop"], 7)] * 2


def test_the_session_may_be_wrapped(tmp_path):
    class Counting:
        runs = 0

        def __init__(self, session):
            self.session = session

        def __getattr__(self, name):
            return getattr(self.session, name)

        def run(self, *args, **kwargs):
            Counting.runs += 1
            return self.session.run(*args, **kwargs)

    # Checkpoints and summaries take the session as it is.
    slim.learning.train(make_train_op(), tmp_path, number_of_steps=3, session_wrapper=Counting)
    assert Counting.runs >= 6


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_a_lost_session_is_replaced_and_goes_on_from_the_last_checkpoint(tmp_path, error, caplog):
    train_op = make_train_op()
    saver = v1.train.Saver()
    (w,) = slim.get_variables("w")
    seen = []

    def step(session, *args):
        seen.append(float(session.run(w)))
        if len(seen) == 3:
            raise error(None, None, "the worker went away")
        result = slim.learning.train_step(session, *args)
        if len(seen) == 1:
            saver.save(session, str(tmp_path / "model.ckpt"), global_step=1)
        return result

    slim.learning.train(train_op, tmp_path, step, number_of_steps=3, saver=saver, save_interval_secs=None)
    assert seen == [1.0, 0.5, 0.25, 0.5, 0.25]
    assert "The session was lost (the worker went away); going on from the last checkpoint." in caplog.text


def test_other_errors_end_the_training_and_stop_its_threads(tmp_path):
    before = set(threading.enumerate())

    def step(*args):
        raise tf.errors.InvalidArgumentError(None, None, "a bad image")

    with pytest.raises(tf.errors.InvalidArgumentError, match="a bad image"):
        slim.learning.train(make_train_op(), tmp_path, step, number_of_steps=3)
    assert [t for t in threading.enumerate() if t not in before and t.is_alive()] == []


def test_queues_are_run_and_the_end_of_input_ends_the_training(tmp_path):
    (value,) = v1.train.slice_input_producer([tf.range(1.0, 6.0)], num_epochs=1, shuffle=False)
    w = slim.variable("w", initializer=tf.constant(0.0))
    train_op = slim.learning.create_train_op(w * value, v1.train.GradientDescentOptimizer(1.0))
    slim.learning.train(train_op, tmp_path)
    assert tf.train.load_checkpoint(str(tmp_path / "model.ckpt-5")).get_tensor("w") == -15


def test_what_it_refuses(tmp_path):
    train_op = make_train_op()
    train = slim.learning.train
    with pytest.raises(ValueError, match="train_op is None; make one with"):
        train(None, tmp_path)
    for name, value in {"summary_op": tf.constant(""), "saver": v1.train.Saver(), "trace_every_n_steps": 2}.items():
        with pytest.raises(ValueError, match=f"{name} writes files, but logdir is None"):
            train(train_op, None, **{name: value})
    with pytest.raises(ValueError, match="number_of_steps must be positive or None, got 0"):
        train(train_op, tmp_path, number_of_steps=0)
    with pytest.raises(ValueError, match="must be positive or None, got 1 and 0"):
        train(train_op, tmp_path, trace_every_n_steps=0)
    with pytest.raises(ValueError, match="sync_optimizer takes a"):
        train(train_op, tmp_path, sync_optimizer=v1.train.GradientDescentOptimizer(1.0))
    with pytest.raises(ValueError, match="should_trace needs logdir"):
        slim.learning.train_step(None, train_op, None, {"should_trace": True})
    with pytest.raises(RuntimeError, match="not initialized: w"):
        train(train_op, tmp_path, init_op=None, number_of_steps=1)
    with pytest.raises(RuntimeError, match=r"closed for additions, .* Build the model again inside a new"):
        train(train_op, tmp_path, number_of_steps=1)
    with pytest.raises(ValueError, match="update_ops came twice"):
        slim.learning.create_train_op(None, None, [], update_ops=[])


def test_an_eager_result_is_no_operation(tmp_path):
    # In a thread of its own no graph is being built.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        eager = pool.submit(tf.constant, 1.0).result()
    with pytest.raises(ValueError, match="train_op was computed eagerly"):
        slim.learning.train(eager, tmp_path)
