"""Puts a finished export into its folder, so that what is there looks complete only when it is."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from slimexp.errors import UserError
from slimexp.export.manifest import MANIFEST, NAMES
from slimexp.jobs.lock import BusyError, exclusive

__all__ = ["discard", "install", "locked", "make_folder", "present", "restore", "workplace"]

_WORKPLACE = ".export-{}.tmp"
# Within a workplace: what there is of the earlier export while it makes room, and when all of it has.
_LEAVING, _OLD = "leaving", "old"


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


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds an export's folder for this process alone, and puts back what a killed one has left of an export there.

    Raises:
        UserError: If another process is working there, or the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(folder))
        except BusyError as error:
            raise UserError(
                f"export.dir={folder}: another process is working there now. Wait for it, or choose another folder."
            ) from error
        except OSError as error:
            raise _unwritable(folder, error) from error
        restore(folder)
        yield


def restore(folder: Path) -> None:
    """Puts an export back that a killed process has left half moved away, and removes what else such ones have left.

    The folder must be locked: what another process builds there would be taken for left.

    Raises:
        UserError: If the folder cannot be written.
    """
    try:
        for left in sorted(folder.glob(_WORKPLACE.format("*"))):
            _put_back(left, folder)
            shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def workplace(folder: Path) -> Path:
    """Makes an empty folder within an export's own, which is locked, to build it in.

    Raises:
        UserError: If the folder cannot be written.
    """
    place = folder / _WORKPLACE.format(os.getpid())
    try:
        place.mkdir()
    except OSError as error:
        raise _unwritable(folder, error) from error
    return place


def install(place: Path, folder: Path) -> None:
    """Moves a finished export from its workplace into the folder; what is there of an earlier one goes.

    `export.json` goes first and comes last: without it, an export is none. If something fails on the way, the earlier
    one is put back: at once, or by `restore` where the process was killed.
    """
    assert NAMES[-1] == MANIFEST
    new = [name for name in NAMES if os.path.lexists(place / name)]
    try:
        (place / _LEAVING).mkdir()
        for name in reversed(present(folder)):
            os.rename(folder / name, place / _LEAVING / name)
        os.rename(place / _LEAVING, place / _OLD)
        for name in new:
            os.rename(place / name, folder / name)
    except BaseException:
        _put_back(place, folder)
        raise
    shutil.rmtree(place, ignore_errors=True)


def discard(place: Path, folder: Path) -> None:
    """Removes a workplace, if it is still there; what it holds of the earlier export is put back before."""
    _put_back(place, folder)
    shutil.rmtree(place, ignore_errors=True)


def _put_back(place: Path, folder: Path) -> None:
    """Undoes an installation that has not come to its end; it may be killed at any point and be called again."""
    leaving, old = place / _LEAVING, place / _OLD
    if os.path.lexists(folder / MANIFEST):
        return  # Not begun, or done.
    if old.is_dir():
        for name in present(folder):  # They are the new one's.
            os.rename(folder / name, place / name)
        os.rename(old, leaving)
    if leaving.is_dir():
        for name in NAMES:
            if os.path.lexists(leaving / name):
                os.rename(leaving / name, folder / name)


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"export.dir={folder}: cannot be written ({error.strerror or error}). Choose a folder of your own."
    )
