"""Which values a search tries next, and what seems not worth going on with: Optuna's samplers and pruners.

Imports Optuna, which is an extra.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from slimexp.config.search import Pruner, Sampler, SearchConfig
from slimexp.sweep.search_space import Space, combinations

__all__ = ["Chooser", "make_pruner", "texts_of"]

# Hyperband: "eta = 3 or 4" (Li et al., arXiv 1603.06560, section 2.6).
_REDUCTION = 3
# Spaces with no more combinations than this can be tried to their end.
_COUNTABLE = 10_000
# How often the sampler is asked again where it chose values that were tried.
_ATTEMPTS = 10


class Chooser:
    """Chooses values within spaces by what is known of those tried.

    Args:
        spaces: What to search.
        settings: How.
    """

    def __init__(self, spaces: Sequence[Space], settings: SearchConfig) -> None:
        self._spaces = list(spaces)
        self._settings = settings
        self._combinations = combinations(spaces, at_most=_COUNTABLE)
        self._distributions = {space.name: space.distribution() for space in spaces}

    def choose(self, known: Sequence[Any], direction: Any, num_jobs: int) -> dict[str, Any] | None:
        """Lets the sampler choose values that were not tried yet.

        Args:
            known: Optuna's trials that were tried, or run now.
            direction: Optuna's, in which the metric is better.
            num_jobs: How many jobs there are; a search that goes on draws what it would have drawn.

        Returns:
            The values by name as Optuna holds them; None if there are none that were not tried.
        """
        tried = {self._key(trial.params) for trial in known}
        untried = None
        if self._combinations is not None:
            untried = [params for params in self._combinations if self._key(params) not in tried]
            if not untried:
                return None
        with warnings.catch_warnings():
            # What they are about, `constant_liar`, has been there for years.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            for attempt in range(_ATTEMPTS):
                sampler = self._make_sampler(self._seed(num_jobs, attempt))
                study = optuna.create_study(direction=direction, sampler=sampler)
                study.add_trials([_as_seen(trial) for trial in known])
                params = dict(study.ask(self._distributions).params)
                # The same values give the same result: not worth a job.
                if self._key(params) not in tried:
                    return params
        if untried is not None:
            return dict(untried[np.random.default_rng(self._seed(num_jobs, _ATTEMPTS)).integers(len(untried))])
        return params

    def _key(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        values = texts_of(params, self._spaces)
        return tuple(values[name] for name in sorted(values))

    def _seed(self, num_jobs: int, attempt: int) -> int:
        """Returns a seed of the next trial's own."""
        return int(np.random.SeedSequence([self._settings.seed, num_jobs, attempt]).generate_state(1)[0])

    def _make_sampler(self, seed: int) -> Any:
        if self._settings.sampler is Sampler.random:
            return optuna.samplers.RandomSampler(seed=seed)
        # Trials side by side keep away from each other's values.
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=self._settings.startup_trials, constant_liar=True)


def make_pruner(settings: SearchConfig, first_step: int) -> Any:
    """Returns Optuna's pruner.

    Args:
        settings: Which, not `none`.
        first_step: The first step at which a trial is evaluated.
    """
    first_step = max(first_step, settings.prune_after_steps, 1)
    if settings.pruner is Pruner.median:
        return optuna.pruners.MedianPruner(n_startup_trials=max(settings.prune_after_trials, 1))
    if settings.pruner is Pruner.halving:
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=first_step, reduction_factor=_REDUCTION)
    return optuna.pruners.HyperbandPruner(min_resource=first_step, reduction_factor=_REDUCTION)


def texts_of(params: Mapping[str, Any], spaces: Sequence[Space]) -> dict[str, str]:
    """Returns values as text by name, in the order of the spaces."""
    return {space.name: space.value_text(params[space.name]) for space in spaces if space.name in params}


def _as_seen(trial: Any) -> Any:
    """Returns a trial as the sampler is to see it.

    Optuna's samplers pass over failed trials and would ask for much the same again, e.g. for learning rates at which
    the loss diverges; a trial pruned before its first value counts as worse than all others.
    """
    failed = trial.state == TrialState.FAIL
    return optuna.trial.create_trial(
        state=TrialState.PRUNED if failed else trial.state,
        value=trial.value,
        params=trial.params,
        distributions=trial.distributions,
        intermediate_values={} if failed else trial.intermediate_values,
    )
