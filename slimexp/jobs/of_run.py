"""Jobs that work on a trained run: they take over its configuration, so that nothing has to be said twice.

A job whose option says `reads: evaluation.checkpoint` works on what that key names: a run's folder, one of its
checkpoints, or a checkpoint from elsewhere. Nothing heavy is imported here: `app.py` asks before there is a run.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from slimexp.config import GROUP_SCHEMAS, Config
from slimexp.errors import UserError
from slimexp.wrong_values import explain_value

__all__ = ["RESOLVED_FILE", "find_run", "recorded_task", "take_over", "write_resolved"]

RESOLVED_FILE = ".hydra/resolved.yaml"
# What a run is made of. Where its results are recorded, and what single jobs do, are the command's own.
_TAKEN = (
    "dataset",
    "model",
    "preprocessing",
    "optimizer",
    "learning_rate",
    "loss",
    "pipeline",
    "trainer",
    "evaluation",
    "seed",
)
# A group that is chosen on the command line brings what its options choose along.
_BRINGS = {"model": ("preprocessing",), "experiment": _TAKEN}


def write_resolved(config: Config, *, image_size: int, task: str) -> None:
    """Writes what a run came to, with absolute paths and measured counts, for the jobs that work on it later.

    Args:
        config: Checked.
        image_size: The side of the network's images in pixels, which may depend on the dataset.
        task: The dataset's: `single` or `multi`.
    """
    values = {name: _plain(getattr(config, name)) for name in _TAKEN}
    values["model"]["image_size"] = image_size
    values["task"] = task
    path = Path(config.run_dir) / RESOLVED_FILE
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(OmegaConf.to_yaml(OmegaConf.create(values)), encoding="utf-8")
    temporary.replace(path)


def recorded_task(run: Path) -> str | None:
    """Returns the task that a run was trained for, `single` or `multi`; None if it is of a version that kept none."""
    task = _read(run / RESOLVED_FILE).get("task")
    return None if task is None else str(task)


def find_run(path: str | Path) -> Path | None:
    """Returns the folder of the run that a path belongs to.

    Args:
        path: The folder itself, one of its folders of checkpoints, or the prefix of a checkpoint there.

    Returns:
        The folder; None if the path belongs to no run.
    """
    path = Path(path)
    return next((folder for folder in (path, *path.parents[:2]) if (folder / RESOLVED_FILE).is_file()), None)


def take_over(config: DictConfig, *, start_dir: str | Path) -> None:
    """Gives a job that works on a run that run's configuration, with the command's own overrides on top.

    The key that the job reads then names the run's checkpoints, and `run_dir` a folder of the job's own within the
    run, where it named the run itself. Other jobs, and checkpoints that belong to no run, are left as they are.

    Args:
        config: As Hydra composed it, with its own node; changed in place.
        start_dir: The folder the user started in.

    Raises:
        UserError: If the job is given nothing to work on, or a folder that is no run's.
    """
    key, job = OmegaConf.select(config, "job.reads"), config.job.name
    if key is None:
        return
    keys = [str(override).partition("=")[0].lstrip("+~") for override in config.hydra.overrides.task]
    named = OmegaConf.select(config, key)
    if named is None and "run_dir" not in keys:
        raise UserError(
            f"job={job}: say on what: run_dir=FOLDER for a run of job=train, or {key}=PATH for one of its checkpoints; "
            f"for any other checkpoint {key}=PATH with model=NAME, dataset=NAME and their keys."
        )
    path = Path(os.path.normpath(Path(start_dir) / Path(str(named or config.run_dir)).expanduser()))
    run = find_run(path)
    if run is None and OmegaConf.select(config, "evaluation.follow") and job == "evaluate":
        run = _wait_for_run(path, OmegaConf.select(config, "evaluation.timeout_secs"))
    if run is None and named is None:
        found = "is no folder of a run that was trained" if path.is_dir() else "there is no such folder"
        raise UserError(f"run_dir={config.run_dir}: {found}; job={job} needs one, or {key}=PATH of a checkpoint.")
    if run is None:
        return
    stored = _read(run / RESOLVED_FILE)
    taken = _taken(stored, keys)
    own = {override: OmegaConf.select(config, override) for override in keys if override.partition(".")[0] in taken}
    with read_write(config), open_dict(config):
        for group, value in taken.items():
            config[group] = _node(run, group, _over(config[group], value))
        for override, value in own.items():
            OmegaConf.update(config, override, value, force_add=True)
        OmegaConf.update(config, key, str(run / "checkpoints" if path == run else path), merge=False)
        if named is None:
            config.run_dir = str(run / job)


def _wait_for_run(path: Path, timeout_secs: float | None) -> Path | None:
    """Returns the run once its training has come so far as to say what it is; None if there is something else."""
    # A folder with checkpoints belongs to no run of ours: there is nothing to wait for.
    if any(path.glob("*.index")) or path.is_file() or path.with_name(f"{path.name}.index").is_file():
        return None
    print(f"Waiting for the run in {path} to begin. Ctrl-C ends this.", file=sys.stderr, flush=True)
    began = time.monotonic()
    while (run := find_run(path)) is None:
        if timeout_secs is not None and time.monotonic() - began > timeout_secs:
            raise UserError(
                f"evaluation.follow=true: no run has begun in {path} within {timeout_secs:g} s "
                "(evaluation.timeout_secs). Start the training with that run_dir, or look at the path."
            )
        time.sleep(0.5)
    return run


def _taken(stored: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    chosen = {key for key in keys if "." not in key and key != "seed"}
    chosen.update(*(_BRINGS.get(key, ()) for key in chosen))
    return {group: value for group, value in stored.items() if group in _TAKEN and group not in chosen}


def _over(now: Any, stored: Any) -> Any:
    """Returns a stored group; keys that it lacks, since it is of an earlier version, as they are now."""
    if not isinstance(now, DictConfig) or now.get("_target_") != stored.get("_target_"):
        return stored
    # Whole where a mapping is free-form: its keys of now are another option's.
    kept = {key: value for key, value in now.items() if key not in stored}
    return {**kept, **stored}


def _node(run: Path, group: str, value: Any) -> Any:
    schema = GROUP_SCHEMAS.get(group)
    try:
        return value if schema is None else OmegaConf.merge(OmegaConf.structured(schema), value)
    except OmegaConfBaseException as error:
        reason = explain_value(error, group)
        raise UserError(f"{run / RESOLVED_FILE}: {group} is not as this version of slimexp has it: {reason}") from error


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = OmegaConf.to_container(OmegaConf.create(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: the run's configuration cannot be read: {error}") from error
    if not isinstance(values, Mapping):
        raise UserError(f"{path}: the run's configuration is damaged: it holds no mapping.")
    return {str(key): value for key, value in values.items()}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value
