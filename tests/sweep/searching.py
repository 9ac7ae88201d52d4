"""Settings of searches that are small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

from slimexp.config.search import Pruner, Sampler, SearchConfig


def settings(**changes: Any) -> SearchConfig:
    values = {
        "trials": 4,
        "batch": None,
        "sampler": Sampler.random,
        "startup_trials": 3,
        "seed": 0,
        "pruner": Pruner.none,
        "prune_after_trials": 1,
        "prune_after_steps": 0,
    }
    return SearchConfig(**{**values, **changes})
