"""Measured settings become the option `pipeline=tuned`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.errors import MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from slimexp import search_path
from slimexp.config import CONFIG_DIR, Config
from slimexp.pipeline.doctor.rates import Rate
from slimexp.sweep.tuned import adopt_tuned, describe_machine, measured_elsewhere, tuned_text, write_tuned
from slimexp.validation import validate
from tests.sweep.synthetic import PIPELINE, PLACE

FOR = "digits (1,438 images), lenet at 28 px"
RATES = {
    name: Rate(rate, rate, rate) for name, rate in (("pipeline", 3050.4), ("network", 4200.0), ("training", 2900.0))
}


def text(*overrides: str, pipeline: dict[str, Any] = PIPELINE, **changes: Any) -> str:
    options: dict[str, Any] = {"where": PLACE, "rates": RATES, "command": "python -m slimexp -m job=benchmark"}
    return tuned_text(pipeline, overrides, **{**options, **changes})


def test_the_file_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    lines = text("pipeline.threads=6", note="measured without\nthat").splitlines()
    assert lines[0] == "# Pipeline settings measured by job=benchmark: `pipeline=tuned` takes them."
    assert lines[1].startswith("# Date:     20")
    assert lines[2:8] == [
        "# Machine:  oak, 4 cores of AMD EPYC",
        "# Command:  /env/bin/python -m slimexp -m job=benchmark",
        "# Measured: the pipeline 3,050, the network 4,200, together 2,900 images/s",
        "# Dataset:  digits (1,438 images)",
        "# Model:    lenet at 28 px",
        "# Note:     measured without that",  # A line break would end the comment.
    ]
    values = yaml.safe_load("\n".join(lines))
    assert values == {**PIPELINE, "name": f"tuned for 4 cores of oak, {FOR}", "threads": 6}
    assert next(iter(values)) == "name"


def test_overrides_deep_inside_leave_the_original_alone() -> None:
    values = yaml.safe_load(text("pipeline.queues.prefetch.capacity=64", "pipeline.cache=shrunk"))
    assert values["queues"]["prefetch"] == {"capacity": 64}
    assert values["cache"] == "shrunk"
    assert PIPELINE["queues"]["prefetch"] == {"capacity": None}  # type: ignore[index]


def test_the_machine() -> None:
    machine = describe_machine()
    assert set(machine) == {"host", "cpu", "num_cpus"}
    assert 0 < machine["num_cpus"] <= (os.cpu_count() or 1)
    assert "name: tuned for 1 core of an unknown machine" in text(where={"num_cpus": 1.0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"host": "elm"}, None),  # A container has another name each time.
        ({"num_cpus": 8.0}, None),
        (
            {"host": "elm", "num_cpus": 8.0},
            "8 cores of elm. To measure here: /env/bin/python -m slimexp job=benchmark model=vgg16 pipeline.batch",
        ),
        ({"dataset": "listfile (9 images)"}, "for digits (1,438 images), and this is listfile (9 images). To measure"),
        ({"model": "vgg16 at 224 px"}, "for lenet at 28 px, and this is vgg16 at 224 px. To measure here: "),
    ],
    ids=["here", "another name", "more cores", "another machine", "other data", "another network"],
)
def test_settings_from_elsewhere_are_told(
    changes: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    name = yaml.safe_load(text())["name"]
    command = ["slimexp", "model=vgg16", "pipeline=tuned", "pipeline.batch_size=8", "trainer.max_steps=3", "run_dir=r"]
    found = measured_elsewhere(name, {**PLACE, **changes}, command)
    assert (found is None) if said is None else (found is not None and said in found)


def test_other_settings_are_for_anywhere() -> None:
    assert measured_elsewhere("default", PLACE, ["slimexp"]) is None
    of_an_earlier_version = "tuned for 1 core of elm"
    said = measured_elsewhere(of_an_earlier_version, PLACE, ["slimexp"])
    assert said is not None
    assert said.startswith("pipeline=tuned was measured on 1 core of elm, and this is 4 cores of oak. To measure here")


def test_it_is_written_for_the_user(tmp_path: Path) -> None:
    assert adopt_tuned(tmp_path, text()) == "pipeline=tuned takes these settings (conf/pipeline/tuned.yaml)"
    path = tmp_path / "conf" / "pipeline" / "tuned.yaml"
    assert path.read_text() == text()


def test_an_earlier_one_is_replaced_with_a_word(tmp_path: Path) -> None:
    old = text("pipeline.threads=8", "pipeline.queues.read.capacity=9")
    adopt_tuned(tmp_path, old.replace(old.splitlines()[1], "# Date:     2020-01-02 03:04"))
    assert adopt_tuned(tmp_path, text("pipeline.threads=2")) == (
        "pipeline=tuned takes these settings (conf/pipeline/tuned.yaml, in place of those of 2020-01-02 03:04: "
        "threads 8 -> 2, queues.read.capacity 9 -> None)"
    )
    assert "which were the same" in adopt_tuned(tmp_path, text("pipeline.threads=2"))


def test_a_file_of_the_users_own_stays(tmp_path: Path) -> None:
    path = write_tuned(tmp_path / "conf", "threads: 3\n")
    assert adopt_tuned(tmp_path, text()) == (
        "conf/pipeline/tuned.yaml is a file of your own and stays as it is; remove it, or use the settings above."
    )
    assert path.read_text() == "threads: 3\n"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("")
    assert adopt_tuned(tmp_path, text()).startswith("conf/pipeline/tuned.yaml cannot be written: ")


@pytest.fixture
def own_options() -> Any:
    """Registers the plug-in for a test."""
    search_path.register()
    ConfigStore.instance().store(name="schema", node=Config)
    return search_path


def composed(*overrides: str) -> Any:
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("config", [*overrides, "run_dir=r"])


def test_pipeline_tuned_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_options: Any) -> None:
    monkeypatch.chdir(tmp_path)
    adopt_tuned(tmp_path, text("pipeline.threads=3", "pipeline.decoder=tensorflow"))
    config = validate(composed("pipeline=tuned"), start_dir=tmp_path)
    assert config.pipeline.threads == 3
    assert config.pipeline.decoder.value == "tensorflow"
    assert config.pipeline.name == f"tuned for 4 cores of oak, {FOR}"
    assert set(vars(config.pipeline)) == set(PIPELINE)


def test_options_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_options: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for group, option, content in (("optimizer", "sgd", "name: mine\n"), ("optimizer", "mine", "name: mine\n")):
        path = tmp_path / "conf" / group / f"{option}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert composed("optimizer=mine").optimizer.name == "mine"
    assert composed("optimizer=sgd").optimizer.name == "sgd"  # Ours comes first.


def test_without_a_folder_there_is_neither_option_nor_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_options: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingConfigException, match=r"Could not find 'pipeline/tuned'"):
        composed("pipeline=tuned")


def test_our_own_conf_is_searched_once(monkeypatch: pytest.MonkeyPatch, own_options: Any) -> None:
    monkeypatch.chdir(CONFIG_DIR.parent)
    assert search_path.OwnOptions in Plugins.instance().discover(SearchPathPlugin)
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        sources = compose("config", ["run_dir=r"], return_hydra_config=True).hydra.runtime.config_sources
    assert sum(source.path == str(CONFIG_DIR) for source in OmegaConf.to_object(sources)) <= 1
