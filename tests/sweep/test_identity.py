from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore

from slimexp.config import CONFIG_DIR, Config
from slimexp.sweep.identity import changed_keys, hash_of, identity, job_name, short_keys, sweep_name, swept_values
from slimexp.validation import validate


def hashed(*overrides):
    ConfigStore.instance().store(name="schema", node=Config)
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", list(overrides))
    return hash_of(identity(validate(config, start_dir="/start")))


@pytest.fixture(scope="module")
def plain():
    return hashed()


@pytest.mark.parametrize(
    "override",
    [
        *(
            "run_dir=x",
            "output_root=y",
            "dry_run=true",
            "sweep.on_failure=stop",
            "tracking=none",
            "trainer.resume=must",
        ),
        *("tracking.experiment=other", "tracking.run_name=me"),
    ],
)
def test_places_and_names_leave_a_job_what_it_is(plain, override):
    assert hashed(override) == plain


@pytest.mark.parametrize("override", ["seed=1", "trainer.max_steps=7", "pipeline.threads=5", "job=benchmark"])
def test_settings_make_it_another(plain, override):
    assert hashed(override) != plain


def test_what_changed_is_named():
    before, now = {"a.b": 1, "c": [2]}, {"a.b": 3, "c": [2], "d": None}
    assert changed_keys(before, now) == "a.b 1 -> 3"
    many = changed_keys({str(key): 0 for key in range(7)}, {str(key): 1 for key in range(7)})
    assert many == "0 0 -> 1, 1 0 -> 1, 2 0 -> 1, 3 0 -> 1, 4 0 -> 1, and 2 more"


def test_swept_values_are_plain_text():
    overrides = ["+a.b='x y'", 'c="z"', "d=[1,2]", "e=5", "f='"]
    assert swept_values(overrides, ["a.b", "c", "d", "f"]) == {"a.b": "x y", "c": "z", "d": "[1,2]", "f": "'"}


def test_a_name_has_the_network_and_what_is_swept():
    keys = ["model", "pipeline.threads", "optimizer", "model.network._target_"]
    swept = {"model": "vgg16", "pipeline.threads": "8", "optimizer": "adam", "model.network._target_": "my.net"}
    assert job_name("lenet", swept, keys) == "vgg16 threads=8 adam network=my.net"
    assert job_name("lenet", {}, []) == "lenet"
    assert sweep_name("vgg16", ["pipeline.threads", "seed"]) == "vgg16 threads seed"
    assert sweep_name("vgg16", ["model", "seed"]) == "model seed"


def test_short_keys_are_as_long_as_they_must_be():
    keys = ["pipeline.queues.read.capacity", "pipeline.queues.batch.capacity", "learning_rate.initial", "seed"]
    assert short_keys(keys) == {
        "pipeline.queues.read.capacity": "read.capacity",
        "pipeline.queues.batch.capacity": "batch.capacity",
        "learning_rate.initial": "learning_rate.initial",
        "seed": "seed",
    }
    assert short_keys(["a.x.size", "b.x.size"]) == {"a.x.size": "a.x.size", "b.x.size": "b.x.size"}
