"""The fuzzer itself: it builds, and finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from slimexp.pipeline.native import build
from tests.pipeline.native import fuzz


@pytest.mark.slow
def test_finds_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := build.missing_tools():
        pytest.skip(missing)
    monkeypatch.chdir(tmp_path)
    assert fuzz.fuzz(seconds=20, seed=1) == 0
    assert "no finding" in capfd.readouterr().out


def test_seeds_are_what_they_should_be(tmp_path: Path, native: None) -> None:
    import tensorflow as tf

    from slimexp.pipeline.native import ops

    paths = fuzz.write_seeds(tmp_path)
    sizes, orientations = ops.read_headers(tf.constant([path.read_bytes() for path in paths]))
    for path, (height, _), orientation in zip(paths, sizes.numpy(), orientations.numpy(), strict=True):
        assert (height > 0) == ("CMYK" not in path.name), path.name
        assert orientation == (6 if path.name.startswith(("4-", "5-")) else 1), path.name


def test_cannot_be_built(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("sys.argv", ["fuzz"])
    assert fuzz.main() == 1
    assert "can't be fuzzed here: there is no compiler CXX=no-such-compiler" in capsys.readouterr().err
