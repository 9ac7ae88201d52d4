"""Two workers and a parameter server on loopback: asynchronous and synchronous replicas."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


def free_ports(number):
    """Loopback addresses that are free now."""
    sockets = [socket.socket() for _ in range(number)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def train(tmp_path, synchronous, number_of_steps):
    """Trains in two threads; returns, by worker, how many steps it made and what ended it."""
    ps, *workers = free_ports(3)
    cluster = v1.train.ClusterSpec({"ps": [ps], "worker": workers})
    servers = [v1.train.Server(cluster, "ps", 0), *(v1.train.Server(cluster, "worker", i) for i in range(2))]
    steps, ends = [0, 0], [None, None]

    def work(task):
        def step(*args):
            result = slim.learning.train_step(*args)
            steps[task] += 1
            return result

        try:
            setter = v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")
            with tf.Graph().as_default(), v1.device(setter):
                w = slim.variable("w", initializer=tf.constant(0.0))
                slim.get_or_create_global_step()
                optimizer = v1.train.GradientDescentOptimizer(1.0)
                if synchronous:
                    optimizer = v1.train.SyncReplicasOptimizer(optimizer, 2, total_num_replicas=2)
                # Worker 0 has gradient 1, worker 1 has 3.
                train_op = slim.learning.create_train_op(w * (1.0 + 2.0 * task), optimizer)
                ends[task] = slim.learning.train(
                    train_op,
                    tmp_path,
                    step,
                    master=servers[1 + task].target,
                    is_chief=task == 0,
                    number_of_steps=number_of_steps,
                    sync_optimizer=optimizer if synchronous else None,
                    startup_delay_steps=0 if synchronous else 3 * task,
                )
        except Exception as error:
            ends[task] = error

    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return steps, ends


def saved(tmp_path):
    reader = tf.train.load_checkpoint(str(tmp_path))
    return int(reader.get_tensor("global_step")), float(reader.get_tensor("w"))


def test_asynchronous_replicas(tmp_path):
    steps, ends = train(tmp_path, synchronous=False, number_of_steps=50)
    assert all(np.isfinite(end) for end in ends), ends
    step, w = saved(tmp_path)
    # Each step is one worker's; the second waited for three of the first.
    assert 50 <= step <= sum(steps)
    assert steps[0] >= 3
    assert w <= -step


def test_synchronous_replicas_average_their_gradients(tmp_path):
    steps, ends = train(tmp_path, synchronous=True, number_of_steps=10)
    assert all(np.isfinite(end) for end in ends), ends
    step, w = saved(tmp_path)
    assert step == 10
    assert sum(steps) >= 20
    # Each step applies the mean of two gradients; a fast worker may give both.
    assert -3 * step <= w <= -step


def test_a_synchronous_replica_does_not_start_late():
    with tf.Graph().as_default():
        optimizer = v1.train.SyncReplicasOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        with pytest.raises(ValueError, match="startup_delay_steps=5 with a sync_optimizer"):
            slim.learning.train(tf.constant(1.0), None, sync_optimizer=optimizer, startup_delay_steps=5)
