"""Imported first by scripts: goes on with the checkout's own environment, where the interpreter has no slimexp."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PYTHON = _ROOT / ".venv/bin/python"

# TensorFlow alone tells an environment that was made for slimexp: the package itself is found in any checkout.
if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("hydra") is None:
    if not _PYTHON.exists() or Path(sys.prefix) == _ROOT / ".venv":
        sys.exit(
            f"{sys.argv[0]}: {sys.executable} has neither slimexp nor TensorFlow. Run ./scripts/run --help once, which "
            "makes .venv, or start this script with an interpreter into which slimexp was installed."
        )
    os.execv(_PYTHON, [str(_PYTHON), *sys.argv])
sys.path.insert(0, str(_ROOT))
