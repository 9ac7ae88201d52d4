"""Every kind of checkpoint is found and read; what is none, or is damaged, gets one clear message."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp.config import CONFIG_DIR
from slimexp.errors import UserError
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoints import Checkpoints

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(path: Path, version: str = "V2", sharded: bool = False, value: np.ndarray = WEIGHTS, step: int = 7) -> str:
    """Saves as TF-Slim does, by a v1 Saver."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("net/conv1/weights", initializer=tf.constant(value))
        tf.compat.v1.get_variable("global_step", initializer=np.int64(step), trainable=False)
        session.run(tf.compat.v1.global_variables_initializer())
        write_version = getattr(tf.compat.v1.train.SaverDef, version)
        saver = tf.compat.v1.train.Saver(write_version=write_version, sharded=sharded)
        return saver.save(session, str(path), write_meta_graph=False)


def check(checkpoint: CheckpointFile, name: str = "net/conv1/weights") -> None:
    assert checkpoint.shapes()[name] == (2, 3)
    assert checkpoint.variables[name].dtype == "float32"
    ((found, value),) = checkpoint.read([name])
    assert found == name
    np.testing.assert_array_equal(value, WEIGHTS)


@pytest.mark.parametrize("folder", ["plain", "a[1] b*?"])
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_what_a_v1_saver_wrote(tmp_path, version, sharded, folder):
    path = tmp_path / "plain" / "model.ckpt"
    saved(path, version, sharded)
    path.parent.rename(tmp_path / folder)
    checkpoint = CheckpointFile(tmp_path / folder / "model.ckpt")
    check(checkpoint)
    assert checkpoint.kind == version
    assert set(checkpoint.variables) == {"global_step", "net/conv1/weights"}


def test_a_part_of_a_checkpoint_means_the_whole(tmp_path):
    saved(tmp_path / "model.ckpt")
    for part in (".index", ".data-00000-of-00001", ".meta"):
        check(CheckpointFile(f"{tmp_path}/model.ckpt{part}"))


def test_a_folder_means_its_latest(tmp_path):
    for step in (5, 10):
        Checkpoints(tmp_path / "run" / "checkpoints").save(step, {"net/conv1/weights": WEIGHTS, "global_step": step})
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoints"):
        checkpoint = CheckpointFile(folder)
        check(checkpoint)
        assert Path(checkpoint.prefix).name == "model.ckpt-10"
    (tmp_path / "run" / "checkpoints" / "checkpoint").unlink()
    assert Path(CheckpointFile(tmp_path / "run").prefix).name == "model.ckpt-10"


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_a_folder_that_was_moved(tmp_path, version):
    saved(tmp_path / "old" / "model.ckpt", version)
    (tmp_path / "old" / "checkpoint").write_text(f'model_checkpoint_path: "{tmp_path}/old/model.ckpt"\n')
    (tmp_path / "old").rename(tmp_path / "new")
    check(CheckpointFile(tmp_path / "new"))


def test_a_saved_model_of_tf1(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("net/conv1/weights", initializer=tf.constant(WEIGHTS))
        session.run(tf.compat.v1.global_variables_initializer())
        builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "export"))
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
    check(CheckpointFile(tmp_path / "export"))


def test_a_saved_model_and_a_checkpoint_of_objects_go_by_the_variables_names(tmp_path):
    module = tf.Module()
    module.kernel = tf.Variable(WEIGHTS, name="net/conv1/weights")
    module.twins = [tf.Variable(1.0, name="twin"), tf.Variable(2.0, name="twin")]
    tf.saved_model.save(module, str(tmp_path / "export"))
    checkpoint = CheckpointFile(tmp_path / "export")
    check(checkpoint)
    assert checkpoint.kind == "SavedModel"
    # A name that two have would be a guess: those keep their keys.
    assert {name for name in checkpoint.variables if "twin" in name} == {"twins/0", "twins/1"}
    check(CheckpointFile(tf.train.Checkpoint(module=module).save(str(tmp_path / "objects" / "ckpt"))))


