"""The programs of old under scripts/, with a few steps."""

from __future__ import annotations

import importlib
import os

import pytest
import tensorflow as tf


@pytest.fixture
def script(repository, monkeypatch):
    """Imports a script by name."""
    monkeypatch.syspath_prepend(str(repository / "scripts"))
    verbosity = tf.compat.v1.logging.get_verbosity()
    yield importlib.import_module
    tf.compat.v1.logging.set_verbosity(verbosity)


def test_training_and_fine_tuning(script, tmp_path, capsys):
    digits, parity = str(tmp_path / "digits"), str(tmp_path / "parity")
    script("slim_train").main(["--logdir", digits, "--steps", "30"])
    # After one pass over half of the digits it knows most.
    accuracy = float(capsys.readouterr().out.split("accuracy ")[1].split()[0])
    assert accuracy > 0.5

    finetune = script("slim_finetune").main
    finetune(["--checkpoint", digits, "--logdir", parity, "--steps", "3", "--only-head"])
    assert "odd and even on 359 held-out digits" in capsys.readouterr().out
    before = tf.train.load_checkpoint(digits)
    after = tf.train.load_checkpoint(parity)
    assert after.get_tensor("global_step") == 3
    assert (before.get_tensor("LeNet/conv1/weights") == after.get_tensor("LeNet/conv1/weights")).all()
    assert after.get_tensor("LeNet/fc4/weights").shape == (1024, 2)
    assert [name for name in os.listdir(os.path.join(parity, "eval")) if "tfevents" in name]

    with pytest.raises(SystemExit):
        finetune(["--checkpoint", digits, "--logdir", digits])
    assert "--logdir must be another folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["slim_train", "slim_finetune", "measure_train_op"])
def test_help(name, script, capsys):
    with pytest.raises(SystemExit) as end:
        script(name).main(["--help"])
    assert end.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_a_step_is_that_of_the_one_written_by_hand(script, capsys):
    # It compares the losses itself; how long they take is not for a test on a shared machine.
    assert script("measure_train_op").main(["--steps", "3", "--rounds", "1"]) > 0
    assert "by hand" in capsys.readouterr().out
