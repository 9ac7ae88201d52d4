"""A dry run finds what would end a job before its first step, and leaves nothing behind."""

from __future__ import annotations

import re

import pytest
from tensorflow.python.framework import config as tf_config

from slimexp.errors import UserError
from slimexp.jobs.dry_run import Rehearsal


@pytest.fixture(scope="module")
def rehearsal():
    """What several checks share is built once."""
    return Rehearsal()


def test_it_says_what_the_job_would_do_and_leaves_nothing(job, rehearsal):
    before = sorted(job.folder.iterdir())
    said = rehearsal.check(job.config("trainer.max_steps=90", "pipeline.threads=auto"))
    assert said == (
        "1,438 images to train on and 359 to evaluate on, of 28 x 28; 3,276,234 values in 8 variables; "
        "to step 90, 2.0 epochs"
    )
    assert rehearsal.check(job.config("job=benchmark")).endswith("; 3 rounds of 2 s a measurement")
    assert [path for path in sorted(job.folder.iterdir()) if path not in before] == [job.folder / "mlflow.db"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.image_size=3"], "model.image_size=3: lenet needs 4 pixels or more"),
        (["optimizer._target_=slimexp.training.optimizers.nope"], "has no function or class nope"),
        (["restore.checkpoint=nowhere.ckpt"], "there is no such checkpoint"),
        (["restore.trainable_scopes=[Lenet]"], "restore.trainable_scopes"),
        (["loss=sigmoid"], "loss.name=sigmoid: dataset digits has single-label examples"),
        (["pipeline.batch_size=2000"], "batch"),
        (["trainer.resume=must"], "has no checkpoint to go on from"),
        (["job=evaluate", "evaluation.checkpoint=nowhere"], "evaluation.checkpoint=.*nowhere"),
        (["job=inspect", "inspect.checkpoint=nowhere"], "inspect.checkpoint=.*nowhere"),
        (["job=predict", "predict.model=x", "predict.input=nowhere"], "predict.input=.*nowhere"),
    ],
    ids=lambda value: value[-1].partition("=")[0] if isinstance(value, list) else "",
)
def test_what_would_end_the_job_is_found(job, rehearsal, overrides, message):
    with pytest.raises(UserError, match=message):
        rehearsal.check(job.config(*overrides))


def test_a_run_and_its_checkpoint_are_looked_at(job, rehearsal):
    job.train("trainer.max_steps=2", "trainer.eval_every_steps=0", "pipeline.batch_size=8")
    tf_config.disable_op_determinism()  # The dry run of a later command is in a process of its own.
    goes_on = rehearsal.check(job.config("trainer.max_steps=4", "pipeline.batch_size=8"))
    assert "from its checkpoint of step 2 to step 4" in goes_on
    with pytest.raises(UserError, match=re.escape("model=cifarnet: run_dir=")):
        rehearsal.check(job.config("model=cifarnet", "preprocessing=lenet"))
    checkpoint = f"{job.run_dir}/checkpoints/model.ckpt-2"
    fresh = ["run_dir=other", f"restore.checkpoint={checkpoint}"]
    assert "8 of 8 variables from " in rehearsal.check(job.config(*fresh))
    with pytest.raises(UserError, match=r"Logits|fc3|shape"):
        rehearsal.check(job.config(*fresh, "model.image_size=32"))
    assert "images of 28 x 28" in rehearsal.check(job.config("job=evaluate", f"evaluation.checkpoint={checkpoint}"))
