"""A run's folder, its place in the tracking store, and whether it goes on or starts anew."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slimexp.config import Config, Resume
from slimexp.config.fields import show
from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.dataset.summary import class_counts, fingerprint
from slimexp.errors import UserError
from slimexp.jobs.auto import AUTO, AUTO_KEYS
from slimexp.pipeline.doctor.cpus import available_cpus
from slimexp.pipeline.settings import QUEUE_NAMES
from slimexp.sweep import membership
from slimexp.tracking import Tracker, provenance, read_metrics
from slimexp.tracking.masking import mask_settings, mask_tree
from slimexp.tracking.params import flatten as flatten_params
from slimexp.tracking.record import RECORD_FILE, read_record
from slimexp.tracking.run import METRICS_FILE
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.signals import StopSignals
from slimexp.validation import flatten

__all__ = [
    "FINGERPRINT_TAG",
    "changed_settings",
    "earlier_run",
    "log_data",
    "record_failed_start",
    "recorded",
    "refuse_other_job",
    "resume_step",
    "run_name",
    "say_what_changed",
    "start_tracking",
]

_log = logging.getLogger(__name__)

FINGERPRINT_TAG = "dataset.train.fingerprint"
# What may differ between a run and its continuation without a word: how far, how often, where to.
_FREE_TO_CHANGE = (
    *(f"trainer.{key}" for key in ("max_", "epochs", "save_", "log_", "eval_", "resume", "check_numerics")),
    *(f"trainer.{key}" for key in ("keep_best", "best_direction", "early_stop_patience")),
    *("tracking.", "evaluation.", "benchmark.", "run_dir", "output_root", "job.", "sweep.", "dry_run"),
    *(f"pipeline.{key}" for key in ("name", "threads", "readers")),
    *(f"pipeline.queues.{name}.capacity" for name in QUEUE_NAMES),
)
# What decides which images a step sees.
_ORDER_KEYS = (
    "seed",
    "dataset.",
    "preprocessing.",
    "pipeline.batch_size",
    "pipeline.shuffle",
    "pipeline.queues.read.min",
)


def resume_step(config: Config, checkpoints: Checkpoints, earlier: Mapping[str, Any]) -> int | None:
    """Returns the step of the checkpoint to go on from, or None to start anew.

    Raises:
        UserError: If `trainer.resume` forbids what is there, or it is another network's.
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
    before = earlier.get("params", {}).get("model.name", config.model.name)
    if step is not None and before != config.model.name:
        raise UserError(
            f"model={config.model.name}: run_dir={config.run_dir} holds a run of model={before}. Go on with that, or "
            "choose another run_dir."
        )
    key = "restore.checkpoint"
    began_from = earlier.get("params", {}).get(key, "null")
    asked = config.restore.checkpoint
    if step is not None and earlier and asked is not None and flatten_params(flatten(config))[key] != began_from:
        origin = "initial values" if began_from == "null" else began_from
        raise UserError(
            f"{key}={asked}: run_dir={config.run_dir} holds a run that began from {origin} and is at step "
            f"{step}. To go on with that, leave {key} as it was; to start from the other checkpoint, "
            "choose another run_dir."
        )
    return step


def refuse_other_job(config: Config, earlier: Mapping[str, Any]) -> None:
    """Raises an error if the folder's run is of another job, whose record this one would replace."""
    before = earlier.get("params", {}).get("job.name", config.job.name)
    if before != config.job.name:
        raise UserError(
            f"run_dir={config.run_dir}: holds a run of job={before}, whose record this one would replace. Choose "
            "another run_dir, or leave it out for a new one."
        )


def earlier_run(run_dir: Path) -> dict[str, Any]:
    """Returns what `run.json` says of the run that the folder belongs to; nothing if there is none."""
    try:
        return read_record(run_dir / RECORD_FILE)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read (%s): the run becomes a new one in the tracking store.", RECORD_FILE, error)
        return {}


