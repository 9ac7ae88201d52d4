"""From the overrides of a sweep's jobs to checked configurations, before anything is run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from slimexp.config import Config
from slimexp.errors import UserError
from slimexp.jobs.of_run import take_over
from slimexp.sweep.identity import hash_of, identity, job_name, swept_values
from slimexp.validation import flatten, validate

__all__ = ["PlannedJob", "lists_swept", "masked", "plan_job", "quoted", "without_hydra"]


@dataclasses.dataclass
class PlannedJob:
    """A job that is to be run.

    Attributes:
        number: Its number in the sweep.
        overrides: What its command sets.
        swept: The values of the swept keys, as text.
        subdir: Its folder, relative to the sweep's.
        name: What it is called.
        config: Its configuration; None if that is wrong.
        values: The same as plain values, as `process.py` takes them.
        identity: What it is known by.
        hash: The hash of that.
        logging: How Hydra is to set up the log, for `logging.config.dictConfig`.
        verbose: Hydra's `hydra.verbose`.
        error: What is wrong with it; None if it can be run.
        why: Why it is started though the sweep was run before, e.g. `it had failed`.
    """

    number: int
    overrides: list[str]
    swept: dict[str, str]
    subdir: str
    name: str
    config: Config | None = None
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    identity: dict[str, Any] = dataclasses.field(default_factory=dict)
    hash: str = ""
    logging: dict[str, Any] = dataclasses.field(default_factory=dict)
    verbose: Any = False
    error: str | None = None
    why: str = ""


def plan_job(
    context: HydraContext,
    master: DictConfig,
    overrides: Sequence[str],
    *,
    number: int,
    keys: Sequence[str],
    start_dir: Path,
    sweep_dir: Path,
    explain: Callable[[Exception], str],
    hide: Callable[[str, str], str],
) -> PlannedJob:
    """Composes and checks one job; what is wrong with it is in its `error`.

    Args:
        context: Hydra's.
        master: The sweep's configuration.
        overrides: The job's.
        number: Its number.
        keys: The keys that the sweep is over.
        start_dir: The folder the user started in.
        sweep_dir: The sweep's folder.
        explain: Turns Hydra's errors into messages.
        hide: Returns a swept key's value as it may be kept and shown.
    """
    own = [override for override in overrides if not override.startswith("hydra")]
    swept = {key: hide(key, value) for key, value in swept_values(own, keys).items()}
    job = PlannedJob(number, own, swept, str(number), job_name("", swept, keys).strip() or f"job {number}")
    try:
        here = f"hydra.sweep.dir={quoted(str(sweep_dir))}"
        config = context.config_loader.load_sweep_config(master, [*overrides, here])
        with _hydra_config_of(config, number):
            if config.job.reads is None and any(override.startswith("run_dir=") for override in own):
                raise UserError(
                    f"run_dir={config.run_dir}: each job of a sweep has a folder of its own, in that of the sweep. Set "
                    "hydra.sweep.dir=PATH for that."
                )
            take_over(config, start_dir=start_dir)
            job.subdir = os.path.normpath(str(OmegaConf.select(config, "hydra.sweep.subdir")))
            runtime = config.hydra.runtime
            with read_write(runtime), open_dict(runtime):
                runtime.output_dir = str(sweep_dir / job.subdir)
            plain = without_hydra(config)
            job.config = validate(plain, start_dir=start_dir, run_dir=sweep_dir / job.subdir)
            job.values = _plain(plain)
            job.logging = _plain(config.hydra.job_logging)
            verbose = config.hydra.verbose
            job.verbose = OmegaConf.to_container(verbose) if OmegaConf.is_config(verbose) else verbose
    except UserError as error:
        job.error = str(error)
        return job
    except (HydraException, OmegaConfBaseException) as error:
        job.error = explain(error)
        return job
    job.name = job_name(job.config.model.name, swept, keys)
    job.identity = {**identity(job.config), **_checkpoint_now(job.config)}
    job.hash = hash_of(job.identity)
    return job


def without_hydra(config: DictConfig) -> DictConfig:
    """Returns the user's part of a composed configuration."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def masked(overrides: Iterable[str]) -> list[str]:
    """Returns overrides as they may be kept and shown, without passwords."""
    from slimexp.tracking.masking import mask_command

    return [shlex.split(mask_command([override]))[0] if override else "" for override in overrides]


def lists_swept(master: DictConfig, overrides: Sequence[Override]) -> Iterator[str]:
    """Yields the keys that hold a list and are swept over by single values, which is seldom what is meant."""
    for override in overrides:
        if not override.is_sweep_override() or not override.is_discrete_sweep():
            continue
        with contextlib.suppress(OmegaConfBaseException):
            now = OmegaConf.select(master, override.key_or_group)
            values = list(override.sweep_string_iterator())
            if OmegaConf.is_list(now) and not any(value.startswith("[") for value in values):
                yield f"{override.key_or_group}={','.join(values)}"


def quoted(value: str) -> str:
    """Returns a text as a value of Hydra's override grammar."""
    # Backslashes count as escapes before a quote only.
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value) + "'"


def _checkpoint_now(config: Config) -> dict[str, str]:
    """Returns which checkpoint a job would read now: a run that has gone on since makes it another job."""
    path = flatten(config).get(config.job.reads) if config.job.reads else None
    with contextlib.suppress(OSError, IndexError):
        return {"checkpoint": (Path(str(path)) / "checkpoint").read_text(encoding="utf-8").splitlines()[0]}
    return {}


@contextlib.contextmanager
def _hydra_config_of(config: DictConfig, number: int) -> Iterator[None]:
    """Makes a job's configuration the one that `${hydra:...}` refers to."""
    holder = HydraConfig.instance()
    before = holder.cfg
    with read_write(config), open_dict(config):
        config.hydra.job.id = config.hydra.job.num = number
    holder.set_config(config)
    try:
        yield
    finally:
        holder.cfg = before


def _plain(config: DictConfig) -> dict[str, Any]:
    values = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return _escaped(values)


def _escaped(value: Any) -> Any:
    """Keeps a text that looks like an interpolation from being taken for one when it is read again."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
