"""The sweeper that asks Optuna for the values to try: `hydra/sweeper=search`.

Optuna is an extra, and imported only once a search begins; the study is `SWEEP_DIR/search.db`. What decides is the last
value of `sweep.metric` and not the best one: it is what the run has in hand when it ends and what the sweep's table
compares, while the best of many noisy evaluations flatters the trials that were evaluated most often.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from slimexp.config import Config
from slimexp.config.search import Pruner
from slimexp.errors import UserError
from slimexp.sweep import plugins
from slimexp.sweep.jobs import FINISHED, KILLED, NOT_RUN, PRUNED, RUNNING, SweepJob, edit_sweep
from slimexp.sweep.plan import PlannedJob, without_hydra
from slimexp.sweep.runner import SweepRunner
from slimexp.sweep.search_space import Space, split
from slimexp.validation import flatten, nearest

if TYPE_CHECKING:
    from slimexp.sweep.search_study import Study, Trial

__all__ = ["SearchSweeper", "register"]

# What may differ when a search goes on: how it is searched, and where things lie.
_FREE_TO_CHANGE = (
    *("sweep.", "tracking.", "run_dir", "output_root", "dry_run", "dataset.cache_dir", "pipeline.cache_dir"),
    *("trainer.resume", "trainer.max_to_keep"),
)


class SearchSweeper(Sweeper):
    """Asks for values, launches jobs with them, tells what came of it, until there were enough trials."""

    def __init__(self, params: DictConfig | None = None) -> None:
        """Keeps what a preset searches; the rest of the settings is `sweep.search`.

        Args:
            params: Values and spaces by key, as on the command line, which goes before.
        """
        self._params = {str(key): value for key, value in (params or {}).items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.config = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Runs the search, or what an earlier start of it has left to run.

        Raises:
            UserError: If Optuna is missing, a space or its values are wrong, or no trial has the metric.
        """
        assert self.hydra_context is not None
        assert self.config is not None
        _require_optuna()
        preset = [f"{key}={_as_override(value)}" for key, value in self._params.items()]
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        fixed, spaces = split(parser.parse_overrides([*preset, *arguments]))
        names = [space.name for space in spaces]
        runner = SweepRunner(
            hydra_context=self.hydra_context,
            config=self.config,
            launcher=self.launcher,
            arguments=arguments,
        )
        with runner:
            checked = runner.check([[*fixed, *values] for values in _corners(spaces)], swept=names)
            _refuse(checked, spaces)
            if runner.dry_run:
                _say("Each choice and both ends of each range, the other keys at their first values:")
                runner.rehearse(checked)
            elif checked[0].config is not None:
                runner.begin(checked[0].config, names)
                _Search(runner, self.config, fixed, spaces, checked[0].config).run()
        return None


