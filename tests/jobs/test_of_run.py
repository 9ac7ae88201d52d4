"""What a job takes over from the run that it works on; no TensorFlow."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from slimexp.config import CONFIG_DIR, Config
from slimexp.errors import UserError
from slimexp.jobs.of_run import RESOLVED_FILE, find_run, take_over, write_resolved
from slimexp.validation import validate

# The mechanism is the same for every key that takes a path.
READS = ["job.reads=restore.checkpoint"]


def composed(*overrides: str) -> DictConfig:
    ConfigStore.instance().store(name="schema", node=Config)
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", list(overrides), return_hydra_config=True)
    OmegaConf.set_struct(config, True)
    return config


def checked(config: DictConfig, start_dir: Path) -> Config:
    return validate(OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"]), start_dir=start_dir)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of VGG-16 on a folder of photos, as it leaves its configuration."""
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    options = ["dataset=image_folder", "dataset.root=photos", "model=vgg16", "model.image_size=64", "seed=3"]
    config = checked(composed(*options, f"run_dir={folder}", "pipeline.threads=auto"), tmp_path)
    config.pipeline.threads = 2
    write_resolved(config, image_size=64, task="multi")
    return folder


@pytest.mark.parametrize("named", ["", "checkpoints", "checkpoints/model.ckpt-7", "best"])
def test_the_run_of_a_path_is_found(run: Path, named: str) -> None:
    assert find_run(run / named) == run
    assert find_run(run.parent) is None


def test_a_job_takes_over_the_run_that_run_dir_names(run: Path, tmp_path: Path) -> None:
    config = composed(*READS, "run_dir=run")
    take_over(config, start_dir=tmp_path)
    result = checked(config, tmp_path / "elsewhere")
    assert (result.model.name, result.model.image_size, result.seed) == ("vgg16", 64, 3)
    assert result.dataset.root == str(tmp_path / "photos")
    assert result.preprocessing.name == "vgg"
    assert result.pipeline.threads == 2
    assert result.restore.checkpoint == str(run / "checkpoints")
    assert result.run_dir == str(run / "train")  # The job's name; it is another's for the jobs that read runs.
    assert OmegaConf.select(config, "hydra.run.dir") == str(run / "train")


def test_a_named_checkpoint_leaves_run_dir_alone(run: Path, tmp_path: Path) -> None:
    path = run / "checkpoints/model.ckpt-7"
    config = composed(*READS, f"restore.checkpoint={path}", "run_dir=results")
    take_over(config, start_dir=tmp_path)
    result = checked(config, tmp_path)
    assert result.model.name == "vgg16"
    assert (result.restore.checkpoint, result.run_dir) == (str(path), str(tmp_path / "results"))


def test_what_the_command_says_counts(run: Path, tmp_path: Path) -> None:
    overrides = ["dataset=digits", "pipeline.batch_size=7", "+model.network.dropout_keep_prob=1.0"]
    config = composed(*READS, f"run_dir={run}", *overrides)
    take_over(config, start_dir=tmp_path)
    result = checked(config, tmp_path)
    assert (result.dataset.name, result.pipeline.batch_size, result.pipeline.threads) == ("digits", 7, 2)
    assert result.model.network["dropout_keep_prob"] == 1.0
    assert result.model.network["_target_"] == "slimexp.nets.vgg.vgg_16"


def test_another_model_brings_its_preprocessing(run: Path, tmp_path: Path) -> None:
    config = composed(*READS, f"run_dir={run}", "model=inception")
    take_over(config, start_dir=tmp_path)
    assert checked(config, tmp_path).preprocessing.name == "inception"


def test_keys_of_a_later_version_keep_their_defaults(run: Path, tmp_path: Path) -> None:
    path = run / RESOLVED_FILE
    stored = OmegaConf.load(path)
    del stored["pipeline"]["scaled_decode"]
    OmegaConf.save(stored, path)
    config = composed(*READS, f"run_dir={run}")
    take_over(config, start_dir=tmp_path)
    assert checked(config, tmp_path).pipeline.scaled_decode is True


def test_other_jobs_and_other_checkpoints_are_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    for overrides in ([f"run_dir={run}"], [*READS, "restore.checkpoint=theirs/model.ckpt"]):
        config = composed(*overrides)
        before = OmegaConf.to_yaml(config.model), config.restore.checkpoint
        take_over(config, start_dir=tmp_path)
        assert (OmegaConf.to_yaml(config.model), config.restore.checkpoint) == before


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "say on what: run_dir=FOLDER .* or restore.checkpoint=PATH"),
        (["run_dir=nowhere"], "run_dir=nowhere: there is no such folder; .*restore.checkpoint=PATH"),
        (["run_dir=."], "run_dir=.: is no folder of a run that was trained"),
    ],
)
def test_nothing_to_work_on_is_said(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        take_over(composed(*READS, *overrides), start_dir=tmp_path)


@pytest.mark.parametrize("content", ["- 1", "{", "a: [", "\x00"])
def test_a_damaged_configuration_is_named(run: Path, tmp_path: Path, content: str) -> None:
    (run / RESOLVED_FILE).write_text(content)
    with pytest.raises(UserError, match=rf"{RESOLVED_FILE}: the run's configuration"):
        take_over(composed(*READS, f"run_dir={run}"), start_dir=tmp_path)


def test_following_waits_for_the_run_to_begin(run: Path, tmp_path: Path) -> None:
    resolved = run / RESOLVED_FILE
    content = resolved.read_text()
    resolved.unlink()
    follow = ["job=evaluate", f"run_dir={run}", "evaluation.follow=true"]
    with pytest.raises(UserError, match=r"no run has begun in .*run within 0\.1 s "):
        take_over(composed(*follow, "evaluation.timeout_secs=0.1"), start_dir=tmp_path)
    writer = threading.Timer(0.3, resolved.write_text, [content])
    writer.start()
    config = composed(*follow)
    take_over(config, start_dir=tmp_path)
    writer.join()
    assert config.evaluation.checkpoint == str(run / "checkpoints")
