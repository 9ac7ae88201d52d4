"""The folder for what can be made anew at any time: the digits, the native op, copies of photos, counts of records."""

from __future__ import annotations

import os

__all__ = ["default_cache_dir"]


def default_cache_dir() -> str:
    """Returns `$SLIMEXP_CACHE`, else `$XDG_CACHE_HOME/slimexp`, else `~/.cache/slimexp`, as an absolute path."""
    folder = os.environ.get("SLIMEXP_CACHE")
    if not folder:
        folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "slimexp")
    return os.path.abspath(os.path.expanduser(folder))
