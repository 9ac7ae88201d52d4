"""What a job leaves in the store besides its metrics: its name, the data, the code and the settings without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import numpy as np
import pytest
import yaml

from slimexp.dataset.split import Dataset, Split
from slimexp.errors import UserError
from slimexp.jobs import record
from slimexp.jobs.record import log_data, run_name, start_tracking


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


def small_data(eval_labels):
    labels = np.array([0, 1, 1], np.int32)
    paths = [b"/photos/a.jpg", b"/photos/b.jpg", b"/photos/c.jpg"]
    held_out = Split("eval", paths, np.array(eval_labels, np.int32), "/photos/eval.txt")
    return Dataset("photos", "single", ("cat", "dog"), Split("train", paths, labels, "/photos/train.txt"), held_out)


@pytest.mark.parametrize("eval_labels", [[0, 0, 0], [0, 1, 1]], ids=["other data", "the same data"])
def test_a_run_says_which_data_it_uses(job, eval_labels):
    job.run_dir.mkdir()
    tracker = start_tracking(job.config("tracking.system_metrics=false"), [], None)
    digest = log_data(tracker, small_data(eval_labels))
    assert not tracker.finish()
    (run,) = job.runs()
    assert run.data.tags["dataset.train.fingerprint"] == digest
    inputs = {item.tags[0].value: item.dataset for item in run.inputs.dataset_inputs}
    assert set(inputs) == {"train", "eval"}
    assert inputs["train"].digest == digest
    assert json.loads(inputs["train"].source) == {"uri": "file:///photos/train.txt"}
    assert json.loads(inputs["train"].profile)["class_counts"] == {"cat": 1, "dog": 2}


def test_a_run_says_which_code_made_it_and_hides_what_is_secret(job, monkeypatch):
    """As `.hydra/config.yaml` has it, which goes to the store."""
    settings = "tracking:\n  uri: http://me:hunter2@host\n  tags:\n    api_token: hunter2\nseed: 0\n"
    (job.run_dir / ".hydra").mkdir(parents=True)
    (job.run_dir / ".hydra" / "config.yaml").write_text(settings)
    # A dictionary in an override, as Hydra writes it: quotes doubled, folded at 80 letters.
    overrides = [
        "seed=0",
        "+tracking.tags={password: 'hunter2a hunter2b', token: [hunter2], ok: '" + "fine " * 15 + "'}",
    ]
    (job.run_dir / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(overrides))
    collect = record.provenance.collect

    def dirty(*args):
        found = collect(*args)
        state = {"root": "/code", "commit": "feedc0ffee", "branch": "trunk", "dirty": True, "untracked": []}
        return {**found, "code": {**state, "diff": "-x = 1\n+x = 2\n"}, "started_in": None}

    monkeypatch.setattr(record.provenance, "collect", dirty)
    tracker = start_tracking(
        job.config("+tracking.tags={api_token: hunter2}", "tracking.system_metrics=false"), [], None
    )
    assert not tracker.finish()
    (run,) = job.runs()
    assert {"git.commit": "feedc0ffee", "git.branch": "trunk", "git.dirty": "true"}.items() <= run.data.tags.items()
    assert {"command", "cwd", "host", "user", "platform", "cpu.model", "cpu.cores", "gpu", "threads.tensorflow"} <= set(
        run.data.tags
    )
    assert run.data.tags["run_dir"] == str(job.run_dir)
    files = {path.relative_to(run.info.artifact_uri): path for path in Path(run.info.artifact_uri).rglob("*.*")}
    texts = {str(name): path.read_text() for name, path in files.items()}
    assert set(texts) == {"config/config.yaml", "config/overrides.yaml", "code/changes.diff"}
    assert texts["code/changes.diff"] == "# /code against commit feedc0ffee\n\n-x = 1\n+x = 2\n\n"
    assert texts["config/config.yaml"] == settings.replace("me:hunter2", "me:***").replace("hunter2", "'***'")
    assert yaml.safe_load(texts["config/overrides.yaml"]) == [
        "seed=0",
        overrides[1].replace("hunter2a hunter2b", "***").replace("[hunter2]", "***"),
    ]
    store = mlflow.MlflowClient(job.uri).get_run(run.info.run_id).to_dictionary()
    assert "hunter2" not in str([texts, store, (job.run_dir / "run.json").read_text()])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tracking.system_metrics=yes please", "tracking.system_metrics=yes please: must be auto, true or false"),
        ("tracking.events_max_bytes=10", "tracking.events_max_bytes=10: must be 1e.06 or more"),
        ("tracking.system_every_secs=0", "tracking.system_every_secs=0.0: must be 0.1 or more"),
        (
            "+tracking.tags={n: null}",
            r"tracking.tags.n=null: a tag's value is one text: leave .*\+tracking.tags.n=none",
        ),
        ("+tracking.tags={n: [a]}", r"tracking.tags.n=\[...\]: a tag's value is one text"),
        ("+tracking.tags={n: {a: hunter2}}", r"tracking.tags.n={...}: a tag's value is one text"),
    ],
    ids=["system_metrics", "events_max_bytes", "system_every_secs", "no tag", "a list as tag", "a group as tag"],
)
def test_wrong_settings_of_tracking(job, override, message):
    with pytest.raises(UserError, match=message):
        job.config(override.replace("=yes please", "='yes please'"))


def test_system_metrics_are_chosen(job):
    for value in ("auto", "true", "false"):
        config = job.config(f"tracking.system_metrics={value}")
        assert record.show(config.tracking.system_metrics).lower() == value


def test_tags_are_texts(job):
    assert job.config("+tracking.tags={a: 3, b: x, c: true}").tracking.tags == {"a": "3", "b": "x", "c": "True"}


def test_a_damaged_record_of_an_earlier_run_is_named(tmp_path, caplog):
    (tmp_path / "run.json").write_text('{"uri": 5}')
    assert record.earlier_run(tmp_path) == {}
    assert 'run.json cannot be read ("uri" is 5 and should be a text)' in caplog.text
