"""The command line: Hydra composes the configuration, `validation.validate` checks it, then the job starts.

Nothing heavy is imported here: TensorFlow and MLflow come with the job's module, once the configuration is known to
be valid. What a user can get wrong ends in one message and exit code 1, without a traceback unless HYDRA_FULL_ERROR=1
asks for it.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import OverrideParseException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from slimexp.config import CONFIG_DIR, Config
from slimexp.errors import Interrupted, UserError
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.jobs.of_run import take_over
from slimexp.validation import unknown_key, validate

__all__ = ["Preflight", "main"]

ConfigStore.instance().store(name="schema", node=Config)


# What the jobs of this process came to: one exit code each. They are kept here, since an exception that passes through
# Hydra is announced once more on its way.
_exit_codes: list[int] = []
# What the user asked for. `main` sets HYDRA_FULL_ERROR for its own purposes, which processes of a sweep would inherit.
_wants_traceback = os.environ.get("SLIMEXP_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR")) == "1"


# The folder of the sweep that this process runs.
_sweep_dirs: list[Path] = []


class _JobFailedError(Exception):
    """A job of a sweep failed and has said so; its argument is the exit code."""


class Preflight(Callback):
    """Checks a run before Hydra creates its folder, so that a typo leaves nothing behind.

    Hydra turns an Exception in a callback into a warning; SystemExit passes, so that is what ends the run here.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        # `on_multirun_end` is not called when a job failed, so `main` does what is due then.
        with contextlib.suppress(OmegaConfBaseException):
            _sweep_dirs.append(Path(os.getcwd(), OmegaConf.select(config, "hydra.sweep.dir")))

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            take_over(config, start_dir=os.getcwd())
            # Asked of the original, which Hydra will ask as well: a copy would see the clock at another moment.
            run_dir = OmegaConf.select(config, "hydra.run.dir")
            checked = validate(_without_hydra(config), start_dir=os.getcwd(), run_dir=run_dir)
        except UserError as error:
            raise SystemExit(_report(error)) from error
        try:
            _make_run_dir(checked)
            with exclusive(Path(checked.run_dir)):
                pass  # Another run there is to keep its `.hydra` folder and its log; the job takes the lock for good.
        except BusyError as error:
            raise SystemExit(_report(error)) from error
        except UserError as error:
            _report(error)
            record = importlib.import_module("slimexp.jobs.record")
            record.record_failed_start(checked, config.hydra.overrides.task, str(error))
            raise SystemExit(1) from error


def main() -> None:
    """Runs slimexp with the arguments of the command line and exits with its status."""
    os.environ["SLIMEXP_FULL_ERROR"] = str(int(_wants_traceback))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands every error on to us instead of printing it its own way.
    try:
        try:
            _hydra_main()
        finally:
            _finish_sweep()
    except KeyboardInterrupt:
        sys.exit(_report("interrupted", exit_code=130))
    except _JobFailedError as error:
        sys.exit(error.args[0])
    except Exception as error:  # Only composing can raise here: what a job raises was reported before.
        if _wants_traceback:
            raise
        sys.exit(_report(_explain(error)))
    sys.exit(next((code for code in _exit_codes if code), 0))


@hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="config")
def _hydra_main(cfg: DictConfig) -> None:
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    code = _run_job(cfg, run_dir)
    _exit_codes.append(code)
    if code and HydraConfig.get().mode is RunMode.MULTIRUN:
        # The job may run in another process, which only an exception crosses; Hydra raises it when all jobs are done.
        raise _JobFailedError(code) if code < 128 else KeyboardInterrupt


def _run_job(cfg: DictConfig, run_dir: Path) -> int:
    """Runs one job and returns its exit code; everything that can go wrong is said here."""
    try:
        config = validate(cfg, start_dir=hydra.utils.get_original_cwd(), run_dir=run_dir)
        _start_tensorflow(run_dir / "slimexp.log")
        _job(config)(config, list(HydraConfig.get().overrides.task))
    except (Interrupted, KeyboardInterrupt) as error:
        how = str(error) or "interrupted"
        print(f"slimexp: {how}. To go on: the same command with run_dir={run_dir}", file=sys.stderr)
        return 128 + getattr(error, "signum", 2)
    except UserError as error:
        _keep_traceback(run_dir, error)
        return _report(error)
    except Exception as error:
        log_file = _keep_traceback(run_dir, error)
        return _report(
            f"unexpected {type(error).__name__}: {error}\n"
            f"This is a fault of slimexp or of code that it was given. The traceback is in {log_file}."
        )
    return 0


def _finish_sweep() -> None:
    """Says what a sweep of benchmarks came to."""
    for sweep_dir in _sweep_dirs:
        if any(sweep_dir.rglob("benchmark.json")):
            importlib.import_module("slimexp.jobs.benchmark_sweep").summarize(sweep_dir)


def _start_tensorflow(log_file: Path) -> None:
    """Imports TensorFlow; the notes that its C++ parts print at the start go to the log file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    screen = os.dup(2)
    try:
        with open(log_file, "ab") as file:
            os.dup2(file.fileno(), 2)
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()  # Looks for a GPU and its driver.
    finally:
        os.dup2(screen, 2)
        os.close(screen)


def _job(config: Config) -> Any:
    """Imports the job's function."""
    module, _, name = config.job._target_.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"job._target_={config.job._target_}: cannot be imported: {error}") from error


def _keep_traceback(run_dir: Path, error: BaseException) -> Path:
    """Writes the traceback to the run's log file, and to the screen if HYDRA_FULL_ERROR=1 asks for it."""
    log_file = run_dir / "slimexp.log"
    with contextlib.suppress(OSError), open(log_file, "a", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    if _wants_traceback:
        traceback.print_exception(error)
    return log_file


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
        if cause.full_key.startswith("model.network."):
            return (
                f"{cause.full_key}: an argument that the file does not name is added with a plus: +{cause.full_key}=..."
            )
        return unknown_key(cause.full_key)
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return f"{cause.full_key}: {str(cause).splitlines()[0]}"
    message = str(error).split("\nConfig search path:")[0].strip()
    if isinstance(error, OverrideParseException):
        return (
            f"{message.splitlines()[0]}\nA value with blanks, quotes, '=', '~' or letters beyond ASCII is quoted for "
            "Hydra, and once more for the shell: 'dataset.root=\"my photos\"'."
        )
    missing = re.search(r"Could not find '([\w/]+)/(\w+)'", message)
    options = re.findall(r"\n\t(\S+)", message)
    if missing and options:
        group, option = missing.groups()
        close = difflib.get_close_matches(option, options, n=1, cutoff=0.7)
        guess = f"the nearest is {close[0]}, of" if close else "there are"
        return f"{group}={option}: there is no such option; {guess} {', '.join(options)}."
    return message
