"""Checkpoints are complete or not there, TensorFlow reads them, and a kill in between costs nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.training.checkpoints import Checkpoints

VALUES = {
    "lenet/conv1/weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "lenet/conv1/weights/Momentum": np.ones([2, 3], np.float32),
    "global_step": np.int64(7),
}


def test_tensorflow_reads_what_was_saved(tmp_path):
    prefix = Checkpoints(tmp_path / "checkpoints").save(7, VALUES)
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")) == prefix
    reader = tf.train.load_checkpoint(prefix)
    assert reader.get_variable_to_shape_map() == {
        "lenet/conv1/weights": [2, 3],
        "lenet/conv1/weights/Momentum": [2, 3],
        "global_step": [],
    }
    assert reader.get_tensor("global_step") == 7
    loaded = Checkpoints(tmp_path / "checkpoints").load(7)
    assert loaded.keys() == VALUES.keys()
    np.testing.assert_array_equal(loaded["lenet/conv1/weights"], VALUES["lenet/conv1/weights"])


def test_a_v1_saver_restores_it_by_name(tmp_path):
    prefix = Checkpoints(tmp_path).save(7, VALUES)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("lenet/conv1/weights", [2, 3])
        tf.compat.v1.train.Saver([weights]).restore(session, prefix)
        np.testing.assert_array_equal(session.run(weights), VALUES["lenet/conv1/weights"])


def test_the_latest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, max_to_keep=2)
    for step in (5, 10, 15, 20):
        checkpoints.save(step, VALUES)
    assert checkpoints.steps() == [15, 20]
    assert checkpoints.latest_step() == 20
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == ["model.ckpt-15", "model.ckpt-20"]
    assert len(os.listdir(tmp_path)) == 2 * 2 + 1


def test_the_bytes_depend_on_the_values_alone(tmp_path):
    first = Checkpoints(tmp_path / "a").save(7, VALUES)
    second = Checkpoints(tmp_path / "b").save(7, dict(reversed(VALUES.items())))
    for part in (".index", ".data-00000-of-00001"):
        assert Path(first + part).read_bytes() == Path(second + part).read_bytes()


def test_no_folder_is_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "none").latest_step() is None


def test_a_half_checkpoint_is_not_found(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(7, VALUES)
    (tmp_path / "model.ckpt-9.index").touch()  # Its data is missing.
    (tmp_path / ".model.ckpt-9.tmp.index").touch()
    assert checkpoints.latest_step() == 7


def test_a_damaged_checkpoint_is_named_with_the_way_out(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    prefix = checkpoints.save(7, VALUES)
    with open(prefix + ".index", "r+b") as file:
        file.truncate(10)
    with pytest.raises(UserError, match=r"model\.ckpt-7: the checkpoint cannot be read: .*Delete its two files to st"):
        checkpoints.load(7)
    prefix = checkpoints.save(8, VALUES)
    os.truncate(prefix + ".data-00000-of-00001", 20)
    with pytest.raises(
        UserError, match=r"model\.ckpt-8: the checkpoint cannot be read: .*files to go on from step 7\."
    ):
        checkpoints.load(8)


def test_a_folder_may_have_any_name(tmp_path):
    checkpoints = Checkpoints(tmp_path / "a[1] b*?" / "checkpoints")
    checkpoints.save(7, VALUES)
    assert checkpoints.load(7)["global_step"] == 7


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"the checkpoint of step 7 cannot be written to .*file/checkpoints"):
        Checkpoints(tmp_path / "file" / "checkpoints").save(7, VALUES)


@pytest.mark.slow
def test_a_kill_while_saving_leaves_the_last_complete_one(tmp_path):
    script = textwrap.dedent(
        """
        import sys, numpy as np
        from slimexp.training.checkpoints import Checkpoints
        checkpoints = Checkpoints(sys.argv[1], max_to_keep=2)
        step = 0
        while True:
            step += 1
            checkpoints.save(step, {"w": np.full([500_000], step, np.float32), "global_step": np.int64(step)})
            print(step, flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    for _ in range(5):
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.stdout.read()
    process.stdout.close()
    process.wait()
    checkpoints = Checkpoints(tmp_path)
    latest = checkpoints.latest_step()
    assert latest >= said
    for step in checkpoints.steps():
        values = checkpoints.load(step)
        assert values["global_step"] == step
        assert (values["w"] == step).all()
    checkpoints.save(latest + 1, VALUES)
    assert checkpoints.latest_step() == latest + 1
    assert not list(tmp_path.glob(".*"))
