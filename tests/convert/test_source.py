from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slimexp.convert.source import find_form, load_source
from slimexp.errors import UserError
from tests.dataset.trees import write_cifar10, write_mnist, write_voc
from tests.records import write_shards


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_voc(folder / "voc")
    write_mnist(folder / "mnist" / "raw")
    write_cifar10(folder / "cifar10" / "cifar-10-batches-bin")
    write_shards(folder / "records", [2, 1])
    write_shards(folder / "records", [1], name="validation")
    for path in write_shards(folder / "flowers", [1, 1]):
        path.rename(path.with_name(f"flowers_{path.name.replace('-', '_', 1)}.tfrecord"))
    for name in ("cat/1.jpg", "dog/2.jpg"):
        (folder / "folder" / name).parent.mkdir(parents=True)
        (folder / "folder" / name).write_bytes(b"x")
    (folder / "list.txt").write_text("folder/cat/1.jpg cat\nfolder/dog/2.jpg dog\n")
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("voc", "pascal_voc"),
        ("mnist", "mnist"),
        ("cifar10", "cifar10"),
        ("records", "records"),
        ("records/train-*", "records"),
        ("records/train-00000-of-00002", "records"),
        ("flowers", "records"),
        ("folder", "folder"),
        ("list.txt", "list"),
    ],
)
def test_the_form_is_told_by_what_is_there(sources: Path, path: str, form: str) -> None:
    assert find_form(str(sources / path)) == form


def test_what_is_nothing_known(sources: Path) -> None:
    with pytest.raises(UserError, match=r"SOURCE=.*none: there is no such file or folder, and no file matches it"):
        find_form(str(sources / "none"))
    with pytest.raises(
        UserError, match=r"empty: this folder has neither folders of classes nor TFRecord files.*--from=li"
    ):
        find_form(str(sources / "empty"))


@pytest.mark.parametrize(
    ("path", "options", "splits"),
    [
        ("records", {"num_classes": 5}, [3, 1]),
        ("records/train-*", {"num_classes": 5}, [3]),
        ("records/train-*", {"num_classes": 5, "eval_path": "records/val*"}, [3, 1]),
        ("records/train-00001-of-00002", {"num_classes": 5}, [1]),
        ("flowers", {"num_classes": 5}, [2]),
        ("list.txt", {}, [2]),
        ("list.txt", {"eval_path": "list.txt"}, [2, 2]),
        ("folder", {}, [2]),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(map(str, value)),
)
def test_finds_the_splits(
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    options: dict[str, Any],
    splits: list[int],
) -> None:
    monkeypatch.chdir(sources)
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path))
    source = load_source(path, **options)
    assert [len(split) for split in (source.data.train, source.data.eval) if split is not None] == splits


def test_options_of_other_forms_are_refused(sources: Path) -> None:
    with pytest.raises(
        UserError, match=r"image_dir=x is not for a source of the form folder, but for list; leave it out"
    ):
        load_source(str(sources / "folder"), image_dir="x")
    with pytest.raises(
        UserError, match=r"labels_offset=1 is not for a source of the form mnist, but for list, records"
    ):
        load_source(str(sources / "mnist"), labels_offset=1)
    with pytest.raises(UserError, match=r"--eval=x is for lists and records; a source of the form folder has its own"):
        load_source(str(sources / "folder"), eval_path="x")
    with pytest.raises(
        UserError, match=r"no file in this folder is named like a shard of a training split; give a pat"
    ):
        load_source(str(sources / "folder"), form="records")
