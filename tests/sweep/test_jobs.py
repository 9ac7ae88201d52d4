from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading

import pytest

from slimexp.errors import UserError
from slimexp.sweep.jobs import FINISHED, RECORD_FILE, Sweep, SweepJob, edit_sweep, note_job, read_sweep


def test_a_record_comes_back_as_it_was_written(tmp_path):
    job = SweepJob(0, "0", "lenet seed=1", ["seed=1"], {"seed": "1"}, hash="ab", status=FINISHED, exit_code=0, secs=1.5)
    sweep = Sweep(command=["python", "-m", "slimexp"], overrides=["seed=1,2"], start_dir="/somewhere", jobs=[job])
    sweep.write(tmp_path)
    assert read_sweep(tmp_path) == sweep
    assert read_sweep(tmp_path).job(0) == job
    with pytest.raises(KeyError):
        sweep.job(1)


def test_a_record_of_a_later_version_can_be_read(tmp_path):
    content = dataclasses.asdict(Sweep(jobs=[SweepJob(0, "0", "x")]))
    content["jobs"][0]["colour"] = content["colour"] = "blue"
    (tmp_path / RECORD_FILE).write_text(json.dumps(content))
    assert read_sweep(tmp_path).jobs[0].name == "x"


def test_other_folders_and_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"is no folder of a sweep, as it has no sweep\.json"):
        read_sweep(tmp_path)
    (tmp_path / RECORD_FILE).write_text("[1]")
    with pytest.raises(UserError, match="cannot be read as the record of a sweep"):
        read_sweep(tmp_path)


def test_jobs_side_by_side_lose_none_of_each_others_notes(tmp_path):
    Sweep(jobs=[SweepJob(number, str(number), "") for number in range(8)]).write(tmp_path)

    def note(number):
        for secs in range(10):
            with edit_sweep(tmp_path) as sweep:
                sweep.job(number).secs = secs

    threads = [threading.Thread(target=note, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [job.secs for job in read_sweep(tmp_path).jobs] == [9] * 8


def test_a_failed_edit_changes_nothing(tmp_path):
    Sweep(name="before").write(tmp_path)

    def fail():
        with edit_sweep(tmp_path) as sweep:
            sweep.name = "after"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_sweep(tmp_path).name == "before"


def test_what_a_full_disk_does_not_take_is_remembered_until_it_does(tmp_path, monkeypatch, capsys):
    Sweep(jobs=[SweepJob(0, "0", ""), SweepJob(1, "1", "")]).write(tmp_path)

    def refuse(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", refuse)
        with pytest.raises(UserError, match=r"sweep\.json: cannot be written \(No space left on device\)\. Make room"):
            Sweep().write(tmp_path)
        note_job(tmp_path, 0, status=FINISHED, secs=1)
        note_job(tmp_path, 1, secs=2)
        assert [job.secs for job in read_sweep(tmp_path).jobs] == [1, 2]
    assert capsys.readouterr().err.count("cannot be written") == 1
    assert "FINISHED" not in (tmp_path / RECORD_FILE).read_text()
    note_job(tmp_path, 1, status=FINISHED)
    written = json.loads((tmp_path / RECORD_FILE).read_text())["jobs"]
    assert [(job["status"], job["secs"]) for job in written] == [(FINISHED, 1), (FINISHED, 2)]
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_folder_that_cannot_be_locked_is_named(tmp_path):
    Sweep().write(tmp_path)
    (tmp_path / ".sweep.json.lock").mkdir()
    with (
        pytest.raises(UserError, match=r"\.sweep\.json\.lock: cannot be written \(Is a directory\)"),
        edit_sweep(tmp_path),
    ):
        pass
