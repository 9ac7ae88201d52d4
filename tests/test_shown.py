"""Commands are shown so that they can be entered."""

from __future__ import annotations

import shlex
import sys

from slimexp.shown import shown_path, shown_python


def test_the_interpreter_is_the_one_that_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, shown in [
        (str(tmp_path / ".venv/bin/python"), ".venv/bin/python"),
        (str(tmp_path / "python"), "./python"),
        (str(tmp_path / "my envs/python"), "'my envs/python'"),
        ("/p", "/p"),
        ("", "python"),
    ]:
        monkeypatch.setattr(sys, "executable", path)
        assert shown_python() == shown


def test_a_path_is_relative_where_that_is_shorter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "scripts" / "a.py") == "scripts/a.py"
    assert shown_path("/a.py") == "/a.py"
    assert shlex.split(shown_path("it's/a b.py")) == ["it's/a b.py"]
