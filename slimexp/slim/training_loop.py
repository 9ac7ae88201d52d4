"""The training loop of TF-Slim: a Supervisor's session, one step after the other, checkpoints and summaries beside it.

It runs graphs (a session of `tf.compat.v1`), not `tf.function`s.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from slimexp.slim.global_step import get_or_create_global_step
from slimexp.slim.logs import logger as _log
from slimexp.slim.sync_replicas import SyncReplicas, as_sync_optimizers
from slimexp.slim.training_services import CheckpointSaver, start_summaries

__all__ = ["USE_DEFAULT", "train", "train_step"]

v1 = tf.compat.v1

# Stands for "make the usual one", as None stands for "none". It is what a Supervisor takes for that, too.
USE_DEFAULT = 0

# What a session raises when the process behind it was restarted or is out of reach for a while.
_SESSION_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)

_POLL_SECS = 0.25
_MAX_PAUSE_SECS = 30.0


def train_step(sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Makes one step, logs it and tells whether training is over; graph mode only.

    Args:
        sess: The session.
        train_op: The operation that makes a step and returns the loss.
        global_step: The global step.
        train_step_kwargs: Any of these; boolean tensors are evaluated in the session. `should_stop`: training is over;
            `should_log`: log this step's loss; `should_trace`: record where the next step's time goes, as
            `tf_trace-STEP.json` for chrome://tracing in the folder `logdir`, and in the events of `summary_writer`.

    Returns:
        The loss, and whether training is over.

    Raises:
        ValueError: If `should_trace` comes without `logdir`.
    """
    start = time.monotonic()
    trace_options = metadata = None
    if "should_trace" in train_step_kwargs:
        if "logdir" not in train_step_kwargs:
            raise ValueError("train_step: should_trace needs logdir in train_step_kwargs, the folder for the traces.")
        if sess.run(train_step_kwargs["should_trace"]):
            trace_options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
            metadata = v1.RunMetadata()

    loss = sess.run(train_op, options=trace_options, run_metadata=metadata)
    secs = time.monotonic() - start

    # Afterwards, so that the step is that of the update; in one call, as each costs about as much as a small step.
    conditions = {key: train_step_kwargs[key] for key in ("should_stop", "should_log") if key in train_step_kwargs}
    step, values = sess.run([global_step, conditions])
    if metadata is not None:
        _write_trace(train_step_kwargs["logdir"], step, metadata, train_step_kwargs.get("summary_writer"))
    if values.get("should_log", False):
        _log.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, secs)
    return loss, values.get("should_stop", False)