class _Search:
    """One start of a search."""

    def __init__(
        self, runner: SweepRunner, master: DictConfig, fixed: Sequence[str], spaces: Sequence[Space], first: Config
    ) -> None:
        self._runner = runner
        self._master = master
        self._fixed = list(fixed)
        self._spaces = list(spaces)
        self._names = [space.name for space in spaces]
        self._settings = first.sweep.search
        self._metric, self._maximize = _objective(first)
        self._batch = self._settings.batch or _side_by_side(master)
        self._is_evaluated = first.trainer.eval_every_steps > 0 or not self._metric.startswith("eval/")

    def run(self) -> None:
        """Runs trials until there are enough, or none is left, or the sweep is to stop."""
        study_module = importlib.import_module("slimexp.sweep.search_study")
        earlier = {job.number: job for job in self._runner.record.jobs} if self._runner.record else {}
        with study_module.Study(
            self._runner.dir / study_module.DATABASE,
            self._spaces,
            self._settings,
            self._metric,
            self._maximize,
            _fixed_settings(self._master, self._names),
        ) as study:
            unknown = sorted(study.ended_jobs() - earlier.keys())
            if unknown:
                raise UserError(
                    f"{self._runner.dir / study_module.DATABASE}: has trials of jobs that the folder's sweep.json does "
                    f"not know: {', '.join(map(str, unknown))}. Delete it to begin anew, or choose another folder with "
                    "hydra.sweep.dir=FOLDER."
                )
            with edit_sweep(self._runner.dir) as record:
                record.metric, record.direction = self._metric, "maximize" if self._maximize else "minimize"
            again = study.recover()
            self._announce(study, again)
            try:
                while not self._runner.stopping and (left := study.num_left()):
                    if not self._run_batch(study, min(left, self._batch), earlier):
                        _say("Every combination of the values has been tried.")
                        break
            finally:
                self._conclude(study)

    def _run_batch(self, study: Study, size: int, earlier: dict[int, SweepJob]) -> bool:
        """Runs some trials side by side; returns whether there were any left to run."""
        trials: list[Trial] = []
        planned: list[PlannedJob] = []
        asked = 0
        while asked < size and (trial := study.ask()) is not None:
            asked += 1
            if trial.job in earlier and earlier[trial.job].status == PRUNED:
                study.prune(trial)  # It was broken off between the job's end and this note.
                continue
            overrides = [*self._fixed, *trial.overrides]
            numbers = None if trial.job is None else [trial.job]
            (job,) = self._runner.plan([overrides], swept=self._names, numbers=numbers)
            if trial.job is None:
                study.assign(trial, job.number)
            trial.last_step = None if job.config is None else job.config.trainer.max_steps
            trials.append(trial)
            planned.append(job)
        watch = importlib.import_module("slimexp.sweep.search_watch")
        folders = {self._runner.dir / job.subdir: trial for job, trial in zip(planned, trials, strict=True)}
        with watch.watching(study, self._metric, folders):
            jobs = self._runner.run(planned)
        ended = {job.number: job for job in jobs}
        for trial in trials:
            assert trial.job is not None
            self._settle(study, trial, ended.get(trial.job))
        return asked > 0

    def _settle(self, study: Study, trial: Trial, job: SweepJob | None) -> None:
        """Tells the study how a trial ended."""
        status = NOT_RUN if job is None else job.status
        if status == PRUNED:
            study.prune(trial)
        elif status == FINISHED and job is not None:
            self._settle_finished(study, trial, job)
        elif status in (NOT_RUN, RUNNING, KILLED) and self._runner.stopping:
            pass  # It stays open, and the next start goes on with it.
        else:
            study.fail(trial)

    def _settle_finished(self, study: Study, trial: Trial, job: SweepJob) -> None:
        watch = importlib.import_module("slimexp.sweep.search_watch")
        value, names = watch.last_value(self._runner.dir / job.dir, self._metric)
        if value is not None and math.isfinite(value):
            study.finish(trial, value)
            best = study.best()
            assert best is not None
            beside = "the best so far" if best[0] == job.number else f"the best so far is job {best[0]}'s {best[1]:.4g}"
            _say(f"Job {job.number}: {self._metric} {value:.4g}, {beside}.")
            return
        study.fail(trial)
        if value is not None:
            _say(f"Job {job.number}: {self._metric} is {value}, so it counts as failed.")
        elif study.best() is None:
            near = f"the nearest is {nearest(self._metric, names)}. There are {', '.join(sorted(names))}"
            raise UserError(
                f"sweep.metric={self._metric}: job {job.number} has finished without it; "
                f"{near if names else 'it has left no metric at all'}."
            )
        else:
            _say(f"Job {job.number}: it has no {self._metric}, so it counts as failed.")

    def _announce(self, study: Study, again: Sequence[int]) -> None:
        settings = self._settings
        direction = "largest" if self._maximize else "smallest"
        left = study.num_left()
        _say(f"Search of {settings.trials} trials for the {direction} {self._metric}, in {self._runner.dir}:")
        for space in self._spaces:
            _say(f"  {space.name} = {space.text}{_hint(space)}")
        if settings.pruner is not Pruner.none and not self._is_evaluated:
            _say("No trial is pruned, as trainer.eval_every_steps=0 leaves nothing to judge them by while they run.")
        if left < settings.trials or again:
            jobs = f" (jobs {', '.join(map(str, again))} again)" if again else ""
            _say(f"It was begun earlier; {left} of its trials are left to run{jobs}.")

    def _conclude(self, study: Study) -> None:
        """Says what the search has found, and leaves it in `search.json`."""
        counts = study.counts()
        best = study.best()
        shares = study.importances()
        ended = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        _say(f"\nSearch: {sum(counts.values())} of {self._settings.trials} trials have ended: {ended or 'none'}.")
        if shares:
            _say("What mattered: " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()) + ".")
        content = {
            "metric": self._metric,
            "direction": "maximize" if self._maximize else "minimize",
            "spaces": {space.name: space.text for space in self._spaces},
            "trials": counts,
            "best": None if best is None else {"job": best[0], "value": best[1], "values": study.values_of(best[0])},
            "importances": shares,
        }
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (self._runner.dir / "search.json").write_text(text, encoding="utf-8", errors="backslashreplace")


