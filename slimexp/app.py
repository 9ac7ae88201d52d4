"""The command line: Hydra composes the configuration, `validation.validate` checks it, then the job starts.

Nothing heavy is imported here: TensorFlow and MLflow come with the job's module, once the configuration is known to
be valid. What a user can get wrong ends in one message and exit code 1, without a traceback unless HYDRA_FULL_ERROR=1
asks for it.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from slimexp import search_path
from slimexp.config import CONFIG_DIR, Config
from slimexp.errors import UserError
from slimexp.hydra_errors import explain
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.jobs.of_run import take_over
from slimexp.jobs.sources import find_sources
from slimexp.jobs.starting import (
    end_process,
    how_to_go_on,
    open_missing_streams,
    report,
    start,
    tensorflow_notes_to,
    wants_traceback,
)
from slimexp.sweep import grid, runner, search
from slimexp.sweep.plan import without_hydra
from slimexp.sweep.task import run_task
from slimexp.validation import validate

__all__ = ["Preflight", "main", "run"]

ConfigStore.instance().store(name="schema", node=Config)
search_path.register()
grid.register()
search.register()
_SWEEPERS = ("hydra_plugins.slimexp.GridSweeper", "hydra_plugins.slimexp.SearchSweeper")

# What the jobs of this process came to: one exit code each. They are kept here, since an exception that passes through
# Hydra is announced once more on its way.
_exit_codes: list[int] = []


class Preflight(Callback):
    """Checks a run before Hydra creates its folder, so that a typo leaves nothing behind.

    Hydra turns an Exception in a callback into a warning; SystemExit passes, so that is what ends the run here.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        sweeper = OmegaConf.select(config, "hydra.sweeper._target_")
        if sweeper not in _SWEEPERS:
            rule = "sweeps are run by hydra/sweeper=basic, the default, or hydra/sweeper=search."
            raise SystemExit(report(f"hydra.sweeper._target_={sweeper}: {rule}").exit_code)

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            take_over(config, start_dir=os.getcwd())
            # Asked of the original, which Hydra will ask as well: a copy would see the clock at another moment.
            run_dir = OmegaConf.select(config, "hydra.run.dir")
            checked = validate(without_hydra(config), start_dir=os.getcwd(), run_dir=run_dir)
            find_sources(checked)
            if checked.dry_run:
                raise SystemExit(_rehearse(checked))
        except UserError as error:
            raise SystemExit(report(error).exit_code) from error
        try:
            _make_run_dir(checked)
            with exclusive(Path(checked.run_dir)):
                pass  # Another run there is to keep its `.hydra` folder and its log; the job takes the lock for good.
        except BusyError as error:
            raise SystemExit(report(error).exit_code) from error
        except UserError as error:
            report(error)
            record = importlib.import_module("slimexp.jobs.record")
            record.record_failed_start(checked, config.hydra.overrides.task, str(error))
            raise SystemExit(1) from error


def run() -> NoReturn:
    """The program `slimexp`: `main`, and the end of its process."""
    open_missing_streams()
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int):  # Hydra's own, with a message for the screen.
            raise
        end_process(end.code)
    end_process(0)


def main() -> None:
    """Runs slimexp with the arguments of the command line and exits with its status."""
    os.environ["SLIMEXP_FULL_ERROR"] = str(int(wants_traceback()))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands every error on to us instead of printing it its own way.
    try:
        _hydra_main()
    except KeyboardInterrupt:
        sys.exit(report("interrupted", exit_code=130).exit_code)
    except Exception as error:  # Only composing, and what a sweep needs, can raise here: jobs report their own errors.
        if wants_traceback():
            raise
        sys.exit(report(explain(error)).exit_code)
    sys.exit(next((code for code in [*_exit_codes, *runner.exit_codes] if code), 0))


@hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="config")
def _hydra_main(cfg: DictConfig) -> None:
    now = HydraConfig.get()
    run_dir = Path(now.runtime.output_dir)
    if now.mode is RunMode.MULTIRUN:
        one_by_one = now.launcher._target_.endswith(".BasicLauncher")
        side_by_side = now.launcher._target_.endswith(".JoblibLauncher") and now.launcher.get("n_jobs") != 1
        run_task(
            Path(now.sweep.dir),
            run_dir,
            is_attached=runner.active() and one_by_one,
            num_gpus=cfg.sweep.gpus_per_job or (1 if side_by_side else None),
        )
        return
    outcome = start(
        lambda: validate(cfg, start_dir=hydra.utils.get_original_cwd(), run_dir=run_dir),
        list(now.overrides.task),
        run_dir,
        go_on=how_to_go_on(str(cfg.job.name), run_dir),
        show_traceback=False,
    )
    _exit_codes.append(outcome.exit_code)


def _rehearse(config: Config) -> int:
    """Checks a run as far as that can be done without running it, and returns the exit code."""
    with tensorflow_notes_to(Path(os.devnull)):
        dry_run = importlib.import_module("slimexp.jobs.dry_run")
    print(f"Dry run: ok: {dry_run.Rehearsal().check(config)}. Nothing was run.")
    return 0


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