def train(
    train_op: Any,
    logdir: str | os.PathLike[str] | None,
    train_step_fn: Callable[..., tuple[Any, Any]] = train_step,
    train_step_kwargs: Any = USE_DEFAULT,
    log_every_n_steps: int = 1,
    graph: tf.Graph | None = None,
    master: str = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = USE_DEFAULT,
    init_feed_dict: Mapping[Any, Any] | None = None,
    local_init_op: Any = USE_DEFAULT,
    init_fn: Callable[[Any], None] | None = None,
    ready_op: Any = USE_DEFAULT,
    summary_op: Any = USE_DEFAULT,
    save_summaries_secs: float | None = 600,
    summary_writer: Any = USE_DEFAULT,
    startup_delay_steps: int = 0,
    saver: Any = None,
    save_interval_secs: float | None = 600,
    sync_optimizer: Any = None,
    session_config: Any = None,
    session_wrapper: Callable[[Any], Any] | None = None,
    trace_every_n_steps: int | None = None,
    ignore_live_threads: bool = False,
) -> Any:
    """Runs the steps of a training operation until enough are made or its input ends; graph mode only.

    It starts from the latest checkpoint of `logdir` if there is one; then neither `init_op` nor `init_fn` is run. When
    the session is lost (`AbortedError`, `UnavailableError`) it starts again in that way. The graph's queue runners are
    started and stopped. A last checkpoint is saved at the end.

    Args:
        train_op: Makes a step and returns the loss: see `create_train_op`.
        logdir: The folder of checkpoints and event files; None for none of them.
        train_step_fn: Makes one step: a function of session, train_op, global step and `train_step_kwargs` that
            returns the loss and whether to stop.
        train_step_kwargs: See `train_step`. What it lacks of `should_stop`, `should_log`, `should_trace`, `logdir` and
            `summary_writer` is added according to the other arguments.
        log_every_n_steps: Log the loss every so many steps; 0 for never.
        graph: By default the default graph.
        master: The address of the TensorFlow server; empty for this process.
        is_chief: Whether this is the one worker that initializes, saves and writes summaries. The others wait for it.
        global_step: By default the graph's, created if needed.
        number_of_steps: Stop when the global step has reached it; at least one step is made. None for no end.
        init_op: Initializes the variables; by default all global ones. None for nothing.
        init_feed_dict: What to feed to `init_op`.
        local_init_op: Run after a checkpoint was restored or `init_op` was run; by default initializes the local
            variables and the tables. None for nothing.
        init_fn: A function of the session, called after `init_op`; see `assign_from_checkpoint_fn`.
        ready_op: Returns the names of the variables that are not initialized; training starts when there are none.
        summary_op: Returns the summaries to write; by default all of the graph. None for none.
        save_summaries_secs: Seconds between two writings of the summaries.
        summary_writer: By default one for `logdir`. None for none.
        startup_delay_steps: How many steps of the others a worker that is not the chief waits for before its first.
        saver: By default a `tf.compat.v1.train.Saver` of all variables.
        save_interval_secs: Seconds between two checkpoints, which are saved between two steps; one is saved before the
            first step.
        sync_optimizer: The `tf.compat.v1.train.SyncReplicasOptimizer` of `train_op`, or a list of them: the workers'
            gradients are then averaged. None: each worker applies its own at once.
        session_config: A `tf.compat.v1.ConfigProto`.
        session_wrapper: Called with the session; what it returns is used in its place for the steps.
        trace_every_n_steps: Record where the time goes every so many steps; see `train_step`.
        ignore_live_threads: Do not complain about threads that outlive the training by more than two minutes.

    Returns:
        The loss of the last step; None if the input had ended before the first.

    Raises:
        ValueError: If `train_op` is None or was computed eagerly; if a summary, saver or trace is asked for without
            `logdir`; if `number_of_steps` is not positive; for a `sync_optimizer` of another type, or together with
            `startup_delay_steps`.
        RuntimeError: If a variable is left without a value, or the graph was used for training before.
    """
    sync_optimizers = as_sync_optimizers(sync_optimizer)
    _check_arguments(train_op, logdir, summary_op, saver, trace_every_n_steps, number_of_steps, log_every_n_steps)
    if sync_optimizers and startup_delay_steps > 0:
        raise ValueError(
            f"train: startup_delay_steps={startup_delay_steps} with a sync_optimizer: synchronous replicas wait for "
            "each other, so one that starts late would hold up all. Use 0."
        )
    logdir = os.fspath(logdir) if logdir is not None else None

    with (graph or v1.get_default_graph()).as_default() as used_graph:
        if used_graph.finalized:
            raise RuntimeError(
                "train: the graph is closed for additions, as an earlier training or evaluation used it. Build the "
                "model again inside a new `with tf.Graph().as_default():`; training goes on from the checkpoint."
            )
        if global_step is None:
            global_step = get_or_create_global_step()
        if saver is None and logdir is not None:
            saver = v1.train.Saver()
        with v1.name_scope("init_ops"):
            if init_op is USE_DEFAULT:
                init_op = v1.global_variables_initializer()
            if ready_op is USE_DEFAULT:
                ready_op = v1.report_uninitialized_variables()
            if local_init_op is USE_DEFAULT:
                local_init_op = tf.group(v1.local_variables_initializer(), v1.tables_initializer())
            # All of it now, as the Supervisor closes the graph for additions.
            replicas = SyncReplicas.build(sync_optimizers, is_chief, local_init_op)
        if summary_op is USE_DEFAULT:
            summary_op = v1.summary.merge_all()
        kwargs = _default_kwargs(
            global_step, number_of_steps, log_every_n_steps, trace_every_n_steps if is_chief else None, logdir
        )
        if train_step_kwargs is not USE_DEFAULT:
            kwargs.update(train_step_kwargs or {})
        supervisor = v1.train.Supervisor(
            graph=used_graph,
            is_chief=is_chief,
            logdir=logdir,
            init_op=init_op,
            init_feed_dict=init_feed_dict,
            local_init_op=replicas.local_init_op,
            ready_for_local_init_op=replicas.ready_for_local_init_op,
            ready_op=ready_op,
            summary_op=summary_op,
            summary_writer=summary_writer,
            global_step=global_step,
            saver=saver,
            save_summaries_secs=save_summaries_secs or 0,
            save_model_secs=0,
            init_fn=init_fn,
            # Of a worker that waits for the chief; the default of 30 s is long for a small cluster.
            recovery_wait_secs=1,
        )
        if supervisor.summary_writer is not None:
            kwargs.setdefault("summary_writer", supervisor.summary_writer)

        saves = is_chief and logdir is not None

        def start(sess: Any) -> list[Any]:
            if saves:
                start_summaries(supervisor, sess, used_graph, save_summaries_secs)
            elif not is_chief and startup_delay_steps > 0:
                _wait_for_step(supervisor, sess, global_step, min(startup_delay_steps, number_of_steps or sys.maxsize))
            _log.info("Starting queues.")
            threads = supervisor.start_queue_runners(sess)
            replicas.start(supervisor.coord, sess)
            return threads

        loss = None
        pause_secs = 0.0
        while True:
            made_step = False
            try:
                with supervisor.managed_session(master, config=session_config, start_standard_services=False) as plain:
                    _log.info("Starting the session.")
                    # The wrapper is for the steps; a Saver takes nothing but a session.
                    sess = plain if session_wrapper is None else session_wrapper(plain)
                    threads = start(plain)
                    checkpoints = CheckpointSaver(supervisor, plain, save_interval_secs if saves else None)
                    checkpoints.save_if_due()
                    try:
                        while not supervisor.should_stop():
                            loss, should_stop = train_step_fn(sess, train_op, global_step, kwargs)
                            made_step = True
                            if should_stop:
                                _log.info("Stopping the training: its last step is made.")
                                break
                            checkpoints.save_if_due()
                    except tf.errors.OutOfRangeError as error:
                        _log.info("The input has ended, and so does the training: %s", _first_line(error))
                    if saves:
                        _log.info("Finished the training.")
                        checkpoints.save()
                    # The writer is closed when the session is; closed twice, it would complain.
                    supervisor.stop(threads, close_summary_writer=False, ignore_live_threads=ignore_live_threads)
                return loss
            except _SESSION_LOST as error:
                # A server that stays away must not be asked for again and again without a breath.
                pause_secs = 0.0 if made_step else min(max(2 * pause_secs, _POLL_SECS), _MAX_PAUSE_SECS)
                origin = "the last checkpoint" if logdir is not None or not is_chief else "the beginning (no logdir)"
                _log.warning("The session was lost (%s); going on from %s.", _first_line(error), origin)
                time.sleep(pause_secs)


