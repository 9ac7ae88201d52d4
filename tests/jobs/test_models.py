from __future__ import annotations

import importlib
import inspect

import pytest
import tensorflow as tf

from slimexp import nets
from slimexp.config import CONFIG_DIR
from tests.jobs.conftest import TINY, Job

MODELS = sorted(path.stem for path in (CONFIG_DIR / "model").glob("*.yaml"))


def network(config):
    module, _, name = config.model.network["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.fixture(scope="module")
def configs(tmp_path_factory, cache_dir, empty_store):
    """The configuration with each option, by its name."""
    job = Job(tmp_path_factory.mktemp("models"), cache_dir, empty_store)
    return {model: job.config(f"model={model}") for model in MODELS}


def test_every_network_has_an_option(configs):
    optional = {network(config).__name__ for config in configs.values()}
    assert optional == {name for name in nets.__all__ if hasattr(getattr(nets, name), "head_scopes")}


@pytest.mark.parametrize("model", MODELS)
def test_every_option_agrees_with_its_network(configs, model):
    config = configs[model]
    net = network(config)
    assert config.model.name == model
    text = (CONFIG_DIR / "model" / f"{model}.yaml").read_text()
    if "image_size" in text:
        assert f"null: {net.default_image_size}, or the dataset's own size" in text
    assert config.preprocessing.name == config.model.preprocessing
    assert config.learning_rate.initial == config.model.learning_rate
    assert config.model.weight_decay == pytest.approx(
        inspect.signature(net.arg_scope).parameters["weight_decay"].default or 0.00004
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", [model for model in MODELS if model != "inception"])
def test_every_option_trains_two_steps(job, model):
    job.train(f"model={model}", *TINY, "trainer.max_steps=2", "tracking=none", "evaluation.batch_size=64")
    names = tf.train.load_checkpoint(str(job.run_dir / "checkpoints")).get_variable_to_shape_map()
    for scope in network(job.config(f"model={model}")).head_scopes:
        assert any(name.startswith(f"{scope}/") for name in names), scope
    assert any(name.endswith(("/Momentum", "/RMSProp")) for name in names)