def register() -> None:
    """Makes the sweeper known to Hydra, as `hydra/sweeper=search`."""
    plugins.register(SearchSweeper)


def _require_optuna() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise UserError("hydra/sweeper=search needs Optuna, which is not installed: pip install 'slimexp[sweep]'")


def _corners(spaces: Sequence[Space]) -> Iterator[list[str]]:
    """Yields each choice and both ends of each interval once, the other keys at their first values."""
    first = [f"{space.key}={space.corners()[0]}" for space in spaces]
    yield first
    for i, space in enumerate(spaces):
        for value in space.corners()[1:]:
            yield [*first[:i], f"{space.key}={value}", *first[i + 1 :]]


def _refuse(checked: Sequence[PlannedJob], spaces: Sequence[Space]) -> None:
    """Raises an error if values that the search may try are wrong; names each fault once."""
    errors = list(dict.fromkeys(job.error for job in checked if job.error is not None))
    if not errors:
        return
    lines: list[str] = []
    hinted = set()
    for error in errors:
        space = next((space for space in spaces if error.startswith((f"{space.name}=", f"{space.name}:"))), None)
        wants_whole = re.search("whole number|to Integer", error)
        if space is not None and wants_whole and not space.integer and not space.choices:
            if space.name in hinted:
                continue  # The other end of the same interval.
            hinted.add(space.name)
            error = f"{error} Whole numbers are searched with int(interval(1, 8)) or range(1, 9)."
        lines.append(error if space is None else f"{space.key}={space.text}: {error}")
    raise UserError("\n".join(lines))


def _objective(config: Config) -> tuple[str, bool]:
    """Returns the metric that decides, and whether more of it is better."""
    scores = importlib.import_module("slimexp.sweep.scores")
    metric = config.sweep.metric
    if metric is None:
        dataset: Any = config.dataset
        task = dataset.get("task") if isinstance(dataset, dict) else getattr(dataset, "task", None)
        if config.job.name == "benchmark":
            metric = scores.SPEED
        else:
            metric = "eval/mean_average_precision" if getattr(task, "value", task) == "multi" else "eval/top1"
    direction = config.sweep.direction
    return metric, scores.is_maximized(metric, direction.value if direction is not None else None)


def _side_by_side(master: DictConfig) -> int:
    """Returns how many jobs the launcher runs at a time, where it is known."""
    n_jobs = OmegaConf.select(master, "hydra.launcher.n_jobs")
    if n_jobs is None:
        return 1
    return int(importlib.import_module("joblib").effective_n_jobs(n_jobs))


def _fixed_settings(master: DictConfig, searched: Sequence[str]) -> dict[str, str]:
    """Returns the settings of the sweep's own configuration that decide about the trials' results, as text."""
    values = flatten(OmegaConf.to_container(without_hydra(master), resolve=False))
    apart = (*_FREE_TO_CHANGE, *(f"{name}." for name in searched))
    return {key: str(value) for key, value in values.items() if not key.startswith(apart) and key not in searched}


def _hint(space: Space) -> str:
    if not space.log and not space.choices and space.low > 0 and space.high / space.low >= 100:
        return f"    (nearly all values tried are above {space.high / 10:g}; tag(log, ...) spreads them evenly)"
    return ""


def _as_override(value: Any) -> str:
    """Returns a value of a preset's `params` as the text of an override."""
    if value is None:
        return "null"
    return str(OmegaConf.to_container(value)) if OmegaConf.is_config(value) else str(value)


def _say(text: str) -> None:
    print(text, flush=True)
