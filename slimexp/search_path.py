"""The user's own options: `conf/` in the folder that slimexp is started in lies on Hydra's search path, behind ours.

So `conf/dataset/mine.yaml` there is `dataset=mine`, and `pipeline=tuned` takes what a benchmark has left. Of options of
the same name ours is taken. `--help` and the lists of options in messages have the user's as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from slimexp.config import CONFIG_DIR

__all__ = ["OwnOptions", "register"]


class OwnOptions(SearchPathPlugin):
    """Appends `./conf`, if it is there and not our own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        own = Path(os.getcwd(), "conf")
        if own.is_dir() and not own.samefile(CONFIG_DIR):
            search_path.append(provider="your conf", path=str(own))


def register() -> None:
    """Makes Hydra use it; without that it looks for plug-ins in packages named `hydra_plugins` only."""
    Plugins.instance().register(OwnOptions)
