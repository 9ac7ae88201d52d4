"""What stands in a sweep's folder before its first job begins, and after a start that comes to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import slimexp.app  # noqa: F401 (registers the schema)
from slimexp.config import CONFIG_DIR
from slimexp.errors import UserError
from slimexp.jobs.lock import exclusive
from slimexp.sweep import stopping
from slimexp.sweep.folder import SweepFolder
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, NOT_RUN, SweepJob, edit_sweep, read_sweep
from slimexp.sweep.plan import PlannedJob
from slimexp.validation import validate


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The settings of any job, without a store."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        composed = compose("config", ["model=lenet", "tracking=none", "run_dir=r"])
    return validate(composed, start_dir=tmp_path_factory.mktemp("start"))


def make(root: Path, *arguments: str, hold: bool = True, resume: str = "auto") -> SweepFolder:
    config = OmegaConf.create(
        {
            "hydra": {"sweep": {"dir": str(root / "sweeps" / "day" / "time")}, "overrides": {"hydra": []}},
            "output_root": str(root),
            "sweep": {"resume": resume},
        }
    )
    return SweepFolder(config, list(arguments), start_dir=root, hold=hold)


def close(folder: SweepFolder) -> None:
    assert folder.parent is not None
    folder.parent.finish(FINISHED, None)
    folder.release()


def planned(number: int, **values: Any) -> PlannedJob:
    return PlannedJob(number, [f"seed={number}"], {"seed": str(number)}, str(number), f"job {number}", **values)


def test_all_is_there_before_the_first_job(settings, tmp_path):
    folder = make(tmp_path, "seed=1,2")
    assert folder.record is None
    assert not folder.dir.exists()
    folder.open(settings, keys=["seed"], jobs=[])
    folder.add([planned(1), planned(0, error="seed=0: wrong, token=abc")])
    record = read_sweep(folder.dir)
    assert (record.name, record.overrides, record.start_dir) == ("lenet seed", ["seed=1,2"], str(tmp_path))
    assert [(job.number, job.status, job.reason) for job in record.jobs] == [
        (0, FAILED, "seed=0: wrong, token=***"),
        (1, NOT_RUN, ""),
    ]
    assert (folder.dir / "run.json").is_file()
    close(folder)


def test_what_is_known_of_a_job_stands_until_it_begins_again(settings, tmp_path):
    first = make(tmp_path, "seed=1,2")
    first.open(settings, keys=["seed"], jobs=[])
    first.add([planned(0), planned(1)])
    with edit_sweep(first.dir) as record:
        record.job(0).status, record.job(0).secs = FINISHED, 3.0
        record.job(1).status, record.job(1).run_id = KILLED, "r"
    close(first)
    stopping.request(first.dir, stopping.Stop(15))

    again = make(tmp_path, "seed=1,2", "dry_run=false")
    assert again.dir == first.dir
    assert again.record is not None
    again.open(settings, keys=["seed"], jobs=again.record.jobs)
    assert stopping.requested(again.dir) is None
    again.add([planned(0), planned(1)])
    jobs = read_sweep(again.dir).jobs
    assert [(job.status, job.secs, job.run_id) for job in jobs] == [(FINISHED, 3.0, None), (KILLED, None, "r")]
    close(again)


def test_the_folder_is_held_against_others(settings, tmp_path):
    folder = make(tmp_path)
    folder.open(settings, keys=[], jobs=[SweepJob(0, "0", "a")])
    with pytest.raises(UserError, match=r"time: this sweep is running now\. Wait for it, or begin another of the same"):
        make(tmp_path)
    make(tmp_path, hold=False)  # Only to say what would be run.
    with pytest.raises(UserError, match=r"sweep\.resume=never: hydra\.sweep\.dir=.* holds a sweep\. Choose another"):
        make(tmp_path, resume="never")
    close(folder)
    with exclusive(folder.dir):
        pass


def test_a_start_that_comes_to_nothing_leaves_nothing(settings, tmp_path, monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise UserError("the store is wrong")

    monkeypatch.setattr("slimexp.sweep.parent.ParentRun", refuse)
    folder = make(tmp_path / "new")
    with pytest.raises(UserError, match="the store is wrong"):
        folder.open(settings, keys=[], jobs=[])
    assert folder.parent is None
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"day/time: cannot be made \(Not a directory\)\. Choose a folder of your own"):
        make(tmp_path / "file").open(settings, keys=[], jobs=[])
