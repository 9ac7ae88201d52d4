from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.dataset import class_counts, digits, fingerprint, load_digits
from slimexp.errors import UserError

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete cache, to be copied."""
    cache = tmp_path_factory.mktemp("digits")
    load_digits(cache_dir=str(cache))
    return cache


def test_gives_small_real_digits(written: Path) -> None:
    dataset = load_digits(cache_dir=str(written))
    assert (dataset.name, dataset.task, dataset.image_side_px) == ("digits", "single", 28)
    assert dataset.class_names == tuple("0123456789")
    assert dataset.eval is not None
    assert (len(dataset.train), len(dataset.eval)) == (1438, 359)
    assert not set(dataset.train.paths) & set(dataset.eval.paths)
    assert class_counts(dataset.train, 10).min() == 139
    assert class_counts(dataset.eval, 10).tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    from sklearn.datasets import load_digits as load_from_sklearn

    source = load_from_sklearn()
    for split in (dataset.train, dataset.eval):
        for path, label in list(zip(split.paths, split.labels.tolist(), strict=True))[::200]:
            image = Image.open(path)
            assert (image.format, image.mode, image.size) == ("JPEG", "L", (28, 28))
            number = int(Path(os.fsdecode(path)).stem)
            assert source.target[number] == label
            # Shrunk again it is the source: 16 grey values of 16 each; JPEG and interpolation cost about one.
            small = np.asarray(image.resize((8, 8), Image.Resampling.BOX), np.float64) / 255 * 16
            assert np.abs(small - source.images[number]).mean() < 1.5
            assert np.corrcoef(small.ravel(), source.images[number].ravel())[0, 1] > 0.95
    assert [name for name in os.listdir(written) if name != "digits-v1"] == [".digits-v1.lock"]
    assert os.stat(written / "digits-v1").st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_chooses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Path) -> None:
    for name, folder in (("SLIMEXP_CACHE", "own"), ("XDG_CACHE_HOME", "xdg/slimexp"), ("HOME", "home/.cache/slimexp")):
        monkeypatch.delenv("SLIMEXP_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv(name, str(tmp_path / folder.split("/")[0]))
        shutil.copytree(written, tmp_path / folder)
        assert load_digits().train.path(0).startswith(f"{tmp_path / folder}/digits-v1/images/")


@pytest.mark.parametrize("damage", ["image", "cut", "list", "manifest", "nonsense", "nothing", "file"])
def test_rebuilds_a_damaged_cache(tmp_path: Path, written: Path, damage: str) -> None:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "digits-v1"
    if damage == "image":
        (folder / "images" / "3" / "0003.jpg").unlink()
    elif damage == "cut":
        os.truncate(folder / "images" / "3" / "0003.jpg", 100)
    elif damage == "list":
        (folder / "eval.txt").unlink()
    elif damage == "manifest":
        (folder / "manifest.json").unlink()
    elif damage == "nonsense":
        (folder / "manifest.json").write_text("[]")
    elif damage == "nothing":
        (folder / "manifest.json").write_text("{}")
    else:
        shutil.rmtree(folder)
        folder.write_text("not a folder")
    stale = tmp_path / ".digits-v1-stale"
    stale.mkdir()
    os.utime(stale, (0, 0))
    young = tmp_path / ".digits-v1-young"
    young.mkdir()
    dataset = load_digits(cache_dir=str(tmp_path))
    assert fingerprint(dataset.train) == fingerprint(load_digits(cache_dir=str(written)).train)
    assert (folder / "images" / "3" / "0003.jpg").stat().st_size > 100
    assert sorted(os.listdir(tmp_path)) == [".digits-v1-young", ".digits-v1.lock", "digits-v1"]


def test_needs_no_write_permission_when_complete(
    tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(written / "digits-v1", tmp_path / "digits-v1")
    monkeypatch.setattr(digits, "_write", None)
    monkeypatch.setattr(digits, "_lock", None)
    assert len(load_digits(cache_dir=str(tmp_path)).train) == 1438
    assert os.listdir(tmp_path) == ["digits-v1"]


def test_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"the digits can't be written to .*/file/cache \(Not a directory\); .*dataset.cache_dir=…"
    ):
        load_digits(cache_dir=str(tmp_path / "file" / "cache"))


def _load(cache: str, slow: bool, results) -> None:
    if slow:  # Stops half-way, for the test to kill.
        real = digits._image_path
        digits._image_path = lambda number, digit: time.sleep(60 if number == 500 else 0) or real(number, digit)
    dataset = load_digits(cache_dir=cache)
    results.put((fingerprint(dataset.train), os.stat(dataset.train.paths[0]).st_ino))


def test_programs_that_start_together_and_one_that_is_killed(tmp_path: Path) -> None:
    results = SPAWN.Queue()
    cache = str(tmp_path / "new" / "cache")
    killed = SPAWN.Process(target=_load, args=(cache, True, results))
    killed.start()
    deadline = time.monotonic() + 60
    while not list(Path(cache).glob(".digits-v1-*/new/images/*/0499.jpg")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # They wait for the first one's lock, which falls when it is killed.
    others = [SPAWN.Process(target=_load, args=(cache, False, results)) for _ in range(3)]
    for process in others:
        process.start()
    time.sleep(0.5)
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    found = {results.get(timeout=60) for _ in others}
    for process in others:
        process.join()
        assert process.exitcode == 0
    assert len(found) == 1  # One wrote, the others took what it wrote.
