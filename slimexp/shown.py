"""How commands and paths are shown, so that they can be entered as they stand. No TensorFlow."""

from __future__ import annotations

import os
import shlex
import sys

__all__ = ["shown_path", "shown_python"]


def shown_path(path: str | os.PathLike[str]) -> str:
    """Returns a path as it is entered in a shell: relative to the current folder where that is shorter."""
    absolute = os.path.abspath(path)
    return shlex.quote(min(os.path.relpath(absolute), absolute, key=len))


def shown_python() -> str:
    """Returns how to call the interpreter that runs now, which need not be the one that `python` means."""
    path = sys.executable or "python"
    if os.path.isabs(path):
        # Without a slash a shell would look for it elsewhere.
        relative = os.path.join(os.path.relpath(os.path.dirname(path)), os.path.basename(path))
        path = min(relative, path, key=len)
    return shlex.quote(path)
