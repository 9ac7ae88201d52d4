from __future__ import annotations

import os
from pathlib import Path

import pytest

from slimexp.pipeline.doctor import page_cache


@pytest.fixture
def paths(tmp_path: Path) -> list[bytes]:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(bytes(20_000))
    return [os.fsencode(path) for path in sorted(tmp_path.iterdir())]


def test_files_leave_the_cache_and_come_back(paths: list[bytes]) -> None:
    if page_cache.is_cached(paths[0]) is None:
        pytest.skip("This system does not say what is in its page cache.")
    assert all(page_cache.is_cached(path) for path in paths)
    reason = page_cache.evict(paths)
    if reason is not None:
        pytest.skip(f"Files cannot be dropped here: {reason}.")
    # One may be held by the processor that read it last.
    assert sum(bool(page_cache.is_cached(path)) for path in paths) <= 1
    assert Path(os.fsdecode(paths[0])).read_bytes() == bytes(20_000)
    assert page_cache.is_cached(paths[0])


def test_it_says_why_it_cannot(paths: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    assert page_cache.evict([*paths, b"/nowhere/a.jpg"]) == (
        "the files cannot be dropped from the cache: No such file or directory"
    )
    with monkeypatch.context() as patch:
        patch.setattr(page_cache, "is_cached", lambda path: True)
        assert page_cache.evict(paths) == "their file system keeps files in memory, or another program has them in use"
    with monkeypatch.context() as patch:
        patch.setattr(page_cache, "is_cached", lambda path: None)  # Nobody can tell: then it is taken on trust.
        assert page_cache.evict(paths) is None
    monkeypatch.delattr(os, "posix_fadvise")
    assert page_cache.evict(paths) == "this operating system cannot be asked to forget files"


def test_an_empty_file_is_not_cached(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert not page_cache.is_cached(os.fsencode(tmp_path / "empty"))
