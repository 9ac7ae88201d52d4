"""The default sweeper: every combination of the swept values is a job."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from slimexp.errors import UserError
from slimexp.sweep import plugins
from slimexp.sweep.runner import SweepRunner

__all__ = ["GridSweeper", "register"]


class GridSweeper(Sweeper):
    """Runs every combination; does what Hydra's own sweeper of the name `basic` does, through a `SweepRunner`.

    Args:
        max_batch_size: How many jobs are handed to the launcher at a time; None for all.
        params: What a preset sweeps, by key; what the command says of a key replaces it.
    """

    def __init__(self, max_batch_size: int | None = None, params: Mapping[str, str] | None = None) -> None:
        if max_batch_size is not None and max_batch_size < 1:
            raise UserError(f"hydra.sweeper.max_batch_size={max_batch_size}: must be 1 or more, or null.")
        self.max_batch_size = max_batch_size
        self.params = dict(params or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> None:
        """Runs the jobs that `params` and the command line name."""
        assert self.hydra_context is not None
        assert self.config is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        params = [f"{key}={value}" for key, value in self.params.items()]
        overrides = {o.get_key_element(): o for o in parser.parse_overrides([*params, *arguments])}
        values = [_values(override) for override in overrides.values()]
        swept = [key for key, choices in zip(overrides, values, strict=True) if len(set(choices)) > 1]
        runner = SweepRunner(
            hydra_context=self.hydra_context,
            config=self.config,
            launcher=self.launcher,
            arguments=arguments,
        )
        runner.warn_about_lists(list(overrides.values()))
        planned = runner.plan(list(itertools.product(*values)), swept=[key.lstrip("+~") for key in swept])
        if runner.dry_run:
            runner.rehearse(planned)
            return
        runner.refuse_errors(planned)
        runner.leave_out_others(planned)
        runner.announce(planned)
        with runner:
            size = self.max_batch_size or len(planned)
            for start in range(0, len(planned), size):
                if runner.stopping:
                    break
                runner.run(planned[start : start + size])


def _values(override: Override) -> list[str]:
    """Returns what an override comes to, one text for each of its values."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [override.input_line or f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise UserError(
            f"{override.input_line}: has no list of values. Give one, e.g. {key}=0.1,0.01, or let hydra/sweeper=search "
            "choose within the interval."
        )
    values = [f"{key}={value}" for value in override.sweep_string_iterator()]
    if not values:
        raise UserError(
            f"{override.input_line}: comes to no value at all, so there is no job. range(1, 4) is 1, 2, 3, and "
            "glob(...) has to match one of the options."
        )
    return values


@dataclasses.dataclass
class _GridConfig:
    _target_: str = f"{plugins.MODULE}.GridSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = None


def register() -> None:
    """Puts the sweeper in the place of Hydra's own, `hydra/sweeper=basic`, which is what it takes by default.

    An `override hydra/sweeper` in the configuration would do so as well, but could not be changed by a preset.
    """
    plugins.register(GridSweeper)
    ConfigStore.instance().store(group="hydra/sweeper", name="basic", node=_GridConfig, provider="slimexp")
