"""A run's folder, its place in the tracking store, and whether it goes on or starts anew."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slimexp.config import Config, Resume
from slimexp.errors import UserError
from slimexp.tracking import Tracker, provenance
from slimexp.tracking.params import flatten as flatten_params
from slimexp.tracking.tracker import RECORD_FILE
from slimexp.training.checkpoints import Checkpoints
from slimexp.validation import flatten

__all__ = [
    "FINGERPRINT_TAG",
    "earlier_run",
    "exclusive",
    "record_failed_start",
    "resume_step",
    "run_name",
    "say_what_changed",
    "start_tracking",
]

_log = logging.getLogger(__name__)

FINGERPRINT_TAG = "dataset.train.fingerprint"
# What may differ between a run and its continuation without a word: how far, how often, where to.
_FREE_TO_CHANGE = (
    "trainer.",
    "tracking.",
    "evaluation.",
    "run_dir",
    "output_root",
    "pipeline.threads",
    "pipeline.readers",
    "pipeline.queues.",
)
# What decides which images a step sees.
_ORDER_KEYS = ("seed", "dataset.", "preprocessing.", "pipeline.batch_size", "pipeline.shuffle")


@contextlib.contextmanager
def exclusive(run_dir: Path) -> Iterator[None]:
    """Holds the run's folder for this process alone.

    Raises:
        UserError: If another process is running in it.
    """
    with open(run_dir / ".lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"run_dir={run_dir}: another run is writing there now. Wait for it, or choose another folder."
            ) from None
        except OSError as error:  # Some network file systems have no locks.
            _log.warning("run_dir=%s cannot be locked (%s): do not start a second run there.", run_dir, error)
        yield


def resume_step(config: Config, checkpoints: Checkpoints) -> int | None:
    """Returns the step of the checkpoint to go on from, or None to start anew.

    Raises:
        UserError: If `trainer.resume` forbids what is there.
    """
    step = checkpoints.latest_step()
    if step is not None and config.trainer.resume is Resume.never:
        raise UserError(
            f"trainer.resume=never: {checkpoints.folder} has a checkpoint of step {step}. Set another run_dir, delete "
            "the folder, or go on from there with trainer.resume=auto."
        )
    if step is None and config.trainer.resume is Resume.must:
        raise UserError(
            f"trainer.resume=must: {checkpoints.folder} has no checkpoint to go on from. Set run_dir to the folder of "
            "the run that is meant, or start anew with trainer.resume=auto."
        )
    return step


def earlier_run(run_dir: Path) -> dict[str, Any]:
    """Returns what `run.json` says of the run that the folder belongs to; nothing if it cannot be read."""
    try:
        return json.loads((run_dir / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read (%s): the run becomes a new one in the tracking store.", RECORD_FILE, error)
        return {}


def say_what_changed(config: Config, earlier: Mapping[str, Any], fingerprint: str) -> None:
    """Says which settings and data a run that goes on does not share with its beginning."""
    now = flatten_params(flatten(config))
    before = earlier.get("params", {})
    changed = [key for key in now if before.get(key, now[key]) != now[key] and not key.startswith(_FREE_TO_CHANGE)]
    if changed:
        texts = ", ".join(f"{key} {before[key]} -> {now[key]}" for key in changed)
        _log.warning("Changed since the run was started: %s.", texts)
    old_fingerprint = earlier.get("tags", {}).get(FINGERPRINT_TAG, fingerprint)
    if old_fingerprint != fingerprint or any(key.startswith(_ORDER_KEYS) for key in changed):
        _log.warning("So the images come in another order, or are others, than without the stop.")


def start_tracking(
    config: Config, overrides: Sequence[str], step: int | None, earlier: Mapping[str, Any] | None = None
) -> Tracker:
    """Opens a run in the tracking store: the `earlier` one if it goes on from `step`, else a new one."""
    run_dir = Path(config.run_dir)
    earlier = earlier or {}
    tracker = Tracker.start(
        backend=config.tracking.backend.value,
        uri=config.tracking.uri,
        experiment=config.tracking.experiment,
        run_name=config.tracking.run_name or earlier.get("run_name") or run_name(config, overrides),
        run_dir=run_dir if run_dir.is_dir() else None,
        tags={**provenance.tags(provenance.collect(sys.argv, os.getcwd())), **config.tracking.tags},
        params=flatten(config),
        on_error=config.tracking.on_error.value,
        resume_run_id=earlier.get("run_id"),
        resume_step=step,
    )
    for name in ("config.yaml", "overrides.yaml"):  # As Hydra composed them; the params hold what they came to.
        if (run_dir / ".hydra" / name).is_file():
            tracker.log_artifact(run_dir / ".hydra" / name, "config")
    return tracker


def record_failed_start(config: Config, overrides: Sequence[str], message: str) -> None:
    """Leaves a FAILED run in the tracking store for a run whose folder cannot be used."""
    with contextlib.suppress(UserError):  # Its store is unusable too: then there is nothing to leave it in.
        start_tracking(config, overrides, None).finish("FAILED", message)


def run_name(config: Config, overrides: Sequence[str]) -> str:
    """Returns model, dataset and what else the command changed, e.g. `vgg16 digits threads=8`."""
    dataset = config.dataset["name"] if isinstance(config.dataset, dict) else config.dataset.name
    name = [config.model.name, str(dataset)]
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group, _, rest = key.partition(".")
        # Where things lie does not tell runs apart; model and dataset stand in the name already.
        if (group in ("model", "dataset", "job") and not rest) or group in (
            "run_dir",
            "output_root",
            "tracking",
            "hydra",
        ):
            continue
        if os.sep not in value:
            name.append(f"{key.rpartition('.')[2]}={value}")
    return " ".join(name)
