"""The command line: Hydra composes the configuration, `config.validate` checks it, then the job starts.

Nothing heavy is imported here: TensorFlow and MLflow come with the job's module, once the configuration is known to
be valid. What a user can get wrong ends in one message and exit code 1, without a traceback; HYDRA_FULL_ERROR=1 shows it.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from slimexp.config import CONFIG_DIR, Config, nearest, unknown_key, validate
from slimexp.errors import Interrupted, UserError

__all__ = ["Preflight", "main"]

_log = logging.getLogger("slimexp")
ConfigStore.instance().store(name="schema", node=Config)


class _Reported(Exception):
    """A job failed and has said so already; only the exit code is left to give."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class Preflight(Callback):
    """Checks a run before Hydra creates its folder, so that a typo leaves nothing behind.

    Hydra turns an Exception in a callback into a warning; SystemExit passes, so that is what ends the run here.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            checked = validate(_without_hydra(config), start_dir=os.getcwd())
            _make_run_dir(checked)
        except UserError as error:
            raise SystemExit(_report(error)) from error


def main() -> None:
    """Runs slimexp with the arguments of the command line and exits with its status."""
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands every error on to us instead of printing it its own way.
    try:
        _hydra_main()
    except _Reported as error:
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_report("interrupted", exit_code=130))
    except Exception as error:  # Only composing can raise here: what a job raises was reported above.
        if wants_traceback:
            raise
        sys.exit(_report(_explain(error)))


@hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="config")
def _hydra_main(cfg: DictConfig) -> None:
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    try:
        config = validate(cfg, start_dir=hydra.utils.get_original_cwd(), run_dir=run_dir)
        _job(config)(config)
    except UserError as error:
        _log.debug("", exc_info=True)
        raise _Reported(_fail(str(error), run_dir)) from error
    except (Interrupted, KeyboardInterrupt) as error:
        signum = getattr(error, "signum", 2)
        _log.warning("%s", error if str(error) else "Interrupted.")
        raise _Reported(128 + signum) from error
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise _Reported(_fail(f"unexpected {cause}", run_dir, unexpected=True)) from error


def _job(config: Config) -> Any:
    """Imports the job's function; TensorFlow and MLflow come in with it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notes; its errors still show.
    module, _, name = config.job._target_.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"job._target_={config.job._target_}: cannot be imported: {error}") from error


def _fail(message: str, run_dir: Path, *, unexpected: bool = False) -> int:
    """Says on the screen what went wrong, keeps the traceback in the run's log file."""
    full = os.environ.get("SLIMEXP_TRACEBACK") == "1"
    log_file = run_dir / "slimexp.log"
    try:
        with open(log_file, "a", encoding="utf-8") as file:
            file.write(f"error: {message}\n{traceback.format_exc()}")
    except OSError:
        full = full or unexpected
    if full:
        traceback.print_exc()
    elif unexpected:
        message += f"\nThis is a fault of slimexp or of code it was given. The traceback is in {log_file}."
    return _report(message)


def _report(error: object, exit_code: int = 1) -> int:
    print(f"slimexp: error: {error}", file=sys.stderr)
    return exit_code


def _without_hydra(config: DictConfig) -> DictConfig:
    """Returns the user's part of a composed configuration; callbacks get Hydra's own node as well."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _make_run_dir(config: Config) -> None:
    run_dir = Path(config.run_dir)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        probe = run_dir / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"run_dir={run_dir}: cannot be written ({error.strerror or error}). "
            "Choose a folder of your own: run_dir=PATH, or output_root=PATH for all runs."
        ) from error


def _explain(error: Exception) -> str:
    """Rewrites Hydra's account of a bad override: which key, which value, the rule, and the nearest real one."""
    cause = error.__cause__
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)) and cause.full_key:
        return unknown_key(cause.full_key)
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return f"{cause.full_key}: {str(cause).splitlines()[0]}"
    message = str(error).split("\nConfig search path:")[0].strip()
    missing = re.search(r"Could not find '([\w/]+)/(\w+)'", message)
    options = re.findall(r"\n\t(\S+)", message)
    if missing and options:
        group, option = missing.groups()
        return f"{group}={option}: there is no such option; the nearest is {nearest(option, options)}, of {', '.join(options)}."
    return message
