"""The trials of a search and what Optuna makes of them, in `SWEEP_DIR/search.db`. Imports Optuna, which is an extra.

A trial is one choice of values; a job of the sweep runs it, and its number stands in the trial's user attributes. What
was broken off is asked again under the same job, so that it goes on from its checkpoint.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from slimexp.config.search import Pruner, SearchConfig
from slimexp.errors import UserError
from slimexp.sweep.search_choice import Chooser, make_pruner, texts_of
from slimexp.sweep.search_space import Space

__all__ = ["DATABASE", "Study", "Trial"]

_log = logging.getLogger("slimexp")

DATABASE = "search.db"
_NAME = "search"
# The key of a trial's user attributes that holds the number of its job. Of two trials of one job the later one counts.
_JOB = "job"
# Keys of the study's.
_SPACES, _SETTINGS, _OBJECTIVE = "spaces", "settings", "objective"
_LOCKED_SECS = 60.0


class Trial:
    """One choice of values.

    Attributes:
        handle: Optuna's own trial.
        values: The text of each value by the name of its key.
        overrides: The same as overrides.
        job: The number of the job that runs it; None until `Study.assign`.
        last_step: The job's last training step, where it is known beforehand: it is not stopped there any more.
    """

    def __init__(self, handle: optuna.Trial, spaces: Sequence[Space]) -> None:
        self.handle = handle
        self.values = texts_of(handle.params, spaces)
        self.overrides = [f"{space.key}={self.values[space.name]}" for space in spaces]
        self.job: int | None = handle.user_attrs.get(_JOB)
        self.last_step: int | None = None


class Study:
    """Asks for values and is told what came of them. Use it from one thread at a time.

    As a context manager it closes its database.
    """

    def __init__(
        self,
        path: Path,
        spaces: Sequence[Space],
        settings: SearchConfig,
        metric: str,
        maximize: bool,
        fixed: Mapping[str, str],
    ) -> None:
        """Opens the study, or makes a new one.

        Args:
            path: The SQLite file.
            spaces: What to search.
            settings: How.
            metric: What decides.
            maximize: Whether more of it is better.
            fixed: What is the same for every trial, by key, for comparison when the search goes on.

        Raises:
            UserError: If the file is no study, or one of another search.
        """
        self._path = path
        self._spaces = list(spaces)
        self._settings = settings
        self._metric = metric
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = self._open(path, maximize)
        try:
            self._compare(
                {
                    _SPACES: {space.name: space.text for space in spaces},
                    _OBJECTIVE: {"sweep.metric": metric, "sweep.direction": "maximize" if maximize else "minimize"},
                    _SETTINGS: dict(fixed),
                }
            )
        except BaseException:
            self.close()
            raise
        self._chooser = Chooser(spaces, settings)
        self._distributions = {space.name: space.distribution() for space in spaces}
        self._pruner: Any = None

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the database."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    @property
    def maximize(self) -> bool:
        """Whether more of the metric is better."""
        return bool(self._study.direction == optuna.study.StudyDirection.MAXIMIZE)

    def num_left(self) -> int:
        """Returns how many jobs there are still to run, the waiting ones of an earlier start included."""
        return max(self._settings.trials - sum(self.counts().values()), 0)

    def counts(self) -> dict[str, int]:
        """Returns how many trials ended how: `finished`, `pruned`, `failed`."""
        states = [trial.state for trial in self._trials() if _JOB in trial.user_attrs]
        return {
            "finished": states.count(TrialState.COMPLETE),
            "pruned": states.count(TrialState.PRUNED),
            "failed": states.count(TrialState.FAIL),
        }

    def ended_jobs(self) -> set[int]:
        """Returns the numbers of the jobs whose trials have ended."""
        trials = self._trials(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        return {trial.user_attrs[_JOB] for trial in trials if _JOB in trial.user_attrs}

    def best(self) -> tuple[int, float] | None:
        """Returns job and value of the best trial that finished; None before the first."""
        trials = self._trials(TrialState.COMPLETE)
        if not trials:
            return None
        sign = 1 if self.maximize else -1
        best = max(trials, key=lambda trial: (sign * trial.value, -trial.number))
        return best.user_attrs[_JOB], best.value

    def values_of(self, job: int) -> dict[str, str]:
        """Returns the values that a job was run with, as text by key."""
        trial = next(trial for trial in self._trials() if trial.user_attrs.get(_JOB) == job)
        return texts_of(trial.params, self._spaces)

    def recover(self) -> list[int]:
        """Puts the trials that an earlier start left unfinished, or that failed, back into the queue.

        Returns:
            The numbers of their jobs.
        """
        latest = self._trials()
        again = {trial.user_attrs.get(_JOB) for trial in latest if trial.state == TrialState.WAITING}
        for trial in latest:
            if trial.state not in (TrialState.RUNNING, TrialState.FAIL) or _JOB not in trial.user_attrs:
                continue
            if trial.params.keys() == self._distributions.keys():
                self._study.enqueue_trial(trial.params, user_attrs={_JOB: trial.user_attrs[_JOB]})
                again.add(trial.user_attrs[_JOB])
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.tell(trial.number, state=TrialState.FAIL)
        return sorted(again - {None})

    def ask(self) -> Trial | None:
        """Returns the next trial; None when every combination of values has been tried."""
        if not self._trials(TrialState.WAITING):
            trials = self._trials()
            known = [
                trial
                for trial in trials
                if trial.params.keys() == self._distributions.keys()
                and (_JOB in trial.user_attrs or trial.state == TrialState.RUNNING)
            ]
            num_jobs = len({trial.user_attrs[_JOB] for trial in trials if _JOB in trial.user_attrs})
            params = self._chooser.choose(known, self._study.direction, num_jobs)
            if params is None:
                return None
            self._study.enqueue_trial(params)
        return Trial(self._study.ask(self._distributions), self._spaces)

    def assign(self, trial: Trial, job: int) -> None:
        """Notes which job runs a trial."""
        trial.job = job
        trial.handle.set_user_attr(_JOB, job)

    def report(self, trial: Trial, step: int, value: float) -> str | None:
        """Notes a value of the metric within a trial.

        Args:
            trial: The trial, whose job is running.
            step: The training step.
            value: The metric's value there.

        Returns:
            Why the trial is to be stopped; None if it is to go on.
        """
        seen = self._storage.get_trial(trial.handle._trial_id).intermediate_values
        if not math.isfinite(value) or step < 0 or step in seen:
            return None
        trial.handle.report(value, step)
        if self._settings.pruner is Pruner.none:
            return None
        if self._pruner is None:
            self._pruner = make_pruner(self._settings, min([step, *seen]))
            self._study.pruner = self._pruner
        # Asked in any case: successive halving keeps count of who came how far.
        stop = trial.handle.should_prune()
        others = [t for t in self._trials(TrialState.COMPLETE) if step in t.intermediate_values]
        if (
            not stop
            or step < self._settings.prune_after_steps
            or step >= (trial.last_step or math.inf)
            or len(self._trials(TrialState.COMPLETE)) < max(self._settings.prune_after_trials, 1)
        ):
            return None
        values = [t.intermediate_values[step] for t in others]
        best = max(values, default=None) if self.maximize else min(values, default=None)
        beside = f", the best trial had {best:.4g} there" if best is not None else ""
        return f"pruned at step {step}: {self._metric} {value:.4g}{beside}"

    def finish(self, trial: Trial, value: float) -> None:
        """Ends a trial with the metric's value."""
        self._study.tell(trial.handle, value)

    def prune(self, trial: Trial) -> None:
        """Ends a trial that was stopped; its last reported value counts."""
        self._study.tell(trial.handle, state=TrialState.PRUNED)

    def fail(self, trial: Trial) -> None:
        """Ends a trial that came to nothing; values like these are avoided, and the next start tries it again."""
        self._study.tell(trial.handle, state=TrialState.FAIL)

    def importances(self) -> dict[str, float]:
        """Returns the part of the metric's variance that each key explains (fANOVA, Hutter et al. 2014), largest first.

        Empty where too few trials finished, or all alike.
        """
        trials = self._trials(TrialState.COMPLETE)
        if len(trials) < max(10, 4 * len(self._spaces)) or len({trial.value for trial in trials}) < 2:
            return {}
        try:
            found = optuna.importance.get_param_importances(
                self._study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=self._settings.seed)
            )
        except (ValueError, RuntimeError, ImportError) as error:
            _log.debug("No importances: %s", error)
            return {}
        return {name: float(value) for name, value in found.items()}

    def _open(self, path: Path, maximize: bool) -> Any:
        try:
            self._storage = optuna.storages.RDBStorage(
                f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": _LOCKED_SECS}}
            )
        except Exception as error:  # SQLAlchemy's own, alembic's own, sqlite3's own.
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise UserError(
                f"{path}: cannot be opened as the study of a search: {reason}. Move it away, or choose another folder "
                "with hydra.sweep.dir=FOLDER."
            ) from error
        direction = "maximize" if maximize else "minimize"
        if _NAME in optuna.get_all_study_names(self._storage):
            return optuna.load_study(study_name=_NAME, storage=self._storage)
        return optuna.create_study(study_name=_NAME, storage=self._storage, direction=direction)

    def _compare(self, now: Mapping[str, Mapping[str, str]]) -> None:
        """Notes what the search is about, or refuses to go on with another one: its values could not be compared."""
        before = self._study.user_attrs
        changed = [
            f"{key}={before[part].get(key, '(nothing)')} there, {now[part].get(key, '(nothing)')} now"
            for part in now
            if part in before
            for key in sorted({*before[part], *now[part]})
            if before[part].get(key) != now[part].get(key)
        ]
        if changed:
            raise UserError(
                f"{self._path}: holds the study of another search: {'; '.join(changed)}. Values found under other "
                "conditions cannot be compared. Choose another folder with hydra.sweep.dir=FOLDER, or repeat the "
                "command as it was."
            )
        for part, values in now.items():
            if part not in before:
                self._study.set_user_attr(part, dict(values))

    def _trials(self, *states: TrialState) -> list[Any]:
        """Returns the trials in some states, or all, but for those whose job another one took over."""
        trials = self._study.get_trials(deepcopy=False)
        latest = {trial.user_attrs[_JOB]: trial.number for trial in trials if _JOB in trial.user_attrs}
        return [
            trial
            for trial in trials
            if (not states or trial.state in states)
            and latest.get(trial.user_attrs.get(_JOB), trial.number) == trial.number
        ]
