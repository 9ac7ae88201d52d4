"""From a checkpoint to a run: restored and recorded, or stopped with the override that mends it; never twice."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.errors import UserError
from slimexp.nets import inception_v3, vgg_16
from tests.jobs.conftest import TINY

UNTRACKED = [*TINY, "evaluation.batch_size=120", "tracking=none"]
LISTED = ["dataset=listfile", "dataset.train_list=train.txt", "dataset.num_classes=3"]


def values_of(run_dir: Path, step: int = 4) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(run_dir / "checkpoints" / f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def lenet_checkpoint(path: Path, rename=lambda name: name, classes: int = 3) -> Path:
    """Writes a V1 checkpoint of LeNet under other names, as TF-Slim would: model variables and the step."""
    random = np.random.RandomState(0)
    shapes = {
        "LeNet/conv1/weights": (5, 5, 3, 32),
        "LeNet/conv1/biases": (32,),
        "LeNet/conv2/weights": (5, 5, 32, 64),
        "LeNet/conv2/biases": (64,),
        "LeNet/fc3/weights": (3136, 1024),
        "LeNet/fc3/biases": (1024,),
        "LeNet/fc4/weights": (1024, classes),
        "LeNet/fc4/biases": (classes,),
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in shapes.items():
            value = random.normal(0, 0.02, shape).astype(np.float32)
            tf.compat.v1.get_variable(rename(name), shape, initializer=tf.constant_initializer(value))
        tf.compat.v1.train.create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(write_version=tf.compat.v1.train.SaverDef.V1)
        return Path(saver.save(session, str(path), write_meta_graph=False))


def test_fine_tuning_a_run_of_ours_leaves_its_body_as_it_was(job, photos, caplog):
    caplog.set_level("INFO")
    photos(12)
    pretrained = job.folder / "pretrained"
    job.train(*LISTED, *UNTRACKED, f"run_dir={pretrained}")
    job.train(*TINY, "restore=finetune", f"restore.checkpoint={pretrained}", "restore.trainable_scopes=heads")
    before, after = values_of(pretrained), values_of(job.run_dir)
    body = [name for name in after if name.startswith("LeNet/") and "fc4" not in name]
    assert len(body) == 6  # No slots.
    for name in body:
        np.testing.assert_array_equal(after[name], before[name])
    assert after["LeNet/fc4/weights"].shape == (1024, 10)
    assert "10,250 parameters to train, 3,265,984 frozen" in caplog.text
    assert "6 of 6 variables restored (100 %)" in caplog.text

    with open(job.run_dir / "restore.csv", newline="") as file:
        rows = {row["variable"] or row["in_checkpoint"]: row for row in csv.DictReader(file)}
    assert rows["LeNet/conv1/weights"]["status"] == "restored"
    assert rows["LeNet/fc4/weights"]["status"] == "excluded"
    assert rows["LeNet/fc4/weights"]["shape_in_checkpoint"] == "[1024, 3]"
    assert rows["LeNet/fc4/weights/RMSProp"]["status"] == "training state"
    (run,) = job.runs()
    assert run.data.tags["restore"].startswith("6 of 6 variables, ")
    assert (Path(run.info.artifact_uri) / "restore.csv").is_file()


@pytest.mark.slow
def test_a_run_that_goes_on_does_not_restore_again_and_refuses_another_checkpoint(job, caplog):
    checkpoint = lenet_checkpoint(job.folder / "old.ckpt")
    other = lenet_checkpoint(job.folder / "other.ckpt")
    finetune = [*UNTRACKED, "restore=finetune"]
    job.train(*finetune, f"restore.checkpoint={checkpoint}")
    before = values_of(job.run_dir)
    checkpoint.unlink()  # Not even looked at.
    caplog.set_level("INFO")
    job.train(*finetune, f"restore.checkpoint={checkpoint}")
    assert "it goes on from its own checkpoint of step 4, and nothing is restored again" in caplog.text
    np.testing.assert_array_equal(values_of(job.run_dir)["LeNet/conv1/weights"], before["LeNet/conv1/weights"])
    with pytest.raises(
        UserError, match=r"restore\.checkpoint=.*other\.ckpt: run_dir=.* began from .*old\.ckpt and is at"
    ):
        job.train(*finetune, f"restore.checkpoint={other}")
    job.train(*UNTRACKED)  # Without a word about the checkpoint it goes on as well.
    job.train(*UNTRACKED, f"run_dir={job.folder}/scratch")
    with pytest.raises(UserError, match=r"holds a run that began from initial values and is at step 4"):
        job.train(*finetune, f"restore.checkpoint={other}", f"run_dir={job.folder}/scratch")


def override_in(error: UserError) -> str:
    """Returns the override that a message tells to add, as the shell would hand it over."""
    found = re.search(r"restore\.exclude=\[\S+\]|'restore\.name_map=.*'", str(error))
    return shlex.split(found.group(0))[0]


def test_the_override_that_an_error_names_mends_it(job):
    checkpoint = lenet_checkpoint(job.folder / "old.ckpt", lambda name: f"model/{name.replace('weights', 'kernel')}")
    asked = [*UNTRACKED, f"restore.checkpoint={checkpoint}"]
    with pytest.raises(UserError, match="none of the 8 variables of lenet is in the checkpoint") as error:
        job.train(*asked)
    assert (job.run_dir / "restore.csv").is_file()
    asked.append(override_in(error.value))
    with pytest.raises(UserError, match="2 have another shape") as error:
        job.train(*asked)
    asked.append(override_in(error.value))
    assert asked[-1] == "restore.exclude=[LeNet/fc4]"
    job.train(*asked)


@pytest.mark.slow
def test_both_maps_of_the_seed(job, caplog):
    caplog.set_level("INFO")
    prefixed = lenet_checkpoint(job.folder / "a.ckpt", lambda name: f"vgg16/{name}", classes=10)
    renamed = lenet_checkpoint(
        job.folder / "b.ckpt", lambda name: name.replace("weights", "params1").replace("biases", "params2"), classes=10
    )
    job.train(
        *UNTRACKED, f"restore.checkpoint={prefixed}", 'restore.name_map=[{pattern: "^", replace: "vgg16/"}]',
        f"run_dir={job.folder}/a",
    )  # fmt: skip
    job.train(
        *UNTRACKED, f"restore.checkpoint={renamed}",
        "restore.name_map=[{pattern: weights, replace: params1}, {pattern: biases, replace: params2}]",
        f"run_dir={job.folder}/b",
    )  # fmt: skip
    assert caplog.text.count("8 of 8 variables restored (100 %)") == 2


def test_what_cannot_be_restored_stops_before_the_data_are_looked_at(job):
    with pytest.raises(UserError, match=r"restore\.checkpoint=.*vgg_16\.ckpt: there is no such checkpoint"):
        job.train(*TINY, "restore=vgg16_imagenet", "dataset=image_folder", "dataset.root=nowhere")
    with pytest.raises(UserError, match=r"restore\.checkpoint not set: add restore\.checkpoint=VALUE"):
        job.train(*TINY, "restore=finetune")
    assert job.runs()[0].info.status == "FAILED"


def test_a_scope_that_matches_nothing_stops_with_the_nearest(job):
    checkpoint = lenet_checkpoint(job.folder / "old.ckpt")
    common = [*UNTRACKED, f"restore.checkpoint={checkpoint}"]
    with pytest.raises(
        UserError, match=r"restore\.exclude=\[LeNet/fc5\]: .*\n  LeNet/fc5: the nearest are LeNet/fc[34]"
    ):
        job.train(*common, "restore.exclude=LeNet/fc5")
    with pytest.raises(
        UserError, match=r"restore\.trainable_scopes=\[heads,vgg_16/fc8\]: no trainable variable of lenet"
    ):
        job.train(*common, "restore.trainable_scopes='heads, vgg_16/fc8'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "classes", "preset", "body"),
    [(vgg_16, 1000, "vgg16_imagenet", 30), (inception_v3, 1001, "inception_v3_imagenet", 376)],
    ids=["vgg16", "inception_v3"],
)
def test_published_networks_fine_tune_onto_twenty_labels(job, photos, caplog, network, classes, preset, body):
    """One command each, from a V1 file as TF-Slim published them; the whole body and its statistics stay the same."""
    caplog.set_level("INFO")
    path = job.folder / "published.ckpt"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        size = network.default_image_size
        with slim.arg_scope(network.arg_scope()):
            network(tf.compat.v1.placeholder(tf.float32, [1, size, size, 3]), classes, is_training=True)
        tf.compat.v1.train.create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(write_version=tf.compat.v1.train.SaverDef.V1)
        saver.save(session, str(path), write_meta_graph=False)
    photos(12)
    lines = [f"images/{n}.jpg -1:* 1:{n % 20},{(n + 7) % 20} 0:{(n + 1) % 20}\n" for n in range(12)]
    (job.folder / "train.txt").write_text("".join(lines))
    voc = ["dataset=listfile", "dataset.train_list=train.txt", "dataset.task=multi", "dataset.num_classes=20"]
    steps = ["trainer.max_steps=2", "pipeline.batch_size=2", "trainer.log_every_steps=1"]
    command = [*voc, *steps, f"restore={preset}", f"restore.checkpoint={path}"]
    with pytest.raises(UserError, match=r"(?s)have another shape:.*\(or restore\.exclude=heads\)") as error:
        job.train(*command, "restore.exclude=[]")
    job.train(*command, override_in(error.value), "restore.trainable_scopes=heads")
    assert f"{body} of {body} variables restored (100 %)" in caplog.text
    before, after = tf.train.load_checkpoint(str(path)), values_of(job.run_dir, 2)
    frozen = [name for name in after if not name.startswith(network.head_scopes) and name != "global_step"]
    assert len(frozen) == body
    for name in frozen:
        np.testing.assert_array_equal(after[name], before.get_tensor(name))
    assert all(after[f"{head}/{leaf}"].shape[-1] == 20 for head, leaf in HEADS[network.__name__])


HEADS = {
    "vgg_16": [("vgg_16/fc8", "weights")],
    "inception_v3": [
        ("InceptionV3/Logits", "Conv2d_1c_1x1/weights"),
        ("InceptionV3/AuxLogits", "Conv2d_2b_1x1/weights"),
    ],
}
