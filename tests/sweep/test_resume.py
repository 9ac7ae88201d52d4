from __future__ import annotations

import json
from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.sweep.identity import hash_of
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, NOT_RUN, RUNNING, Sweep, SweepJob
from slimexp.sweep.plan import PlannedJob, masked
from slimexp.sweep.process import JOB_FILE, RESULT_FILE
from slimexp.sweep.resume import Earlier, find_earlier

COMMAND = ["pipeline.threads=1,2", "seed=3"]


def find(tmp_path, *, overrides=COMMAND, start_dir="/start", folder="new", anew=False):
    return find_earlier(
        tmp_path / "sweeps" / folder,
        sweeps=tmp_path / "sweeps",
        overrides=overrides,
        start_dir=Path(start_dir),
        anew=anew,
    )


@pytest.fixture
def sweeps(tmp_path):
    """Two sweeps of one command, and a later one of another."""
    for place, overrides in (("d1/t1", COMMAND), ("d1/t2", COMMAND), ("d2/t1", ["seed=4,5"])):
        folder = tmp_path / "sweeps" / place
        folder.mkdir(parents=True)
        Sweep(overrides=list(overrides), start_dir="/start").write(folder)
    return tmp_path


def test_the_latest_sweep_of_the_same_command_is_found(sweeps):
    assert find(sweeps)[0] == sweeps / "sweeps/d1/t2"
    # In another order, and with keys that say how it is run.
    asked = ["seed=3", "sweep.on_failure=stop", "pipeline.threads=1,2", "sweep.resume=auto"]
    assert find(sweeps, overrides=asked)[0] == sweeps / "sweeps/d1/t2"


@pytest.mark.parametrize("change", [{"overrides": ["seed=3"]}, {"start_dir": "/elsewhere"}, {"anew": True}])
def test_any_other_begins_anew(sweeps, change):
    assert find(sweeps, **change) == (sweeps / "sweeps" / "new", None)


def test_a_damaged_record_counts_for_nothing(sweeps):
    (sweeps / "sweeps/d1/t2/sweep.json").write_text("{")
    assert find(sweeps)[0] == sweeps / "sweeps/d1/t1"


def test_a_folder_that_is_named_is_taken_whatever_the_command(sweeps):
    folder, record = find(sweeps, folder="d2/t1")
    assert folder == sweeps / "sweeps/d2/t1"
    assert record is not None
    with pytest.raises(UserError, match=r"sweep\.resume=never: hydra\.sweep\.dir=.* holds a sweep\. Choose another"):
        find(sweeps, folder="d2/t1", anew=True)


def test_a_new_folder_that_the_user_names_begins_a_sweep(sweeps):
    assert find(sweeps, folder=sweeps / "named") == (sweeps / "named", None)


def planned(number, settings, overrides):
    job = PlannedJob(number, overrides, {}, str(number), f"job {number}", identity=settings, hash=hash_of(settings))
    job.config = object()
    return job


def earlier(tmp_path, *statuses):
    jobs = []
    for number, status in enumerate(statuses):
        settings = {"seed": number, "model.weight_decay": 0.1}
        folder = tmp_path / str(number)
        (folder / ".hydra").mkdir(parents=True)
        (folder / JOB_FILE).write_text(json.dumps({"identity": settings}))
        jobs.append(SweepJob(number, str(number), f"job {number}", [f"seed={number}"], {}, hash_of(settings), status))
    return Earlier(Sweep(jobs=jobs), tmp_path)


def test_jobs_are_known_by_their_settings_whatever_their_number(tmp_path):
    jobs = earlier(tmp_path, FINISHED, FAILED)
    found = jobs.find(planned(0, {"seed": 1, "model.weight_decay": 0.1}, ["other=command"]))
    assert found.number == 1
    assert jobs.why(found) == "it failed"
    assert jobs.find(planned(1, {"seed": 7, "model.weight_decay": 0.1}, ["seed=7"])) is None
    assert jobs.next_number() == 2


def test_a_job_whose_settings_changed_behind_its_command_is_refused(tmp_path):
    jobs = earlier(tmp_path, FINISHED, NOT_RUN)
    changed = planned(0, {"seed": 0, "model.weight_decay": 0.2}, ["seed=0"])
    jobs.find(changed)
    assert changed.error.startswith("job 0: its folder ")
    assert "holds a job with other settings: model.weight_decay 0.1 -> 0.2. Put them back" in changed.error
    # One that was never begun has nothing to lose.
    fresh = planned(1, {"seed": 1, "model.weight_decay": 0.2}, ["seed=1"])
    assert jobs.find(fresh).number == 1
    assert fresh.error is None


def test_each_earlier_job_is_found_once(tmp_path):
    jobs = earlier(tmp_path, FINISHED)
    same = {"seed": 0, "model.weight_decay": 0.1}
    assert jobs.find(planned(0, same, ["seed=0"])).number == 0
    assert jobs.find(planned(1, same, ["seed=0"])) is None


def test_what_a_killed_sweep_did_not_see_is_worked_out(tmp_path):
    for number, code in ((0, 0), (1, 143)):
        (tmp_path / str(number) / ".hydra").mkdir(parents=True)
        (tmp_path / str(number) / RESULT_FILE).write_text(json.dumps({"exit_code": code, "reason": ""}))
    record = Sweep(jobs=[SweepJob(n, str(n), "", status=RUNNING) for n in range(3)])
    record.jobs.append(SweepJob(3, "3", "", status=FINISHED))
    jobs = Earlier(record, tmp_path).jobs
    assert [job.status for job in jobs] == [FINISHED, KILLED, KILLED, NOT_RUN]
    assert jobs[3].reason == "its folder is gone"


def test_what_a_job_said_after_its_sweep_was_killed_counts(tmp_path):
    for number, (code, reason) in enumerate(((143, "stopped by SIGTERM"), (1, "no such file"))):
        (tmp_path / str(number) / ".hydra").mkdir(parents=True)
        (tmp_path / str(number) / RESULT_FILE).write_text(json.dumps({"exit_code": code, "reason": reason}))
    jobs = Earlier(Sweep(jobs=[SweepJob(n, str(n), "", status=RUNNING) for n in range(3)]), tmp_path).jobs
    assert [(job.status, job.exit_code, job.reason) for job in jobs] == [
        (KILLED, 143, "stopped by SIGTERM"),
        (FAILED, 1, "no such file"),
        (KILLED, 137, "the sweep was ended while it ran"),
    ]


def test_passwords_are_not_kept():
    asked = ["tracking.uri=http://me:secret@host:5000", "tracking.tags.api_token=x", "name='two words'", "seed=1,2"]
    assert masked(asked) == ["tracking.uri=http://me:***@host:5000", "tracking.tags.api_token=***", *asked[2:]]
