"""The composed configuration: every option composes, every fault is named with its key, its value and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from slimexp.config import CONFIG_DIR, GROUP_SCHEMAS, OPTION_SCHEMAS, Config
from slimexp.errors import UserError
from slimexp.validation import all_keys, flatten, nearest, unknown_key, validate

# What an option cannot do without.
NEEDED = {
    "dataset=listfile": ["dataset.train_list=train.txt"],
    "dataset=image_folder": ["dataset.root=photos"],
    "dataset=tfrecord": ["dataset.file_pattern='%s-*'"],
    **{f"dataset={name}": ["dataset.root=data"] for name in ("pascal_voc", "mnist", "cifar10", "flowers", "imagenet")},
}
NEEDED["restore=finetune"] = ["restore.checkpoint=x.ckpt"]
OPTIONS = sorted(
    f"{path.parent.name}={path.stem}" for path in CONFIG_DIR.glob("*/*.yaml") if path.parent.name != "experiment"
)
EXPERIMENTS = sorted(path.stem for path in CONFIG_DIR.glob("experiment/*.yaml"))


def composed(*overrides: str) -> DictConfig:
    ConfigStore.instance().store(name="schema", node=Config)
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("config", [*overrides])


def checked(*overrides: str) -> Config:
    return validate(composed(*overrides), start_dir="/start")


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_and_is_valid(option):
    group, _, name = option.partition("=")
    chosen = flatten(checked(option, *NEEDED.get(option, [])))
    if f"{group}.name" in chosen:
        assert chosen[f"{group}.name"] == name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes_and_tells_its_command_and_result(name):
    checked(f"experiment={name}")
    opening = (CONFIG_DIR / "experiment" / f"{name}.yaml").read_text().split("defaults:")[0]
    assert f"experiment={name}" in opening
    assert "Measured" in opening


def test_every_option_file_has_a_schema():
    groups = {path.parent.name for path in CONFIG_DIR.glob("*/*.yaml")} - {"experiment"}
    assert groups == set(GROUP_SCHEMAS) | set(OPTION_SCHEMAS)


def test_a_model_brings_its_preprocessing_and_the_user_can_override_it():
    assert checked("model=vgg16").preprocessing.name == "vgg"
    assert checked("model=inception").preprocessing.name == "inception"
    assert checked("model=vgg16", "preprocessing=none").preprocessing.name == "none"


def test_digits_are_not_mirrored_but_photos_are():
    assert checked("model=vgg16").preprocessing.flip is False
    assert checked("model=vgg16", "dataset=image_folder", "dataset.root=photos").preprocessing.flip is True


def test_paths_count_from_where_the_user_started():
    config = checked("dataset=listfile", "dataset.train_list=lists/train.txt", "dataset.image_dir=/images", "run_dir=r")
    assert config.dataset.train_list == "/start/lists/train.txt"
    assert config.dataset.image_dir == "/images"
    assert config.run_dir == "/start/r"


def test_a_users_own_option_keeps_its_keys(tmp_path):
    config = composed()
    config.dataset = {"_target_": "mine.load", "name": "mine", "shards": 3}
    assert validate(config, start_dir=tmp_path).dataset == {"_target_": "mine.load", "name": "mine", "shards": 3}


def test_flatten_names_every_leaf_and_writes_enums_by_name():
    flat = flatten(checked())
    assert flat["pipeline.threads"] == 4
    assert flat["pipeline.queues.read.capacity"] is None
    assert flat["tracking.backend"] == "mlflow"
    assert flat["model.network._target_"] == "slimexp.nets.lenet.lenet"
    assert set(flat) - {"model.network._target_"} <= all_keys()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+typo=1", r"typo=1: there is no such key; the nearest is "),
        ("+pipeline.thread=3", r"pipeline\.thread=3: there is no such key; the nearest is pipeline\.threads\."),
        ("+optimizer.momentun=1", r"the nearest is optimizer\.momentum\."),
        ("+threads=8", r"the nearest is pipeline\.threads\."),
        (
            "+dataset.train_list=a.txt",
            r"dataset\.train_list=a\.txt: a key of dataset=listfile, which was not chosen",
        ),
        ("+pipeline.queues.red.capacity=1", r"the nearest is pipeline\.queues\.read\.capacity\."),
        ("pipeline.threads=0", r"pipeline\.threads=0: must be 1 or more\."),
        ("pipeline.batch_size=-1", r"pipeline\.batch_size=-1: must be 1 or more\."),
        ("pipeline.queues.read.capacity=0", r"pipeline\.queues\.read\.capacity=0: must be 1 or more\."),
        ("model.dropout_keep_prob=0", r"model\.dropout_keep_prob=0\.0: must lie in \(0, 1\]\."),
        ("model.batch_norm_decay=1", r"model\.batch_norm_decay=1\.0: must lie in \[0, 1\)\."),
        ("model.network._target_=null", r"model\.network\._target_=null: must name a network function"),
        ("optimizer.momentum=1.5", r"optimizer\.momentum=1\.5: must lie in \[0, 1\)\."),
        ("optimizer.momentum=abc", r"optimizer\.momentum=abc: must be a number\."),
        ("optimizer.momentum=null", r"optimizer\.momentum=null: must be a number; null is not possible\. Leave it out"),
        ("dataset.exif=turn", r"dataset\.exif=turn: must be apply or ignore\."),
        ("dataset.name=[a]", r"dataset\.name=\['a'\]: must be text\."),
        ("learning_rate.initial=0", r"learning_rate\.initial=0\.0: must be above 0\."),
        ("loss.class_weights=heavy", r"loss\.class_weights=heavy: must be null, 'balanced', or a list"),
        ("loss.label_smoothing=1", r"loss\.label_smoothing=1\.0: must lie in \[0, 1\)\."),
        ("trainer.max_steps=null", r"trainer\.max_steps=null and trainer\.epochs=null: set one"),
        ("trainer.epochs=0", r"trainer\.epochs=0\.0: must be above 0\."),
        ("pipeline.threads=5000", r"pipeline\.threads=5000: must be 1,024 or less"),
        ("trainer.max_steps=99999999999999999999", r"trainer\.max_steps=9+: must be 1,000,000,000,000 or less"),
        ("trainer.epochs=inf", r"trainer\.epochs=inf: must be a finite number"),
        ("loss.class_weights=[0,0]", r"loss\.class_weights=\[0, 0\]: must be .* not all 0"),
        ("seed=-1", r"seed=-1: must lie in 0\.\.2147483647\."),
        ("seed=${nope}", r"seed: Interpolation key 'nope' not found"),
        ("dataset=listfile", r"dataset\.train_list not set: add dataset\.train_list=VALUE"),
        ("dataset=image_folder", r"dataset\.root not set"),
        ("restore=finetune", r"restore\.checkpoint not set: add restore\.checkpoint=VALUE"),
        (
            "restore.exclude=heads",
            r"restore\.exclude=\[heads\]: there is nothing to restore from; set restore\.checkpoint",
        ),
        ("restore.include=[3]", r"restore\.include=\[3\]: must be a list of scopes, e\.g\."),
        ("restore.trainable_scopes='a,,b'", r"restore\.trainable_scopes=a,,b: must be a list of scopes"),
        ("restore.name_map=x", r"restore\.name_map=x: must be a list of rules, e\.g\."),
        ("restore.name_map=[{pattern: a}]", r"restore\.name_map=\{'pattern': 'a'\}: must be a list of rules"),
        ("restore.name_map=[{pattern: '(', replace: a}]", r"is no regular expression with its replacement: missing \)"),
        ("restore.name_map=[{pattern: a, replace: '\\1'}]", r"its replacement: invalid group reference 1"),
        ("restore.checkpoint=''", r"restore\.checkpoint='': must name a checkpoint, or be null"),
        ("inspect.other=b.ckpt", r"inspect\.other=b\.ckpt: is compared with inspect\.checkpoint"),
    ],
)
def test_faults_are_named(override, message):
    with pytest.raises(UserError, match=message):
        checked(override)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["learning_rate=cosine", "learning_rate.end=1"], r"learning_rate\.end=1\.0: must lie between 0 and"),
        (["learning_rate=piecewise", "learning_rate.boundaries_epochs=[3,2]"], r"boundaries_epochs=\[3\.0, 2\.0\]"),
        (["optimizer=ftrl", "optimizer.learning_rate_power=1"], r"learning_rate_power=1\.0: must be 0 or less"),
        (["optimizer=adagrad", "optimizer.initial_accumulator_value=0"], r"must be above 0"),
        (["model=vgg16", "preprocessing.resize_side_max=250"], r"resize_side_max=250: must not be below"),
        (["model=vgg16", "preprocessing.resize_side_min=100"], r"resize_side_min=100: must be 224 or more"),
        (["model=vgg16", "preprocessing.means=[1,2]"], r"means=\[1\.0, 2\.0\]: must be three numbers"),
        (["model=inception", "preprocessing.area_min=0"], r"area_min=0\.0: must lie in \(0, 1\]"),
        (["model=inception", "preprocessing.ratio_max=0.5"], r"ratio_max=0\.5: must not be below"),
        (["model=cifarnet", "preprocessing.contrast_max=0.1"], r"contrast_max=0\.1: must not be below"),
        (["preprocessing=none", "preprocessing.scale=0"], r"scale=0\.0: must not be 0"),
    ],
)
def test_faults_within_options_are_named(overrides, message):
    with pytest.raises(UserError, match=message):
        checked(*overrides)


def test_scopes_may_come_as_text_with_commas():
    config = checked("restore=finetune", "restore.checkpoint=x.ckpt", "restore.exclude='heads, vgg_16/fc7'")
    assert config.restore.exclude == ["heads", "vgg_16/fc7"]
    assert config.restore.checkpoint == "/start/x.ckpt"
    assert checked("restore.trainable_scopes=''").restore.trainable_scopes == []


def test_a_preset_for_a_published_checkpoint_brings_its_model():
    config = checked("restore=vgg16_imagenet")
    assert (config.model.name, config.preprocessing.name) == ("vgg16", "vgg")
    assert config.restore.exclude == ["heads"]
    assert checked("restore=inception_v3_imagenet").model.name == "inception_v3"


def test_groups_given_as_values_are_refused():
    config = composed()
    config.dataset = 3
    with pytest.raises(UserError, match=r"dataset=3: must be a group of keys"):
        validate(config, start_dir=Path("/"))
    config = composed()
    config.dataset = {"name": "x"}
    with pytest.raises(UserError, match=r"dataset\._target_=None: must name what builds it"):
        validate(config, start_dir=Path("/"))


def test_nearest_looks_at_the_last_part_of_a_key_too():
    keys = ["pipeline.threads", "trainer.max_steps", "seed"]
    assert nearest("threads", keys) == "pipeline.threads"
    assert nearest("max_step", keys) == "trainer.max_steps"
    assert nearest("sede", keys) == "seed"
    assert nearest("batch_size", ["evaluation.batch_size", "pipeline.batch_size"]) == "pipeline.batch_size"


def test_a_new_key_of_a_free_form_mapping_is_added_with_a_plus():
    message = (
        "tracking.tags.note: tracking.tags has no such key yet; a new one is added with a plus: +tracking.tags.note="
    )
    assert unknown_key("tracking.tags.note") == f"{message}VALUE."
    assert unknown_key("tracking.tags.note", "x").endswith(": +tracking.tags.note=x.")
