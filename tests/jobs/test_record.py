"""Run names say what a command changed."""

from __future__ import annotations

import pytest

from slimexp.jobs.record import run_name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "lenet digits"),
        (["pipeline.threads=8", "+model.network.depth=2", "seed=3"], "lenet digits threads=8 depth=2 seed=3"),
        (
            ["optimizer=adam", "run_dir=/a/b", "tracking.experiment=x", "hydra.verbose=true"],
            "lenet digits optimizer=adam",
        ),
        (["dataset.cache_dir=/tmp/x", "model=lenet", "dataset=digits", "job=train"], "lenet digits"),
        (["experiment=digits_vgg16"], "lenet digits experiment=digits_vgg16"),
    ],
)
def test_run_names(job, overrides, name):
    assert run_name(job.config(), overrides) == name
