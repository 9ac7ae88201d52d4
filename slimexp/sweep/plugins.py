"""Makes a sweeper of ours known to Hydra, which takes plug-ins of the package `hydra_plugins` alone."""

from __future__ import annotations

import importlib
import sys
import types

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

__all__ = ["MODULE", "register"]

# Where our sweepers seem to live; nothing has to be installed there.
MODULE = "hydra_plugins.slimexp"


def register(sweeper: type[Sweeper]) -> None:
    """Registers a sweeper, which then is the `_target_` `hydra_plugins.slimexp.NAME`."""
    package, _, name = MODULE.rpartition(".")
    try:
        parent = importlib.import_module(package)
    except ImportError:  # It comes with plug-ins, and none is installed.
        parent = sys.modules[package] = types.ModuleType(package)
        parent.__path__ = []
    module = sys.modules.setdefault(MODULE, types.ModuleType(MODULE))
    setattr(parent, name, module)
    setattr(module, sweeper.__name__, sweeper)
    sweeper.__module__ = MODULE
    Plugins.instance().register(sweeper)
