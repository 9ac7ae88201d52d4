from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimexp.dataset import class_counts, fingerprint, load_digits
from slimexp.errors import UserError


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
    assert [name for name in os.listdir(written) if name != "digits-v2"] == [".digits-v2.lock"]
    assert os.stat(written / "digits-v2").st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_chooses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Path) -> None:
    for name, folder in (("SLIMEXP_CACHE", "own"), ("XDG_CACHE_HOME", "xdg/slimexp"), ("HOME", "home/.cache/slimexp")):
        monkeypatch.delenv("SLIMEXP_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv(name, str(tmp_path / folder.split("/")[0]))
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "digits-v2").symlink_to(written / "digits-v2")
        assert load_digits().train.path(0).startswith(f"{tmp_path / folder}/digits-v2/images/")


@pytest.mark.parametrize("name", ["images/3/0003.jpg", "eval.txt"])
def test_rebuilds_a_damaged_cache(tmp_path: Path, written: Path, name: str) -> None:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    (tmp_path / "digits-v2" / name).unlink()
    dataset = load_digits(cache_dir=str(tmp_path))
    assert fingerprint(dataset.train) == fingerprint(load_digits(cache_dir=str(written)).train)
    assert (tmp_path / "digits-v2" / name).stat().st_size > 100


def test_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"the digits can't be written to .*/file/cache \(Not a directory\); .*dataset.cache_dir=…"
    ):
        load_digits(cache_dir=str(tmp_path / "file" / "cache"))