def _check_arguments(
    train_op: Any,
    logdir: Any,
    summary_op: Any,
    saver: Any,
    trace_every_n_steps: int | None,
    number_of_steps: int | None,
    log_every_n_steps: int,
) -> None:
    if train_op is None:
        raise ValueError("train: train_op is None; make one with slim.learning.create_train_op.")
    if hasattr(train_op, "numpy") and not isinstance(train_op, tf.Variable):
        raise ValueError(
            "train: train_op was computed eagerly and is a number by now; build the model and call "
            "slim.learning.create_train_op inside `with tf.Graph().as_default():`."
        )
    if logdir is None:
        unwritable = {
            "summary_op": summary_op is not USE_DEFAULT and summary_op is not None,
            "saver": saver is not None,
            "trace_every_n_steps": trace_every_n_steps is not None,
        }
        for name, given in unwritable.items():
            if given:
                raise ValueError(f"train: {name} writes files, but logdir is None; give a folder.")
    if number_of_steps is not None and number_of_steps <= 0:
        raise ValueError(f"train: number_of_steps must be positive or None, got {number_of_steps}.")
    if log_every_n_steps < 0 or (trace_every_n_steps is not None and trace_every_n_steps <= 0):
        raise ValueError(
            "train: log_every_n_steps must not be negative and trace_every_n_steps must be positive or None, got "
            f"{log_every_n_steps} and {trace_every_n_steps}."
        )


def _default_kwargs(
    global_step: Any,
    number_of_steps: int | None,
    log_every_n_steps: int,
    trace_every_n_steps: int | None,
    logdir: str | None,
) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    with v1.name_scope("train_step"):
        # TensorFlow compares the ref variables of old by identity, so the operations are spelled out.
        if number_of_steps is None:
            kwargs["should_stop"] = tf.constant(False)
        else:
            kwargs["should_stop"] = tf.math.greater_equal(global_step, number_of_steps)
        if log_every_n_steps > 0:
            kwargs["should_log"] = tf.math.equal(tf.math.floormod(global_step, log_every_n_steps), 0)
        if trace_every_n_steps is not None:
            kwargs["should_trace"] = tf.math.equal(tf.math.floormod(global_step, trace_every_n_steps), 0)
            kwargs["logdir"] = logdir
    return kwargs


def _first_line(error: tf.errors.OpError) -> str:
    return error.message.split("\n")[0]


def _wait_for_step(supervisor: Any, sess: Any, global_step: Any, wanted: int) -> None:
    _log.info("Waiting for step %d of the other workers.", wanted)
    while not supervisor.should_stop() and sess.run(global_step) < wanted:
        time.sleep(_POLL_SECS)


def _write_trace(logdir: str, step: int, metadata: Any, summary_writer: Any) -> None:
    # TensorFlow has no public name for it.
    from tensorflow.python.client import timeline

    trace = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
    path = os.path.join(logdir, f"tf_trace-{step}.json")
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(trace)
    _log.info("Wrote a trace of step %d to %s.", step, path)
    if summary_writer is not None:
        summary_writer.add_run_metadata(metadata, f"run_metadata-{step}")
