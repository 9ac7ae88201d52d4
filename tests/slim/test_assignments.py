from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim

v1 = tf.compat.v1


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with `net/weights` [2, 3] and `net/biases` [3]."""
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("net"):
            slim.variable("weights", [2, 3], initializer=v1.constant_initializer(2.0))
            slim.variable("biases", [3], initializer=v1.constant_initializer(3.0))
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_values_by_name(session):
    v = slim.variable("a/v", [2])
    op, feeds = slim.assign_from_values({"a/v": np.array([1.0, 2.0])})
    session.run(op, feeds)
    np.testing.assert_array_equal(session.run(v), [1, 2])
    slim.assign_from_values_fn({"a/v": [3.0, 4.0]})(session)
    np.testing.assert_array_equal(session.run(v), [3, 4])
    with pytest.raises(ValueError, match=r"the value given for 'a/v' is \[3\], but the variable 'a/v' has shape \[2\]"):
        slim.assign_from_values({"a/v": [1.0, 2.0, 3.0]})


def test_values_from_a_checkpoint(session, checkpoint):
    weights = slim.variable("net/weights", [2, 3])
    renamed = slim.variable("other/biases", [3])
    slim.assign_from_checkpoint_fn(checkpoint, [weights])(session)
    slim.assign_from_checkpoint_fn(checkpoint, {"net/biases": renamed})(session)
    np.testing.assert_array_equal(session.run(weights), np.full([2, 3], 2.0))
    np.testing.assert_array_equal(session.run(renamed), np.full([3], 3.0))


def test_a_path_may_name_a_checkpoint_and_a_folder(session, checkpoint):
    weights = slim.variable("net/weights", [2, 3])
    Path(checkpoint).mkdir()
    slim.assign_from_checkpoint_fn(checkpoint, [weights])(session)
    slim.assign_from_checkpoint_fn(str(Path(checkpoint).parent), [weights])(session)
    np.testing.assert_array_equal(session.run(weights), np.full([2, 3], 2.0))


def test_partitioned_variables_get_their_parts(session, checkpoint):
    partitioner = v1.fixed_size_partitioner(2, axis=0)
    parts = list(slim.variable("net/weights", [2, 3], partitioner=partitioner))
    assert len(parts) == 2
    slim.assign_from_checkpoint_fn(checkpoint, parts)(session)
    np.testing.assert_array_equal(session.run(parts[1]), np.full([1, 3], 2.0))


def test_missing_and_misshapen_variables(session, checkpoint):
    missing = slim.variable("net/missing", [3])
    flat = slim.variable("net/weights", [6])
    with pytest.raises(ValueError, match=r"has no variable 'net/missing'.*ignore_missing_vars=True"):
        slim.assign_from_checkpoint(checkpoint, [missing])
    assert slim.assign_from_checkpoint_fn(checkpoint, [missing], ignore_missing_vars=True) is None
    with pytest.raises(ValueError, match=r"'net/weights' in .* is \[2, 3\], but the variable .* has shape \[6\]"):
        slim.assign_from_checkpoint(checkpoint, [flat])
    slim.assign_from_checkpoint_fn(checkpoint, [flat], reshape_variables=True)(session)
    np.testing.assert_array_equal(session.run(flat), np.full([6], 2.0))
    with pytest.raises(ValueError, match="var_list is empty"):
        slim.assign_from_checkpoint_fn(checkpoint, [])
