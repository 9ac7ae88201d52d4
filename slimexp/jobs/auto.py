"""Puts numbers in the place of `pipeline.threads=auto` and `pipeline.readers=auto`, once a run."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from slimexp.config import Config
from slimexp.dataset.split import AnySplit
from slimexp.jobs import build
from slimexp.pipeline.doctor.auto import choose_counts
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus
from slimexp.tracking import Tracker
from slimexp.validation import flatten

__all__ = ["AUTO", "AUTO_KEYS", "resolve_auto", "skips_bad_images"]

AUTO = "auto"
AUTO_KEYS = ("pipeline.threads", "pipeline.readers")
_log = logging.getLogger("slimexp")


def resolve_auto(
    config: Config,
    split: AnySplit,
    preprocessing: Any,
    tracker: Tracker,
    earlier: Mapping[str, Any] | None = None,
    *,
    check_stop: Callable[[], None] = lambda: None,
) -> Config:
    """Returns the configuration with counts that were measured, or found in the record of the run that goes on.

    The counts become params of the run, and how they were found a tag, e.g. `auto.pipeline.threads`.

    Args:
        config: Checked.
        split: The training examples.
        preprocessing: Theirs.
        tracker: Records the run.
        earlier: What `run.json` says of the run that goes on.
        check_stop: Called a few times a second while it is measured; what it raises ends that.

    Raises:
        UserError: If the pipeline's settings do not fit the split, or an image cannot be read.
    """
    wanted = [key for key in AUTO_KEYS if _value(config, key) == AUTO]
    counts: dict[str, int] = {}
    for key in wanted:
        tags, params = (earlier or {}).get("tags", {}), (earlier or {}).get("params", {})
        if _tag(key) in tags and str(params.get(key, "")).isdecimal():
            counts[key] = int(params[key])
            _log.info("%s=auto: %d, as at the start of this run.", key, counts[key])
    missing = [key for key in wanted if key not in counts]
    if missing:
        # A count that stands while the other is looked for, or is known already.
        start = {key: counts.get(key, whole_cpus(available_cpus())) for key in wanted}
        choices = choose_counts(
            split,
            preprocessing=preprocessing,
            settings=build.pipeline_settings(_with_counts(config, start)),
            seed=config.seed,
            threads="pipeline.threads" in missing,
            readers="pipeline.readers" in missing,
            skip_bad=skips_bad_images(config),
            check_stop=check_stop,
        )
        for choice in choices:
            _log.info("%s", choice)
            counts[choice.key] = choice.value
        tracker.set_tags({_tag(choice.key): str(choice) for choice in choices})
    if wanted:
        tracker.log_params(counts)
    return _with_counts(config, counts)


def skips_bad_images(config: Config) -> bool:
    """Tells whether files that hold no picture are left out instead of refused."""
    return flatten(config).get("dataset.on_bad_image") == "skip"


def _with_counts(config: Config, counts: Mapping[str, int]) -> Config:
    fields: dict[str, Any] = {key.rpartition(".")[2]: count for key, count in counts.items()}
    return dataclasses.replace(config, pipeline=dataclasses.replace(config.pipeline, **fields)) if fields else config


def _value(config: Config, key: str) -> Any:
    return getattr(config.pipeline, key.rpartition(".")[2])


def _tag(key: str) -> str:
    return f"auto.{key}"
