"""The sweeper `search` with Hydra's own composing, a real study, and a launcher that makes up the jobs' results."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, SCMode

import slimexp.app  # noqa: F401 (registers the schema and the sweepers)
from slimexp.config import CONFIG_DIR
from slimexp.errors import UserError
from slimexp.sweep import roster, search_watch, stopping
from slimexp.sweep import runner as runner_module
from slimexp.sweep.identity import swept_values
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, PRUNED, RUNNING, SweepJob, edit_sweep, read_sweep
from slimexp.sweep.plan import PlannedJob, plan_job
from slimexp.sweep.search import SearchSweeper
from slimexp.tracking.metrics_file import MetricsFile, MetricsRow, read_metrics
from tests.sweep.quick_database import quick_database  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("quick_database")

RATE = "learning_rate.initial=tag(log, interval(1e-4, 1e-1))"
OPTIMIZER = "optimizer=adam,momentum"
SMALL = ("tracking=none", "sweep.search.trials=4", "sweep.search.sampler=random", "sweep.search.pruner=none")


class FakeLauncher(Launcher):
    """Plays the jobs within this process; `play(job, folder)` returns how one ended."""

    def __init__(self, sweep_dir: Path, play: Callable[[SweepJob, Path], tuple[str, str]]) -> None:
        self.sweep_dir = sweep_dir
        self.play = play
        self.batches: list[list[int]] = []

    def setup(self, **kwargs: Any) -> None:
        pass

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        numbers = []
        for overrides in job_overrides:
            subdir = next(o for o in overrides if o.startswith("hydra.sweep.subdir=")).partition("=")[2].strip("'")
            job = next(job for job in read_sweep(self.sweep_dir).jobs if job.dir == subdir)
            numbers.append(job.number)
            self._note(job.number, status=RUNNING)
            status, reason = self.play(job, self.sweep_dir / job.dir)
            self._note(job.number, status=status, reason=reason, exit_code=0 if status in (FINISHED, PRUNED) else 1)
        self.batches.append(numbers)
        return []

    def _note(self, number: int, **values: Any) -> None:
        with edit_sweep(self.sweep_dir) as record:
            for key, value in values.items():
                setattr(record.job(number), key, value)


class FakeParent:
    """No run in a store."""

    run_id = None
    tracker = SimpleNamespace(uri=None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def settle(self, job: SweepJob, job_dir: Path) -> None:
        pass

    def finish(self, status: str, reason: str | None) -> None:
        pass


def write_metrics(folder: Path, **values: float) -> None:
    """Leaves rows as a job would; `step_10=0.5` is the evaluation at step 10."""
    file = MetricsFile(folder / "metrics.jsonl")
    for name, value in values.items():
        step = int(name.removeprefix("step_"))
        file.append(MetricsRow(step, time.time(), {"train/loss": 1.0, "eval/top1": value}))
    file.close()


def score(job: SweepJob) -> float:
    """Is best at a rate of 0.01."""
    return 1 - abs(math.log10(float(job.swept["learning_rate.initial"])) + 2) / 4


def finish(job: SweepJob, folder: Path) -> tuple[str, str]:
    write_metrics(folder, step_10=score(job))
    return FINISHED, ""


@pytest.fixture(scope="module")
def template() -> list[PlannedJob]:
    """Holds a job that Hydra has composed, once there is one."""
    return []


@pytest.fixture
def quick(monkeypatch, template):
    """Composes one job only, and makes the others from it."""

    def plan(context: HydraContext, master: DictConfig, overrides: list[str], **where: Any) -> PlannedJob:
        if not template:
            template.append(plan_job(context, master, overrides, **where))
        composed = template[0].config
        assert composed is not None
        values = OmegaConf.to_container(master.sweep, structured_config_mode=SCMode.INSTANTIATE)
        return dataclasses.replace(
            template[0],
            number=where["number"],
            overrides=list(overrides),
            swept=swept_values(overrides, where["keys"]),
            subdir=str(where["number"]),
            config=dataclasses.replace(composed, sweep=values),
            hash=" ".join(overrides),
        )

    monkeypatch.setattr(roster, "plan_job", plan)


@pytest.fixture(scope="module")
def composed() -> dict[tuple[str, ...], DictConfig]:
    """Holds what Hydra has composed of commands, as that takes a third of a second."""
    return {}


@pytest.fixture
def search(tmp_path, monkeypatch, composed):
    """Returns a function that runs a search in one folder, as often as it is called; no parent run, no summary."""
    monkeypatch.setattr(runner_module, "sum_up", lambda *args: 0)
    monkeypatch.setattr("slimexp.sweep.parent.ParentRun", FakeParent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search_watch, "_POLL_SECS", 0.02)
    monkeypatch.setattr(runner_module, "exit_codes", [])
    sweep_dir = tmp_path / "sweep"

    def run(*overrides: str, play=finish, small: Sequence[str] = SMALL) -> FakeLauncher:
        command = ("hydra/sweeper=search", *small, *overrides)
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            if command not in composed:
                composed[command] = hydra.compose_config("config", list(command), run_mode=RunMode.MULTIRUN)
            config = copy.deepcopy(composed[command])
            config.hydra.sweep.dir = str(sweep_dir)
            context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
            sweeper = Plugins.instance().instantiate_sweeper(
                hydra_context=context, task_function=lambda config: None, config=config
            )
            assert isinstance(sweeper, SearchSweeper)
            launcher = FakeLauncher(sweep_dir, play)
            sweeper.launcher = launcher
            sweeper.sweep(list(config.hydra.overrides.task))
        return launcher

    run.dir = sweep_dir
    run.exit_codes = runner_module.exit_codes
    return run


def answer(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "search.json").read_text())


def test_a_search_runs_its_trials_and_says_what_it_found(search, capsys):
    launcher = search(RATE, OPTIMIZER, "trainer.max_steps=20")
    assert launcher.batches == [[0], [1], [2], [3]]
    record = read_sweep(search.dir)
    assert [job.status for job in record.jobs] == [FINISHED] * 4
    assert {tuple(job.swept) for job in record.jobs} == {("learning_rate.initial", "optimizer")}
    assert all("trainer.max_steps=20" in job.overrides for job in record.jobs)
    assert (record.metric, record.direction) == ("eval/top1", "maximize")
    best = max(record.jobs, key=score)
    found = answer(search.dir)
    assert found["best"] == {"job": best.number, "value": score(best), "values": best.swept}
    assert found["trials"] == {"finished": 4, "pruned": 0, "failed": 0}
    assert search.exit_codes == [0]
    shown = capsys.readouterr().out
    assert "Search of 4 trials for the largest eval/top1" in shown
    assert "  learning_rate.initial = tag(log, interval(1e-4, 1e-1))" in shown
    assert f"Job 0: eval/top1 {score(record.jobs[0]):.4g}, the best so far." in shown
    assert "Search: 4 of 4 trials have ended: 4 finished." in shown


def test_a_search_goes_on_where_it_was_broken_off(quick, search, capsys):
    def fail_then_die(job: SweepJob, folder: Path) -> tuple[str, str]:
        if job.number == 1:
            return FAILED, "a disk was full"
        if job.number == 2:
            write_metrics(folder, step_5=0.1)
            raise MemoryError  # As if this process had been killed within the job.
        return finish(job, folder)

    with pytest.raises(MemoryError):
        search(RATE, OPTIMIZER, play=fail_then_die)
    before = {job.number: job.overrides for job in read_sweep(search.dir).jobs}
    assert sorted(before) == [0, 1, 2]
    capsys.readouterr()

    launcher = search(RATE, OPTIMIZER)
    assert launcher.batches == [[1], [2], [3]]
    record = read_sweep(search.dir)
    assert [job.status for job in record.jobs] == [FINISHED] * 4
    assert {job.number: job.overrides for job in record.jobs[:3]} == before
    assert "It was begun earlier; 3 of its trials are left to run (jobs 1, 2 again)." in capsys.readouterr().out
    assert answer(search.dir)["trials"] == {"finished": 4, "pruned": 0, "failed": 0}

    assert search(RATE, OPTIMIZER).batches == []
    assert "0 of its trials are left to run." in capsys.readouterr().out
    assert search(RATE, OPTIMIZER, "sweep.search.trials=6").batches == [[4], [5]]
    assert [code for code in search.exit_codes if code] == [1]


def test_a_failed_trial_does_not_end_the_search_unless_asked(quick, search):
    def play(job: SweepJob, folder: Path) -> tuple[str, str]:
        if job.number == 1:
            return FAILED, "its loss was nan"
        if job.number == 2:
            write_metrics(folder, step_10=math.nan)
            return FINISHED, ""
        return finish(job, folder)

    launcher = search(RATE, play=play)
    assert launcher.batches == [[0], [1], [2], [3]]
    assert answer(search.dir)["trials"] == {"finished": 2, "pruned": 0, "failed": 2}
    assert search.exit_codes == [1]


def test_a_failed_trial_ends_the_search_if_that_is_wanted(quick, search):
    def play(job: SweepJob, folder: Path) -> tuple[str, str]:
        if job.number < 1:
            return finish(job, folder)
        stopping.request(search.dir, stopping.Stop(0))
        return FAILED, "its loss was nan"

    assert search(RATE, play=play).batches == [[0], [1]]
    assert search(RATE).batches == [[1], [2], [3]]


def test_a_job_that_somebody_killed_is_left_to_the_next_start(quick, search):
    play = lambda job, folder: (KILLED, "stopped by SIGTERM") if job.number == 0 else finish(job, folder)  # noqa: E731
    assert search(RATE, play=play).batches == [[0], [1], [2], [3]]
    assert search(RATE).batches == [[0]]
    assert answer(search.dir)["trials"] == {"finished": 4, "pruned": 0, "failed": 0}


def test_weak_trials_are_pruned_while_they_run(quick, search):
    def play(job: SweepJob, folder: Path) -> tuple[str, str]:
        for step in range(10, 60, 10):
            write_metrics(folder, **{f"step_{step}": 0.9 - job.number / 10})
            deadline = time.monotonic() + (5 if job.number == 3 else 0.1)
            while time.monotonic() < deadline:
                if (folder / "stop.json").is_file():
                    stop = json.loads((folder / "stop.json").read_text())
                    assert stop["step"] == step
                    return stop["status"], stop["reason"]
                time.sleep(0.01)
        return FINISHED, ""

    search(RATE, "sweep.search.pruner=median", "sweep.search.prune_after_trials=3", play=play)
    record = read_sweep(search.dir)
    assert [job.status for job in record.jobs] == [FINISHED] * 3 + [PRUNED]
    assert record.jobs[3].reason == "pruned at step 10: eval/top1 0.6, the best trial had 0.9 there"
    assert answer(search.dir)["trials"] == {"finished": 3, "pruned": 1, "failed": 0}
    assert search.exit_codes == [0]


def test_trials_run_side_by_side_in_batches(quick, search):
    launcher = search(RATE, "sweep.search.batch=3", "sweep.search.sampler=tpe", "sweep.search.startup_trials=1")
    assert launcher.batches == [[0, 1, 2], [3]]
    values = [job.swept["learning_rate.initial"] for job in read_sweep(search.dir).jobs]
    assert len(set(values)) == 4


def test_every_combination_is_enough(quick, search, capsys):
    def play(job: SweepJob, folder: Path) -> tuple[str, str]:
        write_metrics(folder, step_10=0.5)
        return FINISHED, ""

    assert len(search(OPTIMIZER, "sweep.search.trials=9", play=play).batches) == 2
    assert "Every combination of the values has been tried." in capsys.readouterr().out


def test_the_metric_and_its_direction_can_be_chosen(quick, search):
    def play(job: SweepJob, folder: Path) -> tuple[str, str]:
        file = MetricsFile(folder / "metrics.jsonl")
        file.append(MetricsRow(1, time.time(), {"train/loss": 0.1}))
        file.append(MetricsRow(2, time.time(), {"train/loss": score(job)}))  # The last value counts.
        file.close()
        return FINISHED, ""

    search(RATE, "sweep.metric=train/loss", play=play)
    record = read_sweep(search.dir)
    assert answer(search.dir)["best"]["job"] == min(record.jobs, key=score).number
    assert answer(search.dir)["direction"] == "minimize"


def test_a_metric_that_no_job_has_ends_the_search_at_once(quick, search):
    with pytest.raises(UserError, match=r"sweep\.metric=eval/top2: job 0 has finished without it; the nearest is"):
        search(RATE, "sweep.metric=eval/top2")
    assert len(read_sweep(search.dir).jobs) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["learning_rate.initial=interval(-1, 1)"], r"initial=interval\(-1, 1\): learning_rate\.initial=-1\.0: must"),
        (["pipeline.threads=interval(1, 8)"], r"Whole numbers are searched with int\(interval\(1, 8\)\) or range"),
        (
            ["pipeline.threads=interval(1, 8)"],
            r"^(?:(?!are searched with).)*are searched with(?:(?!are searched with).)*$",
        ),
        (["optimizer=adam,adm", "optimizer.epsilon=interval(0.1, 1)"], r"optimizer=adam,adm: .*the nearest is adam"),
        (["seed=3"], "there is nothing to search"),
        ([RATE, "sweep.search.trials=0"], r"sweep\.search\.trials=0: must be 1 or more"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_run(search, overrides, message):
    with pytest.raises(Exception, match=message):
        search(*overrides)
    assert not search.dir.exists()


def test_spaces_of_a_preset_are_searched_and_the_command_goes_before(search):
    launcher = search(
        "hydra.sweeper.params={learning_rate.initial: 'interval(1e-4, 1e-1)', seed: 7, optimizer: 'adam,sgd'}",
        *("optimizer=momentum", "sweep.search.trials=2"),
    )
    assert len(launcher.batches) == 2
    record = read_sweep(search.dir)
    assert all({"seed=7", "optimizer=momentum"} <= set(job.overrides) for job in record.jobs)
    assert {tuple(job.swept) for job in record.jobs} == {("learning_rate.initial",)}


def test_another_search_in_the_folder_is_refused(quick, search):
    search(RATE, "sweep.search.trials=1")
    with pytest.raises(UserError, match=r"trainer\.max_steps=1000 there, 30 now"):
        search(RATE, "sweep.search.trials=2", "trainer.max_steps=30")


def test_a_study_whose_jobs_are_gone_is_not_taken_over(quick, search):
    search(RATE)
    (search.dir / "sweep.json").unlink()
    with pytest.raises(UserError, match=r"search\.db: has trials of jobs that .* does not know: 0, 1, 2, 3\. Delete"):
        search(RATE, "sweep.search.trials=6")


def test_optuna_is_an_extra(search, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"hydra/sweeper=search needs Optuna, .*: pip install 'slimexp\[sweep\]'"):
        search(RATE)
    assert not search.dir.exists()


def test_a_search_that_has_nothing_to_prune_by_says_so(search, capsys):
    search(RATE, "trainer.eval_every_steps=0", "sweep.search.pruner=median", "sweep.search.trials=1")
    assert "No trial is pruned, as trainer.eval_every_steps=0 leaves nothing" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_search_of_real_jobs_prunes_and_goes_on(tmp_path):
    """Three tiny trials: the study is made beside MLflow's store, and the same command again has nothing to do."""
    command = [
        *(sys.executable, "-m", "slimexp", "-m", "hydra/sweeper=search"),
        *("learning_rate.initial=tag(log, interval(1e-7, 1e-2))", "optimizer=adam", "model=cifarnet"),
        *("trainer.max_steps=20", "trainer.eval_every_steps=5", "sweep.search.trials=3", "sweep.search.seed=1"),
        *("sweep.search.prune_after_trials=1", f"output_root={tmp_path}/out", f"dataset.cache_dir={tmp_path}/cache"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "out" / "sweeps").glob("*/*/sweep.json")
    record = read_sweep(path.parent)
    assert len(record.jobs) == 3
    assert {job.status for job in record.jobs} <= {FINISHED, PRUNED}
    assert "Search: 3 of 3 trials have ended" in done.stdout
    found = answer(path.parent)
    best = record.job(found["best"]["job"])
    rows = read_metrics(path.parent / best.dir / "metrics.jsonl")
    assert found["best"]["value"] == [row.metrics["eval/top1"] for row in rows if "eval/top1" in row.metrics][-1]
    assert f"learning_rate.initial={found['best']['values']['learning_rate.initial']}" in best.overrides

    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "It was begun earlier; 0 of its trials are left to run." in again.stdout
    assert read_sweep(path.parent).jobs == record.jobs
