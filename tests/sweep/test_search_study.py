"""The study of a search in its SQLite file: what is asked, what is told, and what a break leaves behind."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from slimexp.config.search import Pruner, Sampler
from slimexp.errors import UserError
from slimexp.sweep.search_space import split
from slimexp.sweep.search_study import Study, Trial
from tests.sweep.quick_database import quick_database  # noqa: F401 (a fixture)
from tests.sweep.searching import settings

pytestmark = pytest.mark.usefixtures("quick_database")

RATE = "learning_rate.initial=tag(log, interval(1e-4, 1e-1))"


def open_study(folder: Path, *overrides: str, fixed=None, metric="eval/top1", maximize=True, **changes) -> Study:
    _, spaces = split(OverridesParser.create().parse_overrides(list(overrides or [RATE])))
    return Study(folder / "search.db", spaces, settings(**changes), metric, maximize, fixed or {"model.name": "lenet"})


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    open_study(folder).close()
    return folder / "search.db"


@pytest.fixture
def empty(tmp_path, empty_database) -> Path:
    """A folder with a database that has its tables, which take half a second to make."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{shutil.copy(empty_database, tmp_path / 'search.db')}")
    optuna.delete_study(study_name="search", storage=storage)
    storage.remove_session()
    storage.engine.dispose()
    return tmp_path


def ask(study: Study, job: int) -> Trial:
    trial = study.ask()
    assert trial is not None
    if trial.job is None:
        study.assign(trial, job)
    return trial


def test_a_search_counts_and_finds_its_best(empty):
    with open_study(empty, RATE, "optimizer=adam,momentum", maximize=False, metric="eval/loss") as study:
        assert study.best() is None
        assert study.num_left() == 4
        overrides = []
        for job, value in enumerate([0.5, 0.25, 0.75]):
            trial = ask(study, job)
            overrides.append(trial.overrides)
            study.finish(trial, value)
        study.fail(ask(study, 3))
        assert study.best() == (1, 0.25)
        assert study.num_left() == 0
        assert study.counts() == {"finished": 3, "pruned": 0, "failed": 1}
    for rate, optimizer in overrides:
        assert 1e-4 <= float(rate.removeprefix("learning_rate.initial=")) <= 1e-1
        assert optimizer in ("optimizer=adam", "optimizer=momentum")


@pytest.mark.parametrize("sampler", [Sampler.random, Sampler.tpe], ids=["random", "tpe"])
def test_a_search_that_was_broken_off_draws_what_it_would_have_drawn(tmp_path, sampler):
    def run(folder: Path, breaks: bool) -> list[list[str]]:
        folder.mkdir()
        seen = []
        study = open_study(folder, sampler=sampler, trials=6)
        for job in range(6):
            if breaks and job in (2, 5):
                study.close()
                study = open_study(folder, sampler=sampler, trials=6)
                assert study.recover() == []
            trial = ask(study, job)
            seen.append(trial.overrides)
            study.finish(trial, float(trial.values["learning_rate.initial"]))
        study.close()
        return seen

    whole = run(tmp_path / "whole", breaks=False)
    assert run(tmp_path / "broken", breaks=True) == whole
    assert len({tuple(overrides) for overrides in whole}) == 6


def test_what_was_killed_half_way_or_failed_is_asked_again_under_its_job(empty):
    with open_study(empty) as study:
        study.finish(ask(study, 0), 0.1)
        killed, failed = ask(study, 1), ask(study, 2)
        study.fail(failed)
        never_assigned = study.ask()
        assert never_assigned is not None
    for _ in range(2):  # A second break before anything was run changes nothing.
        with open_study(empty) as study:
            assert study.recover() == [1, 2]
            assert study.num_left() == 3
    with open_study(empty) as study:
        assert study.recover() == [1, 2]
        first, second = study.ask(), study.ask()
        assert first is not None
        assert second is not None
        assert [(t.job, t.overrides) for t in (first, second)] == [(1, killed.overrides), (2, failed.overrides)]
    with open_study(empty) as study:  # And one in the middle of the second try.
        assert study.recover() == [1, 2]
        for job in (1, 2):
            trial = study.ask()
            assert trial is not None
            assert trial.job == job
            study.finish(trial, 0.2)
        assert study.counts() == {"finished": 3, "pruned": 0, "failed": 0}
        assert study.num_left() == 1
        new = study.ask()
        assert new is not None
        assert new.job is None


def test_values_like_those_that_failed_are_avoided(empty):
    """As of a learning rate: above 0.3 the loss diverges, and up to there more is better."""
    with open_study(empty, "a=interval(0, 1)", sampler=Sampler.tpe, startup_trials=5, trials=25) as study:
        failed = []
        for job in range(25):
            trial = ask(study, job)
            value = float(trial.values["a"])
            failed.append(value > 0.3)
            if failed[-1]:
                study.fail(trial)
            else:
                study.finish(trial, value)
        assert sum(failed[5:]) <= 8
        assert study.counts() == {"finished": 25 - sum(failed), "pruned": 0, "failed": sum(failed)}
    storage = optuna.storages.RDBStorage(f"sqlite:///{empty}/search.db")
    states = [trial.state.name for trial in optuna.load_study(study_name="search", storage=storage).trials]
    assert states == ["FAIL" if fail else "COMPLETE" for fail in failed]
    storage.remove_session()
    storage.engine.dispose()


