from __future__ import annotations

from pathlib import Path

import pytest

from slimexp.cache_dir import default_cache_dir


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, expected in (("SLIMEXP_CACHE", "own"), ("XDG_CACHE_HOME", "own/slimexp"), ("HOME", "own/.cache/slimexp")):
        with monkeypatch.context() as environment:
            environment.delenv("SLIMEXP_CACHE", raising=False)
            environment.delenv("XDG_CACHE_HOME", raising=False)
            environment.setenv(name, str(tmp_path / "own"))
            assert default_cache_dir() == str(tmp_path / expected)
