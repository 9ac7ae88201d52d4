from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slimexp.errors import UserError
from slimexp.sweep.plan import PlannedJob
from slimexp.sweep.screen import announce, note_others, refuse_errors


def job(number: int, *, error: str | None = None, why: str = "", kind: str = "train") -> PlannedJob:
    config: Any = SimpleNamespace(model=SimpleNamespace(name="lenet"), job=SimpleNamespace(name=kind))
    return PlannedJob(number, [], {}, str(number), f"lenet seed={number}", config=config, error=error, why=why)


def test_each_fault_is_named_once_with_its_jobs():
    refuse_errors([job(0), job(1)])
    with pytest.raises(UserError) as caught:
        refuse_errors([job(0, error="a=1: wrong."), job(1), job(2, error="a=1: wrong."), job(3, error="b=2: bad.")])
    assert str(caught.value).splitlines() == [
        "3 of 4 jobs cannot be run; none was begun.",
        "job 0, 2: a=1: wrong.",
        "job 3: b=2: bad.",
    ]
    # What is wrong with all of them is no matter of jobs.
    with pytest.raises(UserError, match=r"^a=1: wrong\.$"):
        refuse_errors([job(0, error="a=1: wrong."), job(1, error="a=1: wrong.")])


def test_jobs_of_other_commands_are_noted(capsys):
    note_others(Path("/s"), [])
    assert capsys.readouterr().err == ""
    note_others(Path("/s"), list(range(31)))
    assert "/s also holds jobs that are none of this command's (0, 1, 2, " in (said := capsys.readouterr().err)
    assert " 29, ...): they are kept" in said


def test_what_will_be_run_is_said(capsys):
    planned = [job(number, why="it failed") for number in range(32)]
    announce(planned, planned, keys=["seed"], earlier_dir=None, side_by_side=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Sweep of 32 jobs: lenet seed", "  0  lenet seed=0"]
    assert lines[-1] == "  ... and 2 more"
    announce(planned, planned[31:], keys=["seed"], earlier_dir=Path("/s"), side_by_side=True)
    assert capsys.readouterr().err.splitlines() == [
        "Going on with the sweep in /s: 31 of 32 jobs have finished. To run:",
        "  31  lenet seed=31  (it failed)",
    ]
    announce(planned, [], keys=["seed"], earlier_dir=Path("/s"), side_by_side=True)
    assert capsys.readouterr().err.startswith("All 32 jobs of this sweep have finished, in /s. To run them again: ")


def test_benchmarks_side_by_side_are_warned_of(capsys):
    planned = [job(0, kind="benchmark")]
    announce(planned, planned, keys=[], earlier_dir=None, side_by_side=True)
    assert "warning: benchmarks side by side slow each other down" in capsys.readouterr().err