def test_the_same_values_are_not_tried_twice(empty):
    with open_study(empty, "optimizer=adam,momentum", "pipeline.threads=range(1, 4)", trials=10) as study:
        seen = []
        for job in range(6):
            trial = ask(study, job)
            seen.append(tuple(trial.overrides))
            study.finish(trial, 0.5)
        assert len(set(seen)) == 6
        assert study.ask() is None
        assert study.num_left() == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "eval/loss"}, r"sweep\.metric=eval/top1 there, eval/loss now"),
        ({"maximize": False}, r"sweep\.direction=maximize there, minimize now"),
        ({"fixed": {"model.name": "vgg16"}}, r"model\.name=lenet there, vgg16 now"),
        ({"fixed": {"seed": "0"}}, r"model\.name=lenet there, \(nothing\) now; seed=\(nothing\) there, 0 now"),
    ],
)
def test_another_search_is_refused_in_the_same_folder(empty, changes, message):
    open_study(empty).close()
    with pytest.raises(UserError, match=message) as caught:
        open_study(empty, **changes)
    assert "hydra.sweep.dir=FOLDER" in str(caught.value)


def test_other_spaces_are_refused_and_more_trials_are_not(empty):
    open_study(empty).close()
    with pytest.raises(UserError, match=r"learning_rate\.initial=tag\(log, interval\(1e-4, 1e-1\)\) there, interval"):
        open_study(empty, "learning_rate.initial=interval(0, 1)")
    with open_study(empty, trials=9, sampler=Sampler.tpe, pruner=Pruner.median) as study:
        assert study.num_left() == 9


def test_a_file_that_is_no_study_is_named(tmp_path):
    (tmp_path / "search.db").write_text("this is not a database, whatever its name says" * 100)
    with pytest.raises(UserError, match=r"search\.db: cannot be opened as the study of a search: file is not a datab"):
        open_study(tmp_path)


def run_trial(study: Study, job: int, values: dict[int, float]) -> str | None:
    """Reports values by step until the trial is given up, and ends it; returns why it was given up."""
    trial = ask(study, job)
    for step, value in values.items():
        reason = study.report(trial, step, value)
        if reason:
            study.prune(trial)
            return reason
    study.finish(trial, value)
    return None


@pytest.mark.parametrize("maximize", [True, False], ids=["maximize", "minimize"])
def test_the_median_decides_who_goes_on(empty, maximize):
    sign = 1 if maximize else -1
    with open_study(empty, maximize=maximize, pruner=Pruner.median, prune_after_trials=3, trials=9) as study:
        for job, value in enumerate([0.2, 0.5, 0.8]):  # None is pruned before there are three.
            assert run_trial(study, job, {10: sign * value, 20: sign * value}) is None
        assert run_trial(study, 3, {10: sign * 0.6, 20: sign * 0.6}) is None
        reason = run_trial(study, 4, {10: sign * 0.4, 20: 0.0})
        assert reason == f"pruned at step 10: eval/top1 {sign * 0.4:g}, the best trial had {sign * 0.8:g} there"
        assert run_trial(study, 5, {5: sign * 0.1, 20: sign * 0.9}) is None  # No other was looked at there.
        assert study.counts() == {"finished": 5, "pruned": 1, "failed": 0}
        assert study.best() == (5, sign * 0.9)


def test_pruning_waits_for_the_steps_it_is_told_and_spares_the_last_one(empty):
    with open_study(empty, pruner=Pruner.median, prune_after_steps=20, trials=9) as study:
        run_trial(study, 0, {10: 0.9, 20: 0.9, 30: 0.9})
        trial = ask(study, 1)
        trial.last_step = 30
        assert study.report(trial, 10, 0.1) is None
        assert study.report(trial, 30, 0.1) is None
        assert study.report(trial, 20, math.nan) is None
        study.finish(trial, 0.1)
        assert run_trial(study, 2, {10: 0.1, 20: 0.1}) is not None


@pytest.mark.parametrize("pruner", [Pruner.halving, Pruner.hyperband], ids=["halving", "hyperband"])
def test_successive_halving_ends_most_of_the_weak_trials(empty, pruner):
    steps = [1, 3, 9, 27]
    with open_study(empty, pruner=pruner, trials=30) as study:
        assert run_trial(study, 0, dict.fromkeys(steps, 0.9)) is None
        reasons = [run_trial(study, job, dict.fromkeys(steps, 0.5 - job / 100)) for job in range(1, 12)]
        assert sum(reason is not None for reason in reasons) >= 4
        assert run_trial(study, 12, dict.fromkeys(steps, 0.95)) is None


def test_importances_come_once_there_is_enough_to_tell(empty):
    with open_study(empty, RATE, "optimizer=adam,momentum", trials=12, sampler=Sampler.tpe) as study:
        for job in range(12):
            trial = ask(study, job)
            if job == 3:
                assert study.importances() == {}
            study.finish(trial, -abs(math.log10(float(trial.values["learning_rate.initial"])) + 2))
        found = study.importances()
    assert list(found) == ["learning_rate.initial", "optimizer"]
    assert found["learning_rate.initial"] > 0.6
    assert sum(found.values()) == pytest.approx(1)


@pytest.mark.slow
def test_a_study_lies_beside_a_store_of_mlflow(empty):
    """Both bring SQLAlchemy and alembic; they must agree on one version, and on one process."""
    from slimexp.tracking import Tracker

    with open_study(empty) as study:
        study.finish(ask(study, 0), 0.5)
        tracker = Tracker.start(
            backend="mlflow",
            uri=f"sqlite:///{empty}/mlflow.db",
            experiment="search",
            run_name="trial",
            run_dir=None,
            tags={},
            params={},
        )
        tracker.finish()
        study.finish(ask(study, 1), 0.75)
        assert study.best() == (1, 0.75)
    assert tracker.run_id
