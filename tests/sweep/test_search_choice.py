"""The choice of values, by trials that are made up; no study lies on a disk here."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from optuna.study import StudyDirection
from optuna.trial import TrialState

from slimexp.config.search import Pruner, Sampler
from slimexp.sweep.search_choice import Chooser, make_pruner, texts_of
from slimexp.sweep.search_space import split
from tests.sweep.searching import settings


def spaces_of(*overrides: str) -> Any:
    return split(OverridesParser.create().parse_overrides(list(overrides)))[1]


def tried(spaces: Any, params: dict[str, Any]) -> Any:
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE,
        value=0.5,
        params=params,
        distributions={space.name: space.distribution() for space in spaces},
    )


@pytest.mark.parametrize("sampler", list(Sampler), ids=lambda sampler: sampler.name)
def test_each_combination_is_chosen_once(sampler: Sampler) -> None:
    spaces = spaces_of("optimizer=adam,momentum", "pipeline.threads=1,2,4")
    chooser = Chooser(spaces, settings(sampler=sampler))
    known: list[Any] = []
    while (params := chooser.choose(known, StudyDirection.MAXIMIZE, len(known))) is not None:
        known.append(tried(spaces, params))
    assert len({tuple(texts_of(trial.params, spaces).items()) for trial in known}) == len(known) == 6


def test_the_seed_and_the_number_of_jobs_decide_what_is_drawn() -> None:
    spaces = spaces_of("learning_rate.initial=tag(log, interval(1e-4, 1e-1))")

    def draw(seed: int, num_jobs: int) -> Any:
        return Chooser(spaces, settings(seed=seed)).choose([], StudyDirection.MAXIMIZE, num_jobs)

    assert draw(0, 3) == draw(0, 3)
    assert draw(0, 3) != draw(0, 4)
    assert draw(0, 3) != draw(1, 3)


@pytest.mark.parametrize(
    ("pruner", "kind"),
    [
        (Pruner.median, "MedianPruner"),
        (Pruner.halving, "SuccessiveHalvingPruner"),
        (Pruner.hyperband, "HyperbandPruner"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_pruner_is_the_one_that_was_asked_for(pruner: Pruner, kind: str) -> None:
    assert type(make_pruner(settings(pruner=pruner), 0)).__name__ == kind
