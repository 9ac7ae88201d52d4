"""Finding and building the native op: what is said when it can't be, and several processes at once."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slimexp.pipeline.native import build

Fake = Callable[[str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a shell script in the compiler's place."""

    def fake(script: str) -> None:
        path = tmp_path / "fake-compiler"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(path))

    return fake


# Succeeds at looking for the header, which comes by standard input, and writes what -o names.
_WORKS = 'case "$*" in *fsyntax-only*) exit 0;; esac; while [ "$1" != -o ]; do shift; done; echo library > "$2"'


def test_builds_once_and_finds_it_then(fake: Fake, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake(_WORKS)
    cache = str(tmp_path / "cache")
    assert build.find(cache) == (None, "it has not been built yet: ./scripts/build_ops does that, in some 10 seconds")
    with caplog.at_level(logging.INFO):
        path, reason = build.ensure(cache_dir=cache)
    assert path == build.library_path(cache)
    assert reason == ""
    assert path.read_text() == "library\n"
    assert [record.message.split(" in ")[0] for record in caplog.records] == [
        "Built the native decoder, once for this TensorFlow,"
    ]
    fake("exit 1")
    assert build.find(cache) == (path, "")
    assert build.ensure(cache_dir=cache) == (path, "")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_looking_for_it_takes_no_tensorflow(tmp_path: Path) -> None:
    code = "import sys; from slimexp.pipeline.native import build; build.find(); assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    path, reason = build.ensure(cache_dir=str(tmp_path))
    assert path is None
    assert reason.startswith("there is no C++ compiler (g++, c++, clang++). On Debian and Ubuntu: apt-get install g++")
    monkeypatch.setenv("CXX", "my-compiler -m64")
    with pytest.raises(build.BuildError, match="there is no compiler CXX=my-compiler -m64"):
        build.build(str(tmp_path))


def test_without_libjpeg(fake: Fake, tmp_path: Path) -> None:
    fake("exit 1")
    with pytest.raises(build.BuildError, match=r"header jpeglib\.h is missing\. On Debian .*libjpeg62-turbo-dev"):
        build.build(str(tmp_path))
    assert build.ensure(cache_dir=str(tmp_path))[0] is None


def test_names_the_compilers_first_error(fake: Fake, tmp_path: Path) -> None:
    fake('case "$*" in *fsyntax-only*) exit 0;; esac; printf "in file x\nx.cc:7: error: no such thing\n" >&2; exit 1')
    with pytest.raises(build.BuildError, match=r"the compiler failed \(x\.cc:7: error: no such thing\); its command"):
        build.build(str(tmp_path))
    path, reason = build.ensure(cache_dir=str(tmp_path))
    assert path is None
    assert "no such thing" in reason
    assert list((tmp_path / "native").iterdir()) == []


def test_cache_that_cannot_be_written(fake: Fake, tmp_path: Path) -> None:
    fake(_WORKS)
    (tmp_path / "native").write_text("in the way")
    with pytest.raises(build.BuildError, match=r"can't be written to .*native \(File exists\); .*SLIMEXP_CACHE"):
        build.build(str(tmp_path))


def test_name_depends_on_sources_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.library_path(str(tmp_path))
    monkeypatch.setattr(build, "_FLAGS", ("-O0",))
    assert build.library_path(str(tmp_path)) != before
    monkeypatch.undo()
    assert build.library_path(str(tmp_path)) == before
    (tmp_path / "one.cc").write_text("int x;")
    monkeypatch.setattr(build, "source_dir", lambda: tmp_path)
    assert build.library_path(str(tmp_path)) != before


def test_cache_folder_is_the_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path))
    assert build.library_path().parent == tmp_path / "native"


def test_several_build_at_once(fake: Fake, tmp_path: Path) -> None:
    # Half a library is never seen, and no temporary file is left.
    fake(_WORKS.replace("echo library", "{ printf lib; sleep 0.2; printf rary; }"))
    code = (
        "import sys, types\n"
        "sys.modules['tensorflow'] = types.SimpleNamespace(sysconfig=types.SimpleNamespace("
        "get_compile_flags=list, get_link_flags=list))\n"
        "from slimexp.pipeline.native import build\n"
        "path = build.build(sys.argv[1]); assert path.read_text() == 'library', path.read_text()"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert len(list((tmp_path / "native").iterdir())) == 1


def test_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path))
    fake("exit 1")
    monkeypatch.setattr(sys, "argv", ["build"])
    assert build.main() == 1
    assert "The native decoder is not there, TensorFlow's is used: libjpeg-turbo's header" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["build", "--quiet"])
    assert build.main() == 0
    assert "TensorFlow's is used" in capsys.readouterr().err
    fake(_WORKS)
    assert build.main() == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Building the native decoder (once, some 10 seconds) ...\n"
    assert build.main() == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "argv", ["build"])
    assert build.main() == 0
    assert capsys.readouterr().out == f"{build.library_path()}\n"
