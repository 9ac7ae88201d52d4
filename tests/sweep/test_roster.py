"""Numbers, folders and what was done before; no job is composed here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slimexp.sweep import roster as roster_module
from slimexp.sweep.jobs import FAILED, FINISHED, Sweep, SweepJob
from slimexp.sweep.plan import PlannedJob
from slimexp.sweep.roster import Roster

DONE = SweepJob(0, "0", "a=1", ["a=1"], {"a": "1"}, "a=1", FINISHED)
FAILED_BEFORE = SweepJob(3, "deep/3", "a=2", ["a=2"], {"a": "2"}, "a=2", FAILED)


@dataclasses.dataclass
class Settings:
    """As much of a configuration as a roster looks at."""

    job: Any
    export: dict[str, str]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Returns a function that makes a roster over jobs which are what their overrides are."""

    def plan_job(context: Any, config: Any, overrides: list[str], **where: Any) -> PlannedJob:
        swept = {}
        for override in overrides:
            key, _, value = override.partition("=")
            swept[key] = where["hide"](key, value)
        job = PlannedJob(where["number"], list(overrides), swept, str(where["number"]), "", hash=",".join(overrides))
        if "export" in swept:
            settings: Any = Settings(SimpleNamespace(name="export"), {"dir": swept["export"]})
            job.config = settings
        job.subdir = swept.get("subdir", job.subdir)
        return job

    monkeypatch.setattr(roster_module, "plan_job", plan_job)

    def make(*jobs: SweepJob) -> Roster:
        for job in jobs:
            (tmp_path / job.dir).mkdir(parents=True, exist_ok=True)
        record = Sweep(jobs=[SweepJob(**vars(job)) for job in jobs]) if jobs else None
        context: Any = SimpleNamespace()
        config: Any = SimpleNamespace()
        return Roster(context, config, start_dir=Path("/"), sweep_dir=tmp_path, record=record)

    return make


def numbers(planned: list[PlannedJob]) -> list[int]:
    return [job.number for job in planned]


def test_numbers_go_on_over_all_calls(make):
    roster = make()
    assert numbers(roster.plan([["a=1"], ["a=2"]], swept=["a"])) == [0, 1]
    assert numbers(roster.plan([["a=1", "b=2"]], swept=["b"])) == [2]
    assert numbers(roster.plan([["a=7"]], swept=["a"], numbers=[7])) == [7]
    assert numbers(roster.plan([["a=3"]], swept=["a"])) == [8]
    assert roster.keys == ["a", "b"]
    assert numbers(roster.check([["a=1"], ["a=2"]], swept=["a"])) == [0, 1]
    assert numbers(roster.plan([["a=4"]], swept=["a"])) == [9]


def test_a_job_of_the_earlier_start_keeps_its_number_and_folder(make):
    roster = make(DONE, FAILED_BEFORE)
    planned = roster.plan([["a=2"], ["a=1"], ["a=5"]], swept=["a"])
    assert [(job.number, job.subdir) for job in planned] == [(3, "deep/3"), (0, "0"), (4, "4")]
    assert [(job.number, job.why) for job in roster.due(planned)] == [(3, "it failed"), (4, "")]


def test_jobs_of_another_command_count_for_nothing(make):
    roster = make(DONE, FAILED_BEFORE)
    planned = roster.plan([["a=1"]], swept=["a"])
    assert roster.leave_out_others(planned) == [3]
    assert [job.asked for job in roster.earlier_jobs] == [True, False]


def test_two_jobs_share_neither_folder_nor_output(make, tmp_path):
    roster = make(FAILED_BEFORE)
    first, second = roster.plan([["subdir=x"], ["subdir=x"]], swept=[])
    assert first.error is None
    assert str(second.error).startswith("hydra.sweep.subdir=x: the jobs 4 and 5 would share this folder. Let it hold")
    (third,) = roster.plan([["subdir=deep/3"]], swept=[])
    assert "the jobs 3 and 6 would share" in str(third.error)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    exports = roster.plan([[f"export={tmp_path}/{name}"] for name in ("out", "link")], swept=[])
    assert exports[0].error is None
    assert str(exports[1].error).startswith(f"export.dir={tmp_path}/link: the jobs 7 and 8 would both write there.")


def test_secrets_are_told_apart_but_not_kept(make):
    planned = make().plan([["api_token=abc"], ["api_token=xyz"], ["api_token=abc"], ["a=1"]], swept=[])
    assert [job.swept for job in planned] == [
        {"api_token": "***1"},
        {"api_token": "***2"},
        {"api_token": "***1"},
        {"a": "1"},
    ]
