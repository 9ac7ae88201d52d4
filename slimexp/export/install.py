"""Puts a finished export into its folder, so that what is there looks complete only when it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from slimexp.errors import UserError
from slimexp.export.manifest import MANIFEST, NAMES

__all__ = ["install", "make_folder", "present", "workplace"]

_WORKPLACE = ".export-{}.tmp"


def present(folder: Path) -> list[str]:
    """Returns what an export consists of that is in a folder already."""
    return [name for name in NAMES if os.path.lexists(folder / name)]


def make_folder(folder: Path) -> None:
    """Makes an export's own folder, if need be.

    Raises:
        UserError: If that cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def workplace(folder: Path) -> Path:
    """Makes an empty folder within an export's own, to build it in; those that killed processes left are removed.

    The folder must be locked: what another process builds there would be taken for such.

    Raises:
        UserError: If the folder cannot be written.
    """
    try:
        for left in folder.glob(_WORKPLACE.format("*")):
            shutil.rmtree(left, ignore_errors=True)
        place = folder / _WORKPLACE.format(os.getpid())
        place.mkdir()
    except OSError as error:
        raise _unwritable(folder, error) from error
    return place


def install(place: Path, folder: Path) -> None:
    """Moves a finished export from its workplace into the folder; what is there of an earlier one goes.

    `export.json` goes first and comes last: without it, an export is none. If something fails on the way, the earlier
    one is put back.
    """
    old = place / "old"
    new = [name for name in NAMES if os.path.lexists(place / name)]
    moved: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        os.rename(source, target)
        moved.append((source, target))

    try:
        old.mkdir()
        for name in reversed(present(folder)):
            move(folder / name, old / name)
        for name in new:
            move(place / name, folder / name)
    except BaseException:
        for source, target in reversed(moved):
            os.rename(target, source)
        raise
    assert NAMES[-1] == MANIFEST
    shutil.rmtree(place, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"export.dir={folder}: cannot be written ({error.strerror or error}). Choose a folder of your own."
    )
