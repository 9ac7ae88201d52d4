"""A checkpoint that is not there is found by names of files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.jobs.sources import find_sources


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["restore.checkpoint=no"], "restore.checkpoint"),
        (["job=evaluate", "evaluation.checkpoint=no"], "evaluation.checkpoint"),
        (["job=export", "export.checkpoint=no"], "export.checkpoint"),
        (["job=predict", "predict.model=no"], "predict.model"),
        (["job=inspect", "inspect.checkpoint=no"], "inspect.checkpoint"),
    ],
    ids=["train", "evaluate", "export", "predict", "inspect"],
)
def test_what_is_not_there_is_told_by_its_key(job, overrides, key):
    with pytest.raises(UserError, match=rf"{key}=.*/no: there is no such checkpoint"):
        find_sources(job.config(*overrides))


def test_what_is_there_or_not_needed_is_let_pass(job, tmp_path: Path):
    (tmp_path / "a.ckpt.index").touch()
    find_sources(job.config("restore.checkpoint=a.ckpt"))
    for overrides in ([], ["job=predict"], ["job=inspect"], ["job=benchmark", "restore.checkpoint=no"]):
        find_sources(job.config(*overrides))
    find_sources(job.config("job=evaluate", "evaluation.checkpoint=no", "evaluation.follow=true"))
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "export.json").touch()
    find_sources(job.config("job=predict", "predict.model=export"))
    checkpoints = job.run_dir / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "model.ckpt-3.index").touch()
    find_sources(job.config("restore.checkpoint=no"))  # It goes on from its own.
