"""Which checkpoints are in a folder, whoever writes them there: ours, or TF-Slim's `model.ckpt-N`."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["find_checkpoints", "step_of"]

_INDEX = re.compile(r"(?P<prefix>(?!\.).+-(?P<step>\d+))\.index")


def find_checkpoints(folder: str | os.PathLike[str]) -> list[tuple[int, str]]:
    """Returns step and prefix of each complete V2 checkpoint in a folder, by rising step; none without the folder."""
    folder = Path(folder)
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (_INDEX.fullmatch(name) for name in names)
    return sorted((int(match["step"]), str(folder / match["prefix"])) for match in found if match)


def step_of(prefix: str) -> int | None:
    """Returns the step in a checkpoint's name, if it has one."""
    number = re.search(r"-(\d+)$", prefix)
    return int(number.group(1)) if number else None