def changed_settings(config: Config, earlier: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the settings that `config` does not share with an earlier run, but for those that change no result."""
    now = flatten_params(flatten(config))
    before = earlier.get("params", {})
    return {
        key: (before[key], value)
        for key, value in now.items()
        if key in before and before[key] != value and not key.startswith(_FREE_TO_CHANGE)
    }


def say_what_changed(config: Config, earlier: Mapping[str, Any], fingerprint: str) -> None:
    """Says which settings and data a run that goes on does not share with its beginning."""
    changed = changed_settings(config, earlier)
    if changed:
        texts = ", ".join(f"{key} {before} -> {now}" for key, (before, now) in changed.items())
        _log.warning("Changed since the run was started: %s.", texts)
    old_fingerprint = earlier.get("tags", {}).get(FINGERPRINT_TAG, fingerprint)
    if old_fingerprint != fingerprint or any(key.startswith(_ORDER_KEYS) for key in changed):
        _log.warning("So the images come in another order, or are others, than without the stop.")


@contextlib.contextmanager
def recorded(
    config: Config, overrides: Sequence[str], step: int | None, earlier: Mapping[str, Any], signals: StopSignals
) -> Iterator[Tracker]:
    """Records what is done within the block as a run: FINISHED, FAILED on an error, KILLED after a signal."""
    with signals.deferred():
        tracker = start_tracking(config, overrides, step, earlier)
    try:
        signals.check()
        yield tracker
    except BaseException as error:
        signals.hold()
        tracker.__exit__(type(error), error, error.__traceback__)
        raise
    signals.hold()
    tracker.finish("FINISHED")


def start_tracking(
    config: Config, overrides: Sequence[str], step: int | None, earlier: Mapping[str, Any] | None = None
) -> Tracker:
    """Opens a run in the tracking store.

    It is the earlier run of the folder if that goes on from the checkpoint of `step`, or was killed before its first
    one. Where it had gone on beyond that step with other settings, it is a new run, so that neither has the other's
    metrics.
    """
    run_dir = Path(config.run_dir)
    earlier = earlier or {}
    was_killed = earlier.get("status") == "RUNNING"  # The folder's lock is ours: nobody runs it now.
    goes_on = step is not None or was_killed
    if goes_on and changed_settings(config, earlier) and _last_step(run_dir) > (step or 0):
        _log.warning("The run had gone on with other settings: from here it is a new one in the tracking store.")
        goes_on = False
    resumed = earlier if goes_on else {}
    sweep = membership.current()
    origin = provenance.collect(sys.argv, os.getcwd(), available_cpus())
    tracker = Tracker.start(
        backend=config.tracking.backend.value,
        uri=config.tracking.uri,
        experiment=config.tracking.experiment,
        run_name=_name(config, overrides, resumed),
        run_dir=run_dir if run_dir.is_dir() else None,
        tags={
            **provenance.tags(origin),
            **(sweep.tags if sweep else {}),
            **config.tracking.tags,
        },
        # A param cannot be changed: these get theirs once they are found.
        params={key: value for key, value in flatten(config).items() if key not in AUTO_KEYS or value != AUTO},
        on_error=config.tracking.on_error.value,
        resume_run_id=resumed.get("run_id"),
        resume_step=step if step is not None or not goes_on else 0,
        stale_run_id=earlier.get("run_id") if was_killed and not goes_on else None,
        tensorboard=config.tracking.tensorboard,
        events_max_bytes=config.tracking.events_max_bytes,
        system_metrics=show(config.tracking.system_metrics).lower(),
        system_every_secs=config.tracking.system_every_secs,
    )
    if run_dir.is_dir():
        for name in ("config.yaml", "overrides.yaml"):  # As Hydra composed them; the params hold what they came to.
            _log_settings(tracker, run_dir / ".hydra" / name)
        for path in provenance.write_diffs(origin, run_dir / "code"):
            tracker.log_artifact(path, "code")
    if sweep and sweep.numbers and not resumed:
        tracker.log_metrics(0, sweep.numbers)  # The store sorts params as text: 1, 16, 2.
    return tracker


def log_data(tracker: Tracker, data: Dataset) -> str:
    """Records which data a run uses: the fingerprint as a tag, both splits as datasets of the run.

    Returns:
        The fingerprint of the training examples.
    """
    digest = fingerprint(data.train)
    tracker.set_tags({FINGERPRINT_TAG: digest})
    splits = [("train", data.train, digest, data.name)]
    if data.eval is not None:
        eval_digest = fingerprint(data.eval)
        # Of two with the same name and digest a store keeps one.
        splits.append(("eval", data.eval, eval_digest, data.name if eval_digest != digest else f"{data.name} (eval)"))
    for context, split, split_digest, name in splits:
        tracker.log_dataset(
            name=name,
            context=context,
            digest=split_digest,
            source=split.source,
            num_examples=len(split),
            num_classes=data.num_classes,
            task=data.task,
            counts=_counts(data, split),
        )
    return digest


def _counts(data: Dataset, split: AnySplit) -> dict[str, int] | None:
    if isinstance(split, RecordSplit):
        return None
    return dict(zip(data.class_names, class_counts(split, data.num_classes).tolist(), strict=True))


def _log_settings(tracker: Tracker, path: Path) -> None:
    """Sends a file of Hydra's; one with a secret in it as a copy without."""
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        # Read as YAML, since a value there may go on over lines, and an override has quotes within quotes.
        content = yaml.safe_load(text)
        clean = mask_tree(content)
        masked = text if clean == content else yaml.safe_dump(clean, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        masked = mask_settings(text)
    if masked != text:
        path = path.parent / "masked" / path.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(masked, encoding="utf-8")
    tracker.log_artifact(path, "config")


def _name(config: Config, overrides: Sequence[str], resumed: Mapping[str, Any]) -> str:
    """Returns what a run is called: what the user says, and what tells it from the others of its sweep."""
    asked, sweep = config.tracking.run_name, membership.current()
    if sweep is not None:
        return f"{asked} {sweep.name}" if asked else sweep.name
    return asked or resumed.get("run_name") or run_name(config, overrides)


def _last_step(run_dir: Path) -> int:
    path = run_dir / METRICS_FILE
    return max((row.step for row in read_metrics(path)), default=0) if path.is_file() else 0


def record_failed_start(config: Config, overrides: Sequence[str], message: str) -> None:
    """Leaves a FAILED run in the tracking store for a run whose folder cannot be used."""
    with contextlib.suppress(UserError):  # Its store is unusable too: then there is nothing to leave it in.
        start_tracking(config, overrides, None).finish("FAILED", message)


def run_name(config: Config, overrides: Sequence[str]) -> str:
    """Returns the job but for training, model, dataset and what else the command changed: `vgg16 digits threads=8`."""
    dataset = config.dataset["name"] if isinstance(config.dataset, dict) else config.dataset.name
    name = [*([] if config.job.name == "train" else [config.job.name]), config.model.name, str(dataset)]
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