def test_text_in_a_checkpoint_is_listed_but_cannot_be_restored(tmp_path):
    prefix = Checkpoints(tmp_path).save(1, {"w": WEIGHTS, "labels": np.array([b"cat", b"dog"])})
    checkpoint = CheckpointFile(prefix)
    assert set(checkpoint.variables) == {"w", "labels"}
    assert set(checkpoint.shapes()) == {"w"}


def test_what_is_not_there_is_said_with_what_is(tmp_path):
    saved(tmp_path / "vgg_16.ckpt")
    with pytest.raises(
        UserError, match=r"restore\.checkpoint=.*vgg16\.ckpt: there is no such.* there is .*vgg_16\.ckpt"
    ):
        CheckpointFile(tmp_path / "vgg16.ckpt")
    with pytest.raises(
        UserError, match=r"inspect\.other=.*: there is no such.*There is no folder .*/a/b\. .* is there"
    ):
        CheckpointFile(tmp_path / "a" / "b" / "x.ckpt", key="inspect.other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"the folder holds no checkpoint: .* In .*empty there is nothing\."):
        CheckpointFile(tmp_path / "empty")


@pytest.mark.parametrize("preset", ["inception_v3_imagenet", "vgg16_imagenet"])
def test_where_to_get_a_presets_checkpoint_is_said(tmp_path, preset):
    text = (CONFIG_DIR / "restore" / f"{preset}.yaml").read_text()
    (name,) = re.findall(r"^checkpoint: (\S+)", text, re.MULTILINE)
    (command,) = re.findall(r"^#   (curl (\S+) \| tar xz)$", text, re.MULTILINE)
    (tmp_path / "a b").mkdir()
    for file in ("LICENSE", "README.md"):
        (tmp_path / "a b" / file).touch()
    with pytest.raises(UserError) as error:
        CheckpointFile(tmp_path / "a b" / name)
    path = tmp_path / "a b" / name
    assert str(error.value) == (
        f"restore.checkpoint={path}: there is no such checkpoint. Nothing is downloaded; TF-Slim published it:\n"
        f"  {command[0]} -C '{tmp_path}/a b'"
    )
    with pytest.raises(UserError, match=rf":\n  mkdir -p {tmp_path}/new && curl .* -C {tmp_path}/new$"):
        CheckpointFile(tmp_path / "new" / name)
    archive = Path(command[1]).name
    (tmp_path / "a b" / archive).touch()
    with pytest.raises(UserError, match=rf"no such checkpoint\. .*{archive} is there: .*\(tar xzf {archive}\)\.$"):
        CheckpointFile(path)
    (tmp_path / "a b" / archive).unlink()
    saved(tmp_path / "a b" / f"my_{name}")
    with pytest.raises(UserError, match=rf"no such checkpoint\. In .* there is my_{name}\. Nothing is downloaded; "):
        CheckpointFile(path)


def test_files_of_other_kinds_are_told_apart(tmp_path):
    for name, message in (
        ("vgg_16_2016_08_28.tar.gz", r"is packed; unpack it"),
        ("model.h5", r"\.h5 files are not read, only TensorFlow's checkpoints"),
        ("notes.txt", r"the checkpoint .*notes\.txt cannot be read: .*fetch it again\."),
    ):
        (tmp_path / name).write_text("hello")
        with pytest.raises(UserError, match=message):
            CheckpointFile(tmp_path / name)


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_a_damaged_file_is_one_message(tmp_path, version):
    saved(tmp_path / "model.ckpt", version, value=np.ones([20_000, 3], np.float32))
    file = tmp_path / ("model.ckpt" if version == "V1" else "model.ckpt.data-00000-of-00001")
    os.truncate(file, 5000)
    with pytest.raises(
        UserError, match=r"restore\.checkpoint=.*: the checkpoint .*model\.ckpt cannot be read: .+ fetch"
    ):
        list(CheckpointFile(tmp_path / "model.ckpt").read(["net/conv1/weights"]))
    file.unlink()
    with pytest.raises(UserError, match=r"cannot be read|there is no such checkpoint"):
        list(CheckpointFile(tmp_path / "model.ckpt").read(["net/conv1/weights"]))
