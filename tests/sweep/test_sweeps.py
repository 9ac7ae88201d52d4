"""Sweeps from the command line to the exit code, as real processes. The jobs are quick ones of the tests' own."""

from __future__ import annotations

import sqlite3

import pytest

from slimexp.jobs.lock import exclusive
from tests.sweep.launching import launch, starts, sweep_dirs


@pytest.fixture(scope="module")
def seven(tmp_path_factory):
    """Seven jobs, of which one calls sys.exit, one is killed, one fails, one leaves; and the same command again."""
    folder = tmp_path_factory.mktemp("seven")
    return launch(folder, "seed=range(7)"), launch(folder, "seed=range(7)")


def test_a_job_that_ends_badly_never_ends_the_others(seven):
    first, _ = seven
    jobs = first.record["jobs"]
    assert [job["status"] for job in jobs] == [*["FINISHED"] * 3, "FAILED", "KILLED", "FAILED", "FAILED"]
    assert [job["exit_code"] for job in jobs] == [0, 0, 0, 1, 137, 1, 1]
    assert [job["reason"] for job in jobs[3:]] == [
        "the job was left by sys.exit(0) before its work was done.",
        "killed by signal 9 (out of memory?)",
        "unexpected RuntimeError: a fault of its own",
        "its process ended with exit code 0 before its work was done",
    ]
    assert first.returncode == 1
    assert first.record["status"] == "FAILED"
    assert first.stderr.startswith("Sweep of 7 jobs: lenet seed\n  0  lenet seed=0\n")
    assert "Job 4: KILLED after" in first.stderr
    assert "seed 2 at work" in first.stdout


def test_a_traceback_stands_on_the_screen_and_in_the_jobs_own_log(seven):
    first, _ = seven
    for text in (first.stderr, (first.dir / "5" / "slimexp.log").read_text()):
        assert "Traceback" in text
        assert "RuntimeError: a fault of its own" in text
    log = (first.dir / "4" / "slimexp.log").read_text()
    assert "ERROR slimexp: killed by signal 9 (out of memory?)" in log


def test_jobs_are_named_by_what_is_swept_and_summed_up_in_a_table(seven):
    first, _ = seven
    assert [job["name"] for job in first.record["jobs"]][:2] == ["lenet seed=0", "lenet seed=1"]
    assert first.record["jobs"][1]["swept"] == {"seed": "1"}
    assert (first.dir / "sweep.csv").read_text().count("\n") == 8
    assert "KILLED" in first.stdout
    assert "To go on: the same command again" in first.stderr


def test_the_same_command_again_runs_only_what_is_missing(seven):
    first, second = seven
    assert sweep_dirs(first.folder) == [first.dir]
    assert [starts(first.folder, number) for number in range(7)] == [1, 1, 1, 2, 2, 2, 2]
    assert "3 of 7 jobs have finished. To run:\n  3  lenet seed=3  (it failed)\n" in second.stderr
    assert second.returncode == 1


def test_on_failure_stop_begins_no_other_job_and_the_same_command_goes_on(tmp_path):
    stop = "sweep.on_failure=stop"
    broken = launch(tmp_path, "seed=1,7,2", stop)
    assert broken.statuses == ["FINISHED", "FAILED", "NOT_RUN"]
    assert broken.returncode == 1
    assert not (broken.dir / "2").exists()
    (tmp_path / "mended").touch()
    assert launch(tmp_path, "seed=1,7,2", stop).statuses == ["FINISHED"] * 3
    assert [starts(tmp_path, number) for number in range(3)] == [1, 2, 1]


def test_the_store_gets_one_parent_with_a_run_for_each_job(tmp_path):
    done = launch(tmp_path, "seed=1,4", tracking="mlflow")
    assert done.statuses == ["FINISHED", "KILLED"]
    assert done.returncode == 137
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        runs = {
            name: (run_id, status) for run_id, name, status in store.execute("SELECT run_uuid, name, status FROM runs")
        }
        parents = store.execute("SELECT value FROM tags WHERE key = 'mlflow.parentRunId'").fetchall()
        reasons = store.execute("SELECT value FROM tags WHERE key = 'status.message'").fetchall()
    store.close()
    assert {name: status for name, (_, status) in runs.items()} == {
        "sweep lenet seed": "FAILED",
        "lenet seed=1": "FINISHED",
        "lenet seed=4": "KILLED",  # It could not say so itself.
    }
    assert ("killed by signal 9 (out of memory?)",) in reasons
    parent = runs["sweep lenet seed"][0]
    assert parents == [(parent,)] * 2
    assert done.record["parent_run_id"] == parent
    assert done.record["jobs"][0]["run_id"] == runs["lenet seed=1"][0]


def test_two_commands_in_one_folder_are_kept_apart(tmp_path):
    place = "hydra.sweep.dir=outputs/sweeps/a/b"
    first = launch(tmp_path, place, "seed=1,4", "trainer.max_steps=8")
    assert first.statuses == ["FINISHED", "KILLED"]
    second = launch(tmp_path, place, "seed=1", "trainer.max_steps=9", "sweep.metric=eval/nope")
    assert [job["asked"] for job in second.record["jobs"]] == [False, False, True]
    assert (
        "also holds jobs that are none of this command's (0, 1): they are kept and count for nothing" in second.stderr
    )
    assert "seeds" not in second.stdout
    assert (second.dir / "sweep.csv").read_text().count("\n") == 2
    # A metric that no job has is said, and makes no failure of jobs that have finished.
    assert "sweep.metric=eval/nope: no job of the sweep has it; the nearest is eval/top1." in second.stderr
    assert second.returncode == 0
    with exclusive(second.dir):
        busy = launch(tmp_path, place, "seed=1", "trainer.max_steps=8")
    assert busy.returncode == 1
    assert busy.stderr.splitlines()[0].endswith(
        "b: this sweep is running now. Wait for it, or begin another of the same command: sweep.resume=never."
    )
    again = launch(tmp_path, place, "seed=1", "trainer.max_steps=8")
    assert "All 1 jobs of this sweep have finished" in again.stderr
    assert again.returncode == 0
    assert [job["asked"] for job in again.record["jobs"]] == [True, False, False]


def test_secrets_that_are_swept_stay_in_the_jobs_own_settings(tmp_path):
    done = launch(tmp_path, "+tracking.tags.api_token=abc1,abc2", "seed=1")
    assert [job["name"] for job in done.record["jobs"]] == ["lenet api_token=***1", "lenet api_token=***2"]
    for text in (done.stdout, done.stderr, *((done.dir / f"sweep.{kind}").read_text() for kind in ("json", "csv"))):
        assert "abc1" not in text


@pytest.mark.slow
def test_a_run_in_whose_place_a_job_has_begun_another_is_marked(tmp_path):
    old = launch(tmp_path, "seed=4", tracking="mlflow").record["jobs"][0]["run_id"]
    new = launch(tmp_path, "seed=4", tracking="mlflow").record["jobs"][0]["run_id"]
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        tags = database.execute("SELECT run_uuid, value FROM tags WHERE key = 'superseded_by'").fetchall()
    assert tags == [(old, new)]
