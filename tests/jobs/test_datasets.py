"""Every option of `dataset` trains, on sources as small as they can be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from slimexp.config import CONFIG_DIR
from slimexp.errors import UserError
from tests.dataset.trees import write_cifar10, write_mnist, write_voc
from tests.records import write_shards

TINY = ["trainer.max_steps=2", "pipeline.batch_size=2", "trainer.log_every_steps=1", "tracking=none"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_voc(folder / "voc")
    write_mnist(folder / "mnist")
    write_cifar10(folder / "cifar10")
    for name, label in (("flowers", 4), ("imagenet", 1000)):
        for split, count in (("train", 3), ("validation", 2)):
            for path in write_shards(folder / name, [count], name=split, label=lambda number, label=label: label):
                if name == "flowers":
                    path.rename(path.with_name(f"flowers_{path.name.replace('-', '_', 1)}.tfrecord"))
    for split in ("train", "eval"):
        for number, image in enumerate(sorted((folder / "voc" / "JPEGImages").iterdir())):
            path = folder / "photos" / split / "ab"[number % 2] / image.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image.read_bytes())
    (folder / "list.txt").write_text(
        "".join(f"photos/train/a/2008_000{number}.jpg {number // 2}\n" for number in (0, 2))
    )
    return folder


OVERRIDES = {
    "digits": [],
    "listfile": ["dataset.train_list=list.txt", "dataset.eval_list=list.txt", "dataset.num_classes=2"],
    "image_folder": ["dataset.root=photos"],
    "tfrecord": ["dataset.root=flowers", "dataset.file_pattern='flowers_%s_*'", "dataset.num_classes=5"],
    "pascal_voc": ["dataset.root=voc"],
    "mnist": ["dataset.root=mnist"],
    "cifar10": ["dataset.root=cifar10", "model=cifarnet"],
    "flowers": ["dataset.root=flowers"],
    "imagenet": ["dataset.root=imagenet", "dataset.labels_offset=1"],
}


def test_every_option_is_tried() -> None:
    assert sorted(OVERRIDES) == sorted(path.stem for path in (CONFIG_DIR / "dataset").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_trains_and_evaluates(job, sources, cache_dir, monkeypatch, capsys, caplog, name):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SLIMEXP_CACHE", str(cache_dir))
    overrides = [
        f"{key}={sources / value}" if key in ("dataset.root", "dataset.train_list", "dataset.eval_list") else override
        for override in OVERRIDES[name]
        for key, _, value in [override.partition("=")]
    ]
    job.train(f"dataset={name}", *overrides, *TINY)
    said = capsys.readouterr().out
    assert "at step 2" in said
    if name == "pascal_voc":
        assert "Train labels: 41.7% positive, 33.3% negative, 25.0% don't care" in caplog.text


def test_keys_are_checked(job):
    with pytest.raises(
        UserError, match=r"dataset\.labels_offset=2: must be 0 \(1001 classes, .* or 1 \(1000 classes\)"
    ):
        job.config("dataset=imagenet", "dataset.root=x", "dataset.labels_offset=2")
    with pytest.raises(UserError, match=r"dataset\.train_set=a/b: must be a set's name as it stands in CLASS_SET\.txt"):
        job.config("dataset=pascal_voc", "dataset.root=x", "dataset.train_set=a/b")
    with pytest.raises(UserError, match=r"dataset\.file_pattern=''?: must not be empty"):
        job.config("dataset=flowers", "dataset.root=x", "dataset.file_pattern=''")
    with pytest.raises(UserError, match=r"dataset\.class_names=3: must be a list of names, or a text file"):
        job.config("dataset=mnist", "dataset.root=x", "dataset.class_names=3")
